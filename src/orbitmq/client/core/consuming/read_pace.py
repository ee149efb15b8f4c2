"""How much each pull of a bulk read asks for, and how many are in flight.

The size of a reply is known only once it has arrived. To have several pulls in flight, each asks
for a window as long as earlier replies; a window that was too long takes further pulls.
"""

from __future__ import annotations

from typing import Final

# Largest number of messages in a window: a larger table of rows is slower again.
WINDOW_MAX: Final = 10_000
# With a filter, brokers scan this many entries, however few a pull asks for.
FILTERED_WINDOW_MIN: Final = 1_024
# Most pulls in flight, if replies are small.
PULLS_MAX: Final = 16
# A window grows after this many full replies in a row.
_FULL_BEFORE_GROWTH: Final = 8


class ReadPace:
    """Adapts the window and the number of pulls to the replies."""

    def __init__(self, *, pulls_ahead: int, pull_bytes_max: int, is_filtered: bool) -> None:
        self._pulls_ahead = pulls_ahead
        self._bytes_max = pulls_ahead * pull_bytes_max
        self._window_min = FILTERED_WINDOW_MIN if is_filtered else 1
        self._full = 0
        self.window = WINDOW_MAX
        # One until the first reply: nothing is known about the broker yet.
        self.pulls = 1

    def note(self, *, asked: int, covered: int, reply_bytes: int) -> None:
        """Record how many of the messages asked for a reply covered, and its size."""
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
