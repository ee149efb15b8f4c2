"""Times of queues: the message for a store time."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from orbitmq.model.queues import QueueOffset

# So many entries are looked at one by one, if they are damaged or deleted; then fewer and fewer.
_NEIGHBOURS: Final = 4096


class Boundary(Enum):
    """Which message to choose for a time between two messages."""

    LOWER = "the first at or after it"
    UPPER = "the last at or before it"


# The store time of a message of a queue, by its number; None if it is deleted or damaged.
StoreMsOf = Callable[[QueueOffset], int | None]


class Bounded(Protocol):
    """A queue, as far as a search needs it."""

    @property
    def start(self) -> QueueOffset:
        """The number of the oldest message."""

    @property
    def end(self) -> QueueOffset:
        """The number after the newest message."""


def offset_at_time(
    queue: Bounded,
    time_ms: int,
    store_ms_of: StoreMsOf,
    boundary: Boundary = Boundary.LOWER,
) -> QueueOffset:
    """Find the queue offset at a store time, by bisection: store times never fall in a queue."""
    start, end = queue.start, queue.end

    def is_before(number: QueueOffset) -> bool:
        store_ms = _next_ms(number, end, store_ms_of)
        if store_ms is None:
            # Nothing tells, so nothing is skipped.
            return False
        return store_ms < time_ms if boundary is Boundary.LOWER else store_ms <= time_ms

    low, high = start, end
    while low < high:
        middle = QueueOffset((low + high) // 2)
        if is_before(middle):
            low = QueueOffset(middle + 1)
        else:
            high = middle
    return low if boundary is Boundary.LOWER else max(QueueOffset(low - 1), start)


def earliest_ms(queue: Bounded, store_ms_of: StoreMsOf) -> int | None:
    """The store time of the oldest message of a queue; None if it has none."""
    return _next_ms(queue.start, queue.end, store_ms_of)


def _next_ms(number: QueueOffset, end: QueueOffset, store_ms_of: StoreMsOf) -> int | None:
    """The store time of a message, or of a later one if that is damaged, which tells nearly as much."""
    looked_at, step = 0, 1
    while number < end:
        store_ms = store_ms_of(number)
        if store_ms is not None:
            return store_ms
        looked_at += 1
        step = 1 if looked_at < _NEIGHBOURS else step * 2
        number = QueueOffset(number + step)
    return None
