"""Uses the filters of a query to skip queues and messages.

Every filter is handed back to Spark, which checks each row again; here they only make reads
smaller. Filters that are not understood are ignored.
"""

from __future__ import annotations

import datetime
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from orbitmq.client.core.namespaces import wrap
from orbitmq.spark.reading.partitions import QueueRange

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.model.queues import MessageQueue
    from orbitmq.spark.reading.offsets import Offsets

# Tags that need no escaping in an expression; others would be parsed as something else.
_PLAIN_TAG: Final = re.compile(r"[\w.:-]+")
# More than this in one expression would only make requests long.
_TAGS_MAX: Final = 64
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)

# Compat: the module of PySpark 4.2 and newer whose worker process pushes filters down.
_PUSHING_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"

Comparison = EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """The part of a read that the filters of a query allow; None is no limit."""

    topics: frozenset[str] | None = None
    brokers: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    tags: frozenset[str] | None = None
    # From the first, inclusive, to the second, exclusive.
    first_offset: int | None = None
    end_offset: int | None = None
    # By store time: from the first, inclusive, to the second, exclusive.
    first_ms: int | None = None
    end_ms: int | None = None

    def narrowed(self, ranges: Iterable[QueueRange], *, namespace: str = "") -> list[QueueRange]:
        """Drop what queue and offset rule out; `between` does times."""
        left: list[QueueRange] = []
        for part in ranges:
            queue = part.queue
            if self.topics is not None and wrap(namespace, queue.topic) not in self.topics:
                continue
            if self.brokers is not None and queue.broker_name not in self.brokers:
                continue
            if self.queue_ids is not None and queue.queue_id not in self.queue_ids:
                continue
            left.append(_cut(part, self.first_offset, self.end_offset))
        return left

    def between(
        self,
        ranges: Sequence[QueueRange],
        at_times: Callable[[Mapping[MessageQueue, int]], dict[MessageQueue, int | None]],
    ) -> list[QueueRange]:
        """Drop what the store time rules out; `at_times` finds offsets by time."""
        queues = {part.queue for part in ranges if part.rows > 0}
        first: Offsets = {}
        ends: Offsets = {}
        left = [part for part in ranges if part.rows > 0]
        if self.first_ms is not None and queues:
            found = at_times(dict.fromkeys(queues, self.first_ms))
            # Invariant: ranges ended before this request, so later arrivals are not in them.
            first = {queue: offset for queue, offset in found.items() if offset is not None}
            left = [part for part in left if part.queue in first]
        if self.end_ms is not None and queues:
            found = at_times(dict.fromkeys(queues, self.end_ms))
            ends = {queue: offset for queue, offset in found.items() if offset is not None}
        return [_cut(part, first.get(part.queue), ends.get(part.queue)) for part in left]

    @property
    def expression(self) -> str | None:
        """The tags as a broker's filter expression; None if they cannot be written as one."""
        if self.tags is None or not 0 < len(self.tags) <= _TAGS_MAX:
            return None
        if not all(_PLAIN_TAG.fullmatch(tag) for tag in self.tags):
            return None
        return " || ".join(sorted(self.tags))


def is_pushing_worker() -> bool:
    """Whether this process was started by Spark to push filters down.

    Spark refuses every read by a reader that takes filters unless its setting
    `spark.sql.python.filterPushdown.enabled` is on, so such a reader is made only there.
    """
    return _PUSHING_WORKER in sys.modules


def pruning_of(filters: Iterable[Filter]) -> Pruning:
    """Combine filters that must all hold."""
    pruning = Pruning()
    for condition in filters:
        pruning = _narrowed(pruning, condition)
    return pruning


def _narrowed(pruning: Pruning, condition: Filter) -> Pruning:
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    column = attribute[0] if len(attribute) == 1 else ""
    changes: dict[str, Any] = {}
    if column in _SETS:
        field, kind = _SETS[column]
        values = _values(condition, kind)
        known = getattr(pruning, field)
        if values is not None:
            changes[field] = values if known is None else known & values
    elif column in _BOUNDS:
        low_field, end_field, to_number = _BOUNDS[column]
        low, end = _bounds(condition, to_number)
        changes[low_field] = _tighter(max, getattr(pruning, low_field), low)
        changes[end_field] = _tighter(min, getattr(pruning, end_field), end)
    return replace(pruning, **changes)


def _values(condition: Filter, kind: type[object]) -> frozenset[object] | None:
    if isinstance(condition, EqualTo | EqualNullSafe):
        values: tuple[object, ...] = (condition.value,)
    elif isinstance(condition, In):
        # Null never matches a list.
        values = tuple(value for value in condition.value if value is not None)
    else:
        return None
    return frozenset(values) if all(isinstance(value, kind) for value in values) else None


def _bounds(
    condition: Filter, to_number: Callable[[object], tuple[int, int] | None]
) -> tuple[int | None, int | None]:
    """The first number that matches, and the one after the last; None where unbounded."""
    if isinstance(condition, In):
        listed = [to_number(value) for value in condition.value if value is not None]
        known = [number for number in listed if number is not None]
        if not known or len(known) < len(listed):
            return None, None
        return min(low for low, _ in known), max(high for _, high in known) + 1
    if not isinstance(condition, Comparison):
        return None, None
    number = to_number(condition.value)
    if number is None:
        return None, None
    low, high = number
    # For a value between two numbers, `low` is the one below it and `high` the one above.
    by_kind: dict[type[Filter], tuple[int | None, int | None]] = {
        GreaterThan: (low + 1, None),
        GreaterThanOrEqual: (high, None),
        LessThan: (None, high),
        LessThanOrEqual: (None, low + 1),
    }
    return by_kind.get(type(condition), (low, high + 1))


def _whole(value: object) -> tuple[int, int] | None:
    """A whole number, rounded down and up."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value, value
    return None


def _milliseconds(value: object) -> tuple[int, int] | None:
    """A time in milliseconds, rounded down and up: stores keep no finer times."""
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        return None
    low, rest = divmod(value - _EPOCH, _MILLISECOND)
    return low, low + 1 if rest else low


def _tighter(choose: Callable[[int, int], int], known: int | None, new: int | None) -> int | None:
    if known is None or new is None:
        return new if known is None else known
    return choose(known, new)


def _cut(part: QueueRange, first: int | None, end: int | None) -> QueueRange:
    start = part.start if first is None else min(max(part.start, first), part.end)
    stop = part.end if end is None else max(start, min(part.end, end))
    return QueueRange(part.queue, start, stop)


_SETS: Final[dict[str, tuple[str, type[object]]]] = {
    "topic": ("topics", str),
    "brokerName": ("brokers", str),
    "queueId": ("queue_ids", int),
    "tags": ("tags", str),
}
_BOUNDS: Final[dict[str, tuple[str, str, Callable[[object], tuple[int, int] | None]]]] = {
    "queueOffset": ("first_offset", "end_offset", _whole),
    "storeTimestamp": ("first_ms", "end_ms", _milliseconds),
}
