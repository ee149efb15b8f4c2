"""When the messages of one delay level are due, whatever happened to the clock.

An entry carries its due time by the clock of the moment it was stored at. That clock may since
have been set back, or the level may have had a longer delay: then the due time lies further ahead
than the level allows. Such entries wait the level's delay from when they were first seen, by a
clock that nobody sets. So they come late, at most by what passed before they were seen, and never
early.

Threads: one at a time.
Crash: what was seen is forgotten, and the wait begins again.
"""

from __future__ import annotations

from collections import deque
from typing import Final

# Of the delay of a level, the part by which such an entry may come late; it bounds what is kept.
_GRAINS: Final = 100


class DueTimes:
    """Says which entries of a level are due."""

    def __init__(self, delay_ms: int) -> None:
        self._delay_ms = delay_ms
        # The end of the queue, and when it was seen there with a due time too far ahead.
        self._seen: deque[tuple[int, float]] = deque()

    def note(self, end: int, last_due_ms: int, *, now_ms: int, monotonic_ms: float) -> None:
        """Look at the end of the queue, and at the due time of its last entry.

        Due times grow with the offsets, so that none is further ahead than the last.
        """
        if last_due_ms <= now_ms + self._delay_ms:
            return
        if self._seen:
            known_end, seen_ms = self._seen[-1]
            if end <= known_end or monotonic_ms - seen_ms < self._delay_ms / _GRAINS:
                return
        self._seen.append((end, monotonic_ms))

    def is_due(self, offset: int, due_ms: int, *, now_ms: int, monotonic_ms: float) -> bool:
        """Whether an entry is due; offsets are asked for in their order."""
        if due_ms <= now_ms:
            return True
        while self._seen and self._seen[0][0] <= offset:
            self._seen.popleft()
        return bool(self._seen) and monotonic_ms - self._seen[0][1] >= self._delay_ms
