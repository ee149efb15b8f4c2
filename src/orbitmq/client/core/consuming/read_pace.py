"""How far pulls of a queue that is read in bulk reach, and how many go at a time.

A reply tells only by its end how many messages it holds. To have several pulls under way, each asks
for a window as long as replies have been; a window that was too long is read by further pulls.
"""

from __future__ import annotations

from typing import Final

# Messages of one window, at most: more in one table of rows cost time again.
WINDOW_MAX: Final = 10_000
# Brokers look at so many entries for a filter, whatever they are asked for.
FILTERED_WINDOW_MIN: Final = 1_024
# Pulls at a time, at most, where replies are small.
PULLS_MAX: Final = 16
# A window grows after so many replies in a row that filled it.
_FULL_BEFORE_GROWTH: Final = 8


class ReadPace:
    """Learns from replies."""

    def __init__(self, *, pulls_ahead: int, pull_bytes_max: int, is_filtered: bool) -> None:
        self._pulls_ahead = pulls_ahead
        self._bytes_max = pulls_ahead * pull_bytes_max
        self._window_min = FILTERED_WINDOW_MIN if is_filtered else 1
        self._full = 0
        self.window = WINDOW_MAX
        # One until the first reply has come: nothing is known of the broker.
        self.pulls = 1

    def note(self, *, asked: int, covered: int, reply_bytes: int) -> None:
        """Take in how far a reply came of the messages asked for, and how large it was."""
        if covered < asked:
            self.window = max(covered, self._window_min)
            self._full = 0
        elif asked >= self.window:
            self._full += 1
            if self._full >= _FULL_BEFORE_GROWTH:
                self.window = min(2 * self.window, WINDOW_MAX)
                self._full = 0
        fitting = self._bytes_max // max(reply_bytes, 1)
        self.pulls = max(self._pulls_ahead, min(fitting, PULLS_MAX))
