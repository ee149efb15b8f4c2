"""Child processes of the interop suite: started, watched, stopped and ended by their handle.

Threads: a process belongs to the test thread; only its standard streams are read elsewhere.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
from pathlib import Path
from typing import IO, Self

import psutil

from tests.waiting import wait_until

TAIL_LINES = 40
# Far above what a server takes for its goodbye: one that is killed leaves something unsaved.
_STOP_TIMEOUT_S = 120
_FAILED_MAIN = 'Exception in thread "main"'

_alive: dict[int, ChildProcess] = {}


class ChildProcess:
    """One child process with a folder of its own for logs and files."""

    def __init__(
        self,
        name: str,
        command: list[str],
        folder: Path,
        *,
        environment: dict[str, str] | None = None,
        pipes: bool = False,
    ) -> None:
        self.name = name
        self.command = command
        self.folder = folder
        self._environment = environment or {}
        self._pipes = pipes
        self._popen: subprocess.Popen[str] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def console(self) -> Path:
        """What the process printed."""
        return self.folder / "console.log"

    @property
    def popen(self) -> subprocess.Popen[str]:
        """The handle of the started process."""
        assert self._popen is not None, f"{self.name} was not started"
        return self._popen

    @property
    def stdin(self) -> IO[str]:
        """Where a process with pipes is written to."""
        assert self.popen.stdin is not None
        return self.popen.stdin

    @property
    def stdout(self) -> IO[str]:
        """Where a process with pipes is read from."""
        assert self.popen.stdout is not None
        return self.popen.stdout

    def start(self) -> Self:
        """Start the process, without waiting for anything."""
        with self.console.open("ab") as console:
            self._popen = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env={**os.environ, **self._environment},
                stdin=subprocess.PIPE if self._pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if self._pipes else console,
                stderr=console,
                text=True,
                encoding="utf-8",
            )
        _alive[self.popen.pid] = self
        return self

    def is_running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._popen is not None and self._popen.poll() is None

    def wait_printed(self, text: str, *, timeout_s: float) -> None:
        """Return once the process has printed `text`; fail at once when it ends before.

        A Java program whose `main` failed counts as ended, though its other threads go on.
        """

        def printed() -> bool:
            console = self.console.read_text(errors="replace")
            if text in console:
                return True
            if not self.is_running() or _FAILED_MAIN in console:
                raise ChildProcessError(f"{self.name} ended at start\n{self.tail()}")
            return False

        try:
            wait_until(printed, timeout_s=timeout_s, what=f"{self.name} prints {text!r}")
        except TimeoutError as late:
            raise TimeoutError(f"{late}\n{self.tail()}") from late

    def connected_addresses(self) -> set[str]:
        """The addresses that the process has open connections to."""
        return {
            f"{connection.raddr.ip.removeprefix('::ffff:')}:{connection.raddr.port}"
            for connection in psutil.Process(self.popen.pid).net_connections("tcp")
            if connection.status == psutil.CONN_ESTABLISHED
        }

    def pause(self) -> None:
        """Stop the process where it is; its connections stay open."""
        self.popen.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        self.popen.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process without a chance to say goodbye."""
        if self._popen is None:
            return
        self._popen.kill()
        self._forget()

    def stop(self, *, timeout_s: float = _STOP_TIMEOUT_S) -> None:
        """End the process in good order, or kill it when that takes too long."""
        if self._popen is None:
            return
        if self._popen.poll() is None:
            self._popen.send_signal(signal.SIGCONT)
            self._popen.terminate()
            try:
                self._popen.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._popen.kill()
        self._forget()

    def tail(self) -> str:
        """The last lines of every log of the process."""
        return "\n".join(
            f"--- {self.name}: {log.name}\n" + "\n".join(lines[-TAIL_LINES:])
            for log in sorted(self.folder.glob("*.log"))
            if (lines := log.read_text(errors="replace").splitlines())
        )

    def _forget(self) -> None:
        popen = self.popen
        popen.wait()
        for stream in (popen.stdin, popen.stdout):
            if stream is not None:
                stream.close()
        _alive.pop(popen.pid, None)
        self._popen = None


def alive() -> list[ChildProcess]:
    """Every process that was started and not yet ended."""
    return list(_alive.values())


def died() -> list[ChildProcess]:
    """Every process that ended though nobody ended it."""
    return [process for process in alive() if not process.is_running()]


def end_all() -> None:
    """Kill what is left; nothing is, unless the run itself was broken off."""
    for process in alive():
        process.kill()


atexit.register(end_all)
