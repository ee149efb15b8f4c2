"""Turns: how long a connection may keep a server's loop, and when it goes on.

A turn ends after a millisecond, at the end of a frame. A frame that takes longer by itself (a large
JSON document, a filter to compile) cannot be interrupted. Connections with such frames wait in a row:
one of them has a turn, then the loop serves all others before the next. While others are active, the
row also pauses after each turn, so that slow frames get about a quarter of the loop's time.

A connection joins the row after a turn that was slow, and before a frame that may be: a large one
other than a plain send, or a pull with a long filter that is new. So a peer that connects again for
every frame gains nothing.

Threads: the event loop's only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from orbitmq.clock import SystemClock, processor_ms

if TYPE_CHECKING:
    from orbitmq.clock import Clock

# After this long a processor gives other connections a turn.
TURN_MS: Final = 1.0
# A turn that used this much processor time had a frame that takes long by itself, or very many.
SLOW_MS: Final = 4.0
# A frame of more bytes may take long, unless it is a plain send.
LARGE_FRAME_BYTES: Final = 16 * 1024
# How much longer the row pauses than a turn in it was slow.
_PAUSE: Final = 3
# Others are active if one had a turn within this time.
_ACTIVE_MS: Final = 200.0


class SlowTurnNeeded(Exception):  # noqa: N818  # no error: the frame is processed again, in its turn
    """Raised before anything changes, for a frame that has to wait in the row.

    See `Connection.require_slow_turn`.
    """


class SlowTurns:
    """The row of all connections of a server that need long."""

    def __init__(
        self, clock: Clock | None = None, used_ms: Callable[[], float] = processor_ms
    ) -> None:
        # The system's clock, like the processor time that it is compared with.
        self._clock = clock or SystemClock()
        # Reads the processor time used: on a busy machine a turn may last long and cost little.
        self.used_ms = used_ms
        self._row: deque[Callable[[], None]] = deque()
        self._is_due = False
        self._next_ms = 0.0
        # When a connection last had a turn outside the row, that was not slow.
        self.others_active_ms = float("-inf")

    def join(self, take_turn: Callable[[], None]) -> None:
        """Wait for a turn at the end of the row."""
        self._row.append(take_turn)
        self._go_on()

    def charge(self, used_ms: float) -> bool:
        """Count processor time that was used at once; returns whether it was a slow turn."""
        if used_ms < SLOW_MS:
            return False
        now_ms = self._clock.monotonic_ms()
        self._next_ms = max(self._next_ms, now_ms) + _PAUSE * (used_ms - SLOW_MS)
        return True

    def _go_on(self) -> None:
        if self._row and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._is_due = False
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_ms and now_ms - self.others_active_ms < _ACTIVE_MS:
            self._is_due = True
            self._clock.call_later(min(self._next_ms - now_ms, _ACTIVE_MS), self._run)
            return
        # What is not waited for is not owed later.
        self._next_ms = 0.0
        try:
            self._row.popleft()()
        finally:
            self._go_on()
