"""Turns: how long a connection may keep a server's loop, and when it goes on.

A turn ends after a few milliseconds, at the end of a frame. A frame that takes longer by itself (a
large JSON document, a filter to compile) cannot be interrupted. Its connection then waits, and so do
all connections with such frames, one after the other: together they get at most a quarter of the loop's
time, and others are served between any two of them.

Threads: the event loop's only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# After this long a processor gives other connections a turn.
TURN_MS: Final = 5.0
# A turn as long as this had a frame that takes long by itself.
SLOW_MS: Final = 10.0
# Of so many milliseconds, one goes to slow turns.
_SHARE: Final = 4


@dataclass(slots=True, eq=False)
class SlowTurns:
    """Spaces the slow turns of all connections of a server."""

    # When the next slow turn may begin.
    _next_ms: float = 0.0

    def wait_ms(self, began_ms: float, ended_ms: float) -> float:
        """How long a connection waits after a turn; 0 unless the turn was slow."""
        took_ms = ended_ms - began_ms
        if took_ms < SLOW_MS:
            return 0.0
        self._next_ms = max(self._next_ms, began_ms) + _SHARE * took_ms
        return self._next_ms - ended_ms
