"""How the user calls the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.cli.own_command import own_command


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in a folder where the shell does not look."""
    script = tmp_path / "bin" / "orbitmq"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    return script


@pytest.mark.parametrize(
    ("started", "shown"),
    [
        ("bin/orbitmq", "bin/orbitmq"),
        ("/opt/my tools/orbitmq", "'/opt/my tools/orbitmq'"),
        ("orbitmq", "orbitmq"),
        ("/opt/orbitmq/cli/main.py", "orbitmq"),
    ],
)
@pytest.mark.usefixtures("installed")
def test_it_is_shown_as_it_was_started(
    monkeypatch: pytest.MonkeyPatch, started: str, shown: str
) -> None:
    monkeypatch.setattr("sys.argv", [started, "up"])

    assert own_command() == shown


def test_what_the_shell_finds_needs_no_folder(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(installed.parent))
    monkeypatch.setattr("sys.argv", [str(installed), "up"])

    assert own_command() == "orbitmq"
