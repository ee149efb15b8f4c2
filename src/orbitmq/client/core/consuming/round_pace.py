"""The pauses between two rounds of rebalancing.

After a rest a round that is asked for runs at once, so that queues change hands within
milliseconds. Rounds that follow one another, as when many members start together, keep growing
distances. A round that left something to do is repeated, at growing distances too.
"""

from __future__ import annotations

from typing import Final, NamedTuple

# The shortest distance to the next round, however often brokers report changes.
GAP_MS_MIN: Final = 10
GAP_MS_MAX: Final = 100
# Without a round for so long, the next ones are quick again.
REST_MS: Final = 1_000
# When a round with something left to do is repeated.
RETRY_MS_MIN: Final = 50
RETRY_MS_MAX: Final = 1_000


class Pause(NamedTuple):
    """How long no round may start, and then how long until one must, unless asked for before."""

    gap_ms: float
    wait_ms: float


class RoundPace:
    """Chooses the pause after each round."""

    def __init__(self, interval_ms: float) -> None:
        self._interval_ms = interval_ms
        self._gap_ms: float = GAP_MS_MIN
        self._retry_ms: float = RETRY_MS_MIN
        self._ended_ms: float | None = None

    def after_round(self, now_ms: float, *, is_balanced: bool, was_asked_for: bool) -> Pause:
        """Return the pause after a round that ended now."""
        if self._ended_ms is None or now_ms - self._ended_ms >= REST_MS:
            self._gap_ms = GAP_MS_MIN
        else:
            self._gap_ms = min(self._gap_ms * 2, GAP_MS_MAX)
        self._ended_ms = now_ms
        if is_balanced or was_asked_for:
            self._retry_ms = RETRY_MS_MIN
        pause_ms = self._interval_ms
        if not is_balanced:
            pause_ms = self._retry_ms
            self._retry_ms = min(self._retry_ms * 2, RETRY_MS_MAX)
        return Pause(self._gap_ms, max(pause_ms - self._gap_ms, 0))
