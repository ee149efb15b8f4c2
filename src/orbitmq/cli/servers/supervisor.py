"""Brokers as processes of their own: started, watched, started again, stopped.

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
# One that ran this long was well: the next pause is the first again.
_WELL_MS: Final = 60_000
_STOP_GRACE_MS: Final = 30_000
_LINE_BYTES_MAX: Final = 1024 * 1024


class WatchedProcess:
    """A command that is run again when it ends by itself."""

    def __init__(self, name: str, command: Sequence[str], *, clock: Clock | None = None) -> None:
        self.name = name
        # How often it ended by itself.
        self.ends = 0
        self._command = command
        self._clock = clock or SystemClock()
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._watch = OwnedTasks()

    @property
    def process_id(self) -> int | None:
        """The id of the process that runs at present."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Run the command, again and again."""
        self._watch.start(self._run(), name=f"watching {self.name}")

    async def stop(self) -> None:
        """Ask the process to end, and end it when it takes too long."""
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
            log.warning("killed, since it does not end process=%s", self.name)
            if self._process is not None:
                self._process.kill()
            await self._watch.all_done()

    async def _run(self) -> None:
        pause_ms = _FIRST_PAUSE_MS
        while not self._stopping:
            begun_ms = self._clock.monotonic_ms()
            code = await self._run_once()
            if self._stopping:
                return
            self.ends += 1
            if self._clock.monotonic_ms() - begun_ms >= _WELL_MS:
                pause_ms = _FIRST_PAUSE_MS
            log.error(
                "process ended by itself process=%s exit=%d next start in %d ms",
                self.name,
                code,
                pause_ms,
            )
            await self._clock.sleep_ms(pause_ms)
            pause_ms = min(2 * pause_ms, _LONGEST_PAUSE_MS)

    async def _run_once(self) -> int:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            # Nothing is ever sent: it ends with us, and tells the process of our death.
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=_LINE_BYTES_MAX,
            # A key pressed to end us all reaches us alone, and we tell it in our own time.
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
            # The terminal may be closed meanwhile; the process is watched on.
            with contextlib.suppress(OSError):
                sys.stderr.write(f"{self.name} | {line.decode(errors='replace')}")
