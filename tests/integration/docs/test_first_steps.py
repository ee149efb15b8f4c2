"""The path of a new user, literally as the README shows it, in a copy of a clone.

Install, `up`, send, tail, the program in Python, lag, stop: the blocks of its first section, with
free ports in the place of those shown.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.docs.pages import (
    ROOT,
    SHOWN_ADDRESS,
    block_commands,
    blocks,
    shape,
)

README = [ROOT / "README.md"]
# It compiles, on machines that have other things to do.
INSTALL_SECONDS = 400
SECONDS_MAX = 150
PACKAGED = [
    *("src", "setup.py", "pyproject.toml", "constraints.txt"),
    *("README.md", "LICENSE", "MANIFEST.in"),
]
FREE_PORTS = "--namesrv-port=0 --broker-port=0 --metrics-port=0"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(INSTALL_SECONDS + 300)]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What a clone holds: the files that are kept, and nothing that was built."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *PACKAGED],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tmp_path / name)
    return tmp_path


class Terminal:
    """Runs what is typed, in the folder of the clone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # The name server is found as that of the page, though on another port.
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL"))},
            "PATH": f"{Path(sys.base_prefix) / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder),
            "PIP_CONSTRAINT": str(folder / "constraints.txt"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            # It need not be quick, but soon compiled.
            "CFLAGS": "-O0",
        }

    def run(self, text: str, *, seconds_max: int = SECONDS_MAX) -> list[str]:
        ran = subprocess.run(
            ["bash", "-c", text],
            cwd=self._folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=seconds_max,
            check=False,
        )
        assert ran.returncode == 0, f"{text}: {ran.stdout}{ran.stderr}"
        return ran.stdout.splitlines()

    @contextmanager
    def running(self, text: str) -> Iterator[subprocess.Popen[str]]:
        """Run something until Ctrl-C, which must end it in good order."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {text}"],
            cwd=self._folder,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.communicate(timeout=SECONDS_MAX)
            assert process.returncode == 0
        finally:
            process.kill()
            process.communicate()


def test_the_first_section_of_the_readme_works_as_it_stands(clone: Path) -> None:
    terminal = Terminal(clone)
    commands = [command for command in block_commands(README) if ".venv" in command.text]
    program = next(block.code for block in blocks(README) if block.language == "python")
    typed = [command.text for command in commands if not command.shown]
    up = next(text for text in typed if text.endswith("orbitmq up"))

    for text in typed[: typed.index(up)]:
        terminal.run(text, seconds_max=INSTALL_SECONDS)
    with terminal.running(f"{up} {FREE_PORTS}") as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        terminal.environment["NAMESRV_ADDR"] = address
        send, tail, lag = (command for command in commands if command.shown)
        for command in (send, tail):
            assert shape(terminal.run(command.text)) == shape(command.shown)
        (clone / "program.py").write_text(program.replace(SHOWN_ADDRESS, address))
        with terminal.running(".venv/bin/python -u program.py") as running:
            assert running.stdout is not None
            assert running.stdin is not None
            printed: set[str] = set()
            while not {"b'hello'\n", "b'my first message'\n"} <= printed:
                line = running.stdout.readline()
                assert line, printed
                printed.add(line)
            running.communicate("\n", timeout=SECONDS_MAX)
            assert running.returncode == 0
        assert shape(terminal.run(lag.text)) == shape(lag.shown)
    assert not list((clone / "orbitmq-data").rglob("abort"))
