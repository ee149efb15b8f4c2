"""Broker processes: started, watched, restarted if they exit, stopped.

Threads: one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Sequence
from typing import Final

from orbitmq.clock import Clock, SystemClock, time_limit
from orbitmq.lifecycle import OwnedTasks

log = logging.getLogger(__name__)

_FIRST_PAUSE_MS: Final = 500
_LONGEST_PAUSE_MS: Final = 30_000
# A process that ran this long was healthy: the pause starts over.
_HEALTHY_MS: Final = 60_000
_STOP_GRACE_MS: Final = 30_000
_LINE_BYTES_MAX: Final = 1024 * 1024


class WatchedProcess:
    """A command that is restarted when it exits by itself."""

    def __init__(self, name: str, command: Sequence[str], *, clock: Clock | None = None) -> None:
        self.name = name
        # How often it exited by itself.
        self.exits = 0
        self._command = command
        self._clock = clock or SystemClock()
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._watch = OwnedTasks()

    @property
    def process_id(self) -> int | None:
        """The id of the current process."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Run the command, and restart it whenever it exits."""
        self._watch.start(self._run(), name=f"watching {self.name}")

    async def stop(self) -> None:
        """Ask the process to exit, and kill it if that takes too long."""
        self._stopping = True
        if self._process is None:
            await self._watch.cancel()
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            async with time_limit(self._clock, _STOP_GRACE_MS):
                await self._watch.all_done()
        except TimeoutError:
            log.warning("process killed, it did not stop process=%s", self.name)
            if self._process is not None:
                self._process.kill()
            await self._watch.all_done()

    async def _run(self) -> None:
        pause_ms = _FIRST_PAUSE_MS
        while not self._stopping:
            started_ms = self._clock.monotonic_ms()
            code = await self._run_once()
            if self._stopping:
                return
            self.exits += 1
            if self._clock.monotonic_ms() - started_ms >= _HEALTHY_MS:
                pause_ms = _FIRST_PAUSE_MS
            log.error(
                "process exited process=%s exit=%d restart in %d ms",
                self.name,
                code,
                pause_ms,
            )
            await self._clock.sleep_ms(pause_ms)
            pause_ms = min(2 * pause_ms, _LONGEST_PAUSE_MS)

    async def _run_once(self) -> int:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            # Nothing is ever written: the pipe closes when we die, and the process stops then.
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=_LINE_BYTES_MAX,
            # Ctrl-C reaches only us; we stop the process in our own order.
            start_new_session=True,
        )
        try:
            assert self._process.stdout is not None
            await self._pass_on(self._process.stdout)
            return await self._process.wait()
        finally:
            self._process = None

    async def _pass_on(self, output: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await output.readline()
            except ValueError:
                line = b"(a line too long to show)\n"
            if not line:
                return
            # The terminal may be closed by now; keep watching the process.
            with contextlib.suppress(OSError):
                sys.stderr.write(f"{self.name} | {line.decode(errors='replace')}")
