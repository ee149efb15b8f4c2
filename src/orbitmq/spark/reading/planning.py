"""Decides how much a batch reads, and which task reads what; no I/O."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from orbitmq.model.queues import MessageQueue
from orbitmq.spark.reading.offsets import Offsets
from orbitmq.spark.reading.partitions import QueuePartition, QueueRange

# A queue with fewer messages is read by one task: a second one costs more than it saves.
SPLIT_ROWS: Final = 100_000
# Reading this few messages takes less time than handing a task to a Python process.
TASK_ROWS: Final = 200


def pack(
    ranges: Sequence[QueueRange],
    *,
    parallelism: int,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[QueuePartition]:
    """Spread ranges over about as many partitions as tasks run at a time.

    Small queues stay whole, and a few messages go to a single task. `min_partitions` and
    `max_records` (of a partition) are met exactly, as far as there are messages, even where that
    splits queues.
    """
    ranges = [part for part in ranges if part.rows > 0]
    rows = sum(part.rows for part in ranges)
    if rows == 0:
        return []
    tasks = min(parallelism, -(-rows // TASK_ROWS))
    balanced = _balanced(_without_giants(ranges, rows, parallelism), tasks)
    largest = max(partition.rows for partition in balanced)
    few = min_partitions is not None and len(balanced) < min(min_partitions, rows)
    large = max_records is not None and largest > max_records
    if not few and not large:
        return balanced
    wanted = max(len(balanced), min_partitions or 0, -(-rows // max_records) if max_records else 0)
    return _cut(ranges, rows, min(wanted, rows))


def lags(start: Offsets, end: Offsets) -> dict[MessageQueue, int]:
    """The messages of each queue between the two; `start` has every queue of `end`."""
    return {queue: max(0, offset - start[queue]) for queue, offset in end.items()}


def share(start: Offsets, end: Offsets, rows_max: int) -> Offsets:
    """Ends at most `rows_max` messages after `start` in all, shared in proportion to lag.

    Every queue with lag gets at least one message. If there are more such queues than messages,
    they take turns: the turn is the sum of the offsets, which grows by exactly `rows_max` with
    every batch, so no queue waits for more than `queues / rows_max` batches.
    """
    queues = sorted(end)
    waiting = lags(start, end)
    lag = sum(waiting.values())
    if lag <= rows_max:
        return dict(end)
    turn = sum(start.values()) % len(queues)
    in_turn = [queue for queue in queues[turn:] + queues[:turn] if waiting[queue]]
    given = dict.fromkeys(queues, 0)
    for queue in in_turn[:rows_max]:
        given[queue] = 1
    left = rows_max - min(rows_max, len(in_turn))
    unmet = lag - len(in_turn)
    if left:
        for queue in in_turn:
            given[queue] += left * (waiting[queue] - 1) // unmet
        # The remainder of rounding down: less than one message per queue.
        rest = rows_max - sum(given.values())
        for queue in [queue for queue in in_turn if given[queue] < waiting[queue]][:rest]:
            given[queue] += 1
    return {
        queue: start[queue] + given[queue] if waiting[queue] else end[queue] for queue in queues
    }


def rows_within(
    bytes_max: int, start: Offsets, end: Offsets, row_bytes: Mapping[MessageQueue, float]
) -> int:
    """How many messages, shared in proportion to lag, make about `bytes_max`; at least one.

    `row_bytes` is the average size of a message in each queue.
    """
    waiting = lags(start, end)
    lag = sum(waiting.values())
    lag_bytes = sum(row_bytes.get(queue, 0.0) * rows for queue, rows in waiting.items())
    if lag_bytes <= bytes_max:
        return max(1, lag)
    return max(1, int(lag * bytes_max / lag_bytes))


@dataclass(slots=True, eq=False, kw_only=True)
class TriggerGate:
    """Holds a batch back until it is large enough, or has waited long enough."""

    rows_min: int
    delay_max_ms: int
    # None before the first batch, which is never held back.
    _opened_ms: float | None = field(default=None, init=False)

    def opens(self, rows: int, *, now_ms: float) -> bool:
        """Whether a batch of this many messages may start now."""
        if rows == 0:
            return False
        waited_ms = None if self._opened_ms is None else now_ms - self._opened_ms
        if waited_ms is not None and waited_ms < self.delay_max_ms and rows < self.rows_min:
            return False
        self._opened_ms = now_ms
        return True


def _without_giants(ranges: Sequence[QueueRange], rows: int, parallelism: int) -> list[QueueRange]:
    """Split ranges that would keep one task busy after the others are done."""
    piece_rows = max(SPLIT_ROWS, -(-rows // parallelism))
    return [piece for part in ranges for piece in _split(part, -(-part.rows // piece_rows))]


def _split(part: QueueRange, pieces: int) -> list[QueueRange]:
    bounds = [part.start + part.rows * piece // pieces for piece in range(pieces + 1)]
    return [QueueRange(part.queue, start, end) for start, end in pairwise(bounds)]


def _balanced(pieces: Sequence[QueueRange], parallelism: int) -> list[QueuePartition]:
    """Assign pieces, largest first, each to the partition with the fewest messages."""
    bins: list[tuple[int, int, list[QueueRange]]] = [
        (0, number, []) for number in range(min(parallelism, len(pieces)))
    ]
    for piece in sorted(pieces, key=lambda piece: (-piece.rows, piece.queue, piece.start)):
        rows, number, taken = bins[0]
        taken.append(piece)
        heapq.heapreplace(bins, (rows + piece.rows, number, taken))
    return [_partition(taken) for _, _, taken in sorted(bins, key=lambda filled: filled[1])]


def _cut(ranges: Sequence[QueueRange], rows: int, partitions: int) -> list[QueuePartition]:
    """Cut the sequence of all messages into partitions that differ by at most one message."""
    bounds = [rows * number // partitions for number in range(partitions + 1)]
    cut: list[list[QueueRange]] = [[] for _ in range(partitions)]
    number, position = 0, 0
    for part in sorted(ranges, key=lambda part: (part.queue, part.start)):
        start = part.start
        while start < part.end:
            end = min(part.end, start + bounds[number + 1] - position)
            cut[number].append(QueueRange(part.queue, start, end))
            position += end - start
            start = end
            if position == bounds[number + 1]:
                number += 1
    return [_partition(taken) for taken in cut]


def _partition(taken: Sequence[QueueRange]) -> QueuePartition:
    return QueuePartition(tuple(sorted(taken, key=lambda part: (part.queue, part.start))))
