"""Latency histograms of this minute and of the last one.

Threads: the event loop's.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate, pairwise, repeat
from math import ceil
from typing import Final

# Compat: the columns of RocketMQ's `putMessageDistributeTime`, and the upper bound of each.
_SHOWN: Final = (
    ("[<=0ms]", 1),
    ("[0~10ms]", 10),
    ("[10~50ms]", 50),
    ("[50~100ms]", 100),
    ("[100~200ms]", 200),
    ("[200~500ms]", 500),
    ("[500ms~1s]", 1000),
    ("[1~2s]", 2000),
    ("[2~3s]", 3000),
    ("[3~4s]", 4000),
    ("[4~5s]", 5000),
    ("[5~10s]", 10_000),
    ("[10s~]", None),
)
# Widths of the buckets in milliseconds: narrow where most values fall, as in RocketMQ.
_STEPS: Final = (
    *repeat(1, 20),
    *repeat(2, 15),
    *repeat(5, 10),
    *repeat(10, 10),
    *repeat(50, 6),
    *repeat(100, 5),
    *repeat(1000, 9),
)
_BOUNDS_MS: Final = tuple(accumulate(_STEPS))


class Latencies:
    """A histogram of durations."""

    def __init__(self) -> None:
        self.longest_ms = 0
        self._counts = _zeros()
        self._last_counts = _zeros()

    def note(self, took_ms: float) -> None:
        """Count one duration."""
        self.note_round(took_ms, took_ms, 1)

    def note_round(self, longest_ms: float, shortest_ms: float, count: int) -> None:
        """Count operations that ended together and started at even intervals."""
        # Perf: a flush round ends thousands of sends; most fall into the same bucket.
        self.longest_ms = max(self.longest_ms, int(longest_ms))
        low, high = _index(shortest_ms), _index(longest_ms)
        if low == high:
            self._counts[low] += count
            return
        step_ms = (longest_ms - shortest_ms) / max(count - 1, 1)
        counted = 0
        for index in range(low, high):
            until = min(ceil((_BOUNDS_MS[index] - shortest_ms) / step_ms), count)
            self._counts[index] += until - counted
            counted = until
        self._counts[high] += count - counted

    def end_minute(self, *, at_once: int = 0) -> None:
        """Make this minute the last one; `at_once` operations took no time and were not noted."""
        self._counts[0] += at_once
        self._last_counts = self._counts
        self._counts = _zeros()

    @property
    def count(self) -> int:
        """Number of operations noted in this minute."""
        return sum(self._counts)

    def formatted(self) -> str:
        """The last minute in RocketMQ's format."""
        ends = [len(_BOUNDS_MS) + 1 if end is None else _first_from(end) for _, end in _SHOWN]
        counts = [sum(self._last_counts[low:high]) for low, high in pairwise((0, *ends))]
        return "".join(f"{name}:{count} " for (name, _), count in zip(_SHOWN, counts, strict=True))

    def percentile_ms(self, share: float) -> float:
        """A percentile of the last minute; `share` is 0.99 for the 99th."""
        wanted = int(sum(self._last_counts) * share)
        passed = 0
        for index, count in enumerate(self._last_counts):
            if count and wanted <= passed + count:
                low = _BOUNDS_MS[index - 1] if index else 0
                high = _BOUNDS_MS[min(index, len(_BOUNDS_MS) - 1)]
                return low + (high - low) * (wanted - passed) / count
            passed += count
        return 0.0


def _zeros() -> list[int]:
    return [0] * (len(_BOUNDS_MS) + 1)


def _index(took_ms: float) -> int:
    return bisect_right(_BOUNDS_MS, took_ms)


def _first_from(took_ms: int) -> int:
    return bisect_left(_BOUNDS_MS, took_ms) + 1
