"""How long something took on a loop, less the time for which the machine stood still."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from orbitmq.clock import SystemClock

_CLOCK: Final = SystemClock()
_TICK_MS: Final = 20
# A tick that is late by less is the work of the loop itself.
_STALL_MS: Final = 100


class Taken:
    """A time that was measured; ticks on the same loop tell how much of it was a stall."""

    def __init__(self) -> None:
        self.ms = 0.0
        self._begun_ms = self._tick_ms = _CLOCK.monotonic_ms()
        self._stalled_ms = 0.0

    async def tick(self) -> None:
        """Tick until cancelled."""
        while True:
            await _CLOCK.sleep_ms(_TICK_MS)
            self._note_tick()

    def end(self) -> None:
        """Say how long it took."""
        self._note_tick()
        self.ms = self._tick_ms - self._begun_ms - self._stalled_ms

    def _note_tick(self) -> None:
        now_ms = _CLOCK.monotonic_ms()
        late_ms = now_ms - self._tick_ms - _TICK_MS
        if late_ms > _STALL_MS:
            self._stalled_ms += late_ms
        self._tick_ms = now_ms


@asynccontextmanager
async def timed() -> AsyncIterator[Taken]:
    """Measure the block."""
    taken = Taken()
    ticking = asyncio.create_task(taken.tick())
    try:
        yield taken
    finally:
        taken.end()
        ticking.cancel()
        await asyncio.wait({ticking})
