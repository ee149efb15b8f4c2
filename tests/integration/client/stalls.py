"""Measures how long a block takes on a loop, without the time in which the machine stalled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from orbitmq.clock import SystemClock

_CLOCK: Final = SystemClock()
_TICK_MS: Final = 20
# A tick that is late by less is due to work of the loop itself.
_STALL_MS: Final = 100


class BlockTime:
    """A measured time; ticks on the same loop show how much of it was a stall."""

    def __init__(self) -> None:
        self.ms = 0.0
        self._start_ms = self._tick_ms = _CLOCK.monotonic_ms()
        self._stalled_ms = 0.0

    async def tick(self) -> None:
        """Tick until cancelled."""
        while True:
            await _CLOCK.sleep_ms(_TICK_MS)
            self._note_tick()

    def end(self) -> None:
        """Set the time that the block took."""
        self._note_tick()
        self.ms = self._tick_ms - self._start_ms - self._stalled_ms

    def _note_tick(self) -> None:
        now_ms = _CLOCK.monotonic_ms()
        late_ms = now_ms - self._tick_ms - _TICK_MS
        if late_ms > _STALL_MS:
            self._stalled_ms += late_ms
        self._tick_ms = now_ms


@asynccontextmanager
async def timed() -> AsyncIterator[BlockTime]:
    """Measure the block."""
    block_time = BlockTime()
    ticking = asyncio.create_task(block_time.tick())
    try:
        yield block_time
    finally:
        block_time.end()
        ticking.cancel()
        await asyncio.wait({ticking})
