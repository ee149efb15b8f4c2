"""The slot being delivered: its messages in the order of their due times.

Eight bytes for each message, so that a million due in one second take 8 MB.

Threads: one at a time.
"""

from __future__ import annotations

import heapq
from array import array
from itertools import groupby
from operator import itemgetter
from typing import Final

# A chain of the timer log is read backwards, so most buckets are filled downwards.
_UPWARDS: Final = 1
_DOWNWARDS: Final = 2


class DueSlot:
    """Messages by due time, each by its physical offset."""

    def __init__(self) -> None:
        self._buckets: dict[int, array[int]] = {}
        # Due times with messages, and how many messages of the first one are taken already.
        self._dues: list[int] = []
        self._taken = 0
        # How the messages of buckets follow each other, until they are sorted.
        self._orders: dict[int, int] = {}
        self.count = 0

    def add(self, due_ms: int, physical_offset: int) -> None:
        """Add a message; added again for the same time, it counts once."""
        bucket = self._buckets.get(due_ms)
        if bucket is None:
            bucket = self._buckets[due_ms] = array("q")
            if self._dues and due_ms < self._dues[0]:
                self._drop_taken()
            heapq.heappush(self._dues, due_ms)
        if bucket:
            self._orders[due_ms] = self._orders.get(due_ms, 0) | _order(bucket[-1], physical_offset)
        bucket.append(physical_offset)
        self.count += 1

    @property
    def next_due_ms(self) -> int | None:
        """When the next message is due; None if there is none."""
        return self._dues[0] if self._dues else None

    def peek(self, now_ms: int, count_max: int) -> list[tuple[int, int]]:
        """The next messages that are due, as due time and physical offset; they stay here."""
        found: list[tuple[int, int]] = []
        self._sort()
        skip = self._taken
        for due_ms in heapq.nsmallest(count_max, self._dues):
            if due_ms > now_ms or len(found) >= count_max:
                break
            bucket = self._buckets[due_ms]
            found += [(due_ms, offset) for offset in bucket[skip : skip + count_max - len(found)]]
            skip = 0
        return found

    def drop_next(self) -> None:
        """Drop the message that is due next."""
        self._sort()
        due_ms = self._dues[0]
        self._taken += 1
        self.count -= 1
        if self._taken >= len(self._buckets[due_ms]):
            heapq.heappop(self._dues)
            del self._buckets[due_ms]
            self._taken = 0

    def all(self) -> list[tuple[int, int]]:
        """All messages, in order."""
        return self.peek(2**63, self.count) if self.count else []

    def _drop_taken(self) -> None:
        """Forget the messages taken from the first bucket, which is not the first any more."""
        if self._taken:
            first = self._dues[0]
            self._buckets[first] = self._buckets[first][self._taken :]
            self._taken = 0

    def _sort(self) -> None:
        if not self._orders:
            return
        self._drop_taken()
        for due_ms, order in self._orders.items():
            bucket = self._buckets[due_ms]
            if order == _DOWNWARDS:
                # Perf: sorting a million of them would hold all threads for 100 ms.
                bucket.reverse()
            elif order != _UPWARDS:
                self._buckets[due_ms] = array("q", map(itemgetter(0), groupby(sorted(bucket))))
        self.count = sum(map(len, self._buckets.values()))
        self._orders.clear()


def _order(before: int, after: int) -> int:
    if after == before:
        return _UPWARDS | _DOWNWARDS
    return _UPWARDS if after > before else _DOWNWARDS
