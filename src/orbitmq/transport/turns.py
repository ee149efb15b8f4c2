"""Turns: how long a connection may keep a server's loop, and when it goes on.

A turn ends after a millisecond, at the end of a frame. A frame that takes longer by itself (a
large JSON document, a filter to compile) cannot be interrupted. Its connection then waits, and so do
all connections with such frames, one after the other: together they get at most a quarter of the loop's
time, and others are served between any two of them.

Threads: the event loop's only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orbitmq.clock import processor_ms

# After this long a processor gives other connections a turn.
TURN_MS: Final = 1.0
# A turn as long as this had a frame that takes long by itself.
SLOW_MS: Final = 10.0
# Of so many milliseconds, one goes to slow turns.
SHARE: Final = 4


class SlowTurns:
    """Spaces the slow turns of all connections of a server."""

    def __init__(self, used_ms: Callable[[], float] = processor_ms) -> None:
        # Reads the processor time used: on a busy machine a turn may last long and cost little.
        self.used_ms = used_ms
        # When the next slow turn may begin.
        self._next_ms = 0.0

    def wait_ms(self, began_ms: float, ended_ms: float, used_before_ms: float) -> float:
        """How long a connection waits after a turn; 0 unless the turn was slow."""
        if ended_ms - began_ms < SLOW_MS:
            return 0.0
        return self.charge(ended_ms, self.used_ms() - used_before_ms)

    def charge(self, now_ms: float, took_ms: float) -> float:
        """How long a connection waits whose work took so much processor time."""
        if took_ms < SLOW_MS:
            return 0.0
        self._next_ms = max(self._next_ms, now_ms - took_ms) + SHARE * took_ms
        return self._next_ms - now_ms
