"""Times of queues: the message for a store time."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final

from orbitmq.model.queues import QueueOffset

if TYPE_CHECKING:
    from orbitmq.store.reading.queue_reader import ReadableQueue

# So many entries in a row may be damaged.
_NEIGHBOURS: Final = 64


class Boundary(Enum):
    """Which message to choose for a time between two messages."""

    LOWER = "the first at or after it"
    UPPER = "the last at or before it"


def offset_at_time(
    queue: ReadableQueue,
    time_ms: int,
    store_ms_at: Callable[[int], int | None],
    boundary: Boundary = Boundary.LOWER,
) -> QueueOffset:
    """Find the queue offset at a store time, by bisection: store times never fall in a queue."""
    start, end = queue.start, queue.end

    def is_before(number: int) -> bool:
        for other in range(number, min(number + _NEIGHBOURS, end)):
            entry = queue.entry(QueueOffset(other))
            store_ms = store_ms_at(entry[0]) if entry else None
            # A damaged entry leads nowhere; the next one tells as much.
            if store_ms is not None:
                return store_ms < time_ms if boundary is Boundary.LOWER else store_ms <= time_ms
        # A deleted record is older than all that are left.
        return True

    low, high = start, end
    while low < high:
        middle = QueueOffset((low + high) // 2)
        if is_before(middle):
            low = QueueOffset(middle + 1)
        else:
            high = middle
    return low if boundary is Boundary.LOWER else max(QueueOffset(low - 1), start)
