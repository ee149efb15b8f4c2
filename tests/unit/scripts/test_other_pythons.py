"""Other Pythons: which there are, and what happens when one is not installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts import other_pythons
from scripts.other_pythons import find_python, main, other_versions

# No machine has it.
VERSION = "3.0"
THIS = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of the path."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def _put(path: Path, lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return path


def test_the_classifiers_name_the_versions() -> None:
    kinds = [
        "Typing :: Typed",
        *(f"Programming Language :: Python :: {n}" for n in (3, THIS, "3.0")),
    ]

    assert other_versions({"classifiers": kinds}) == ["3.0"]


def test_a_version_is_found_on_the_path(on_path: Path) -> None:
    _put(on_path / f"python{VERSION}", f"echo /its/real/path {VERSION}")

    assert find_python(VERSION) == Path("/its/real/path")


def test_the_newest_of_pyenv_is_found_when_its_command_on_the_path_does_not_run(
    on_path: Path,
) -> None:
    _put(on_path / f"python{VERSION}", "exit 127")
    _put(on_path / "pyenv", f"echo {on_path}/pyenv-root")
    for patch in (2, 10, 9):
        name = f"{VERSION}.{patch}"
        _put(on_path / "pyenv-root" / "versions" / name / "bin/python", f"echo /{name} {VERSION}")

    assert find_python(VERSION) == Path(f"/{VERSION}.10")


def test_a_command_of_another_version_is_not_taken(on_path: Path) -> None:
    _put(on_path / f"python{VERSION}", "echo /usr/bin/python 2.7")

    assert find_python(VERSION) is None


@pytest.mark.usefixtures("on_path")
def test_a_python_that_is_not_installed_is_told_and_is_no_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_pythons, "other_versions", lambda _project: [VERSION])

    assert main(["tests/unit/client"]) == 0

    assert capsys.readouterr().out == "Python 3.0 is not installed: nothing runs on it\n"
