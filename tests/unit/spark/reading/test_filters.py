"""Filters of a query: what they rule out, and that they never rule out too much."""

from __future__ import annotations

import datetime
import importlib.util
import operator
import random
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from orbitmq.model.queues import MessageQueue
from orbitmq.spark.reading.filters import Pruning, is_pushing_worker, pruning_of
from orbitmq.spark.reading.partitions import QueueRange


def queue(queue_id: int = 0, topic: str = "t") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name="a", queue_id=queue_id)


def moment(milliseconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(
        milliseconds=milliseconds
    )


def test_queues_are_skipped_by_topic_and_id() -> None:
    pruning = pruning_of(
        [In(("topic",), ("t", "u")), EqualTo(("queueId",), 1), IsNotNull(("queueId",))]
    )
    ranges = [QueueRange(queue(n, topic), 0, 9) for topic in "tv" for n in (0, 1)]

    assert pruning.narrowed(ranges) == [QueueRange(queue(1), 0, 9)]


def test_queues_are_skipped_by_broker() -> None:
    ranges = [QueueRange(queue(), 0, 9)]

    assert pruning_of([EqualTo(("brokerName",), "a")]).narrowed(ranges) == ranges
    assert pruning_of([In(("brokerName",), ("b", "c"))]).narrowed(ranges) == []


def test_filters_are_pushed_in_a_worker_of_spark_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "pyspark.sql.worker.data_source_pushdown_filters"
    assert importlib.util.find_spec(name) is not None
    monkeypatch.delitem(sys.modules, name, raising=False)
    assert not is_pushing_worker()

    monkeypatch.setitem(sys.modules, name, sys)
    assert is_pushing_worker()


def test_topics_are_compared_as_they_are_stored() -> None:
    pruning = pruning_of([EqualTo(("topic",), "space%t")])
    ranges = [QueueRange(queue(), 0, 9)]

    assert pruning.narrowed(ranges, namespace="space") == ranges
    assert pruning.narrowed(ranges) == []


@pytest.mark.parametrize(
    ("condition", "start", "end"),
    [
        (EqualTo(("queueOffset",), 5), 5, 6),
        (EqualNullSafe(("queueOffset",), 5), 5, 6),
        (In(("queueOffset",), (7, 5)), 5, 8),
        (GreaterThan(("queueOffset",), 5), 6, 10),
        (GreaterThanOrEqual(("queueOffset",), 5), 5, 10),
        (LessThan(("queueOffset",), 5), 0, 5),
        (LessThanOrEqual(("queueOffset",), 5), 0, 6),
        (GreaterThan(("queueOffset",), 50), 10, 10),
        (LessThan(("queueOffset",), -1), 0, 0),
        (EqualTo(("queueOffset",), None), 0, 10),
        (Not(EqualTo(("queueOffset",), 5)), 0, 10),
        (EqualTo(("a", "queueOffset"), 5), 0, 10),
        (EqualTo(("flag",), 5), 0, 10),
        (In(("queueOffset",), (None,)), 0, 10),
    ],
)
def test_offsets_make_ranges_shorter(condition: Filter, start: int, end: int) -> None:
    (left,) = pruning_of([condition]).narrowed([QueueRange(queue(), 0, 10)])

    assert (left.start, left.end) == (start, end)


def test_all_filters_hold_together() -> None:
    pruning = pruning_of(
        [
            GreaterThan(("queueOffset",), 3),
            GreaterThan(("queueOffset",), 2),
            LessThan(("queueOffset",), 8),
            LessThan(("queueOffset",), 9),
            In(("tags",), ("a", "b")),
            In(("tags",), ("b", "c")),
        ]
    )

    assert (pruning.first_offset, pruning.end_offset) == (4, 8)
    assert pruning.tags == frozenset({"b"})


@pytest.mark.parametrize(
    ("tags", "expression"),
    [
        (("b", "a"), "a || b"),
        (("a b",), None),
        (("a||b",), None),
        (("*",), None),
        (("",), None),
        ((), None),
        (tuple(f"tag{n}" for n in range(100)), None),
    ],
)
def test_tags_become_an_expression_for_brokers_if_possible(
    tags: tuple[str, ...], expression: str | None
) -> None:
    assert pruning_of([In(("tags",), tags)]).expression == expression


def test_an_unknown_filter_rules_nothing_out() -> None:
    filters: list[Filter] = [
        StringStartsWith(("topic",), "t"),
        EqualTo(("topic",), None),
        EqualTo(("queueId",), "0"),
        GreaterThan(("storeTimestamp",), "yesterday"),
        GreaterThan(("storeTimestamp",), datetime.datetime(2026, 1, 1)),  # noqa: DTZ001
    ]

    assert pruning_of(filters) == Pruning()


def test_times_are_looked_up_in_the_queues_that_are_left() -> None:
    asked: list[Mapping[MessageQueue, int]] = []

    def at_times(times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int | None]:
        asked.append(times_ms)
        return {one: 4 if times_ms[one] == 100 else 7 for one in times_ms}

    pruning = pruning_of(
        [
            GreaterThanOrEqual(("storeTimestamp",), moment(100)),
            LessThan(("storeTimestamp",), moment(200)),
        ]
    )
    ranges = [QueueRange(queue(0), 0, 9), QueueRange(queue(1), 5, 6), QueueRange(queue(2), 3, 3)]

    assert pruning.between(ranges, at_times) == [
        QueueRange(queue(0), 4, 7),
        QueueRange(queue(1), 5, 6),
    ]
    assert asked == [{queue(0): 100, queue(1): 100}, {queue(0): 200, queue(1): 200}]


def test_only_a_start_time_rules_out_queues_without_later_messages() -> None:
    def nothing(times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int | None]:
        return dict.fromkeys(times_ms)

    ranges = [QueueRange(queue(), 0, 9)]

    assert pruning_of([GreaterThan(("storeTimestamp",), moment(1))]).between(ranges, nothing) == []
    assert pruning_of([LessThan(("storeTimestamp",), moment(1))]).between(ranges, nothing) == ranges
    assert Pruning().between(ranges, nothing) == ranges


COMPARISONS: dict[type[Filter], Callable[[Any, Any], Any]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


@pytest.mark.parametrize("kind", COMPARISONS)
@pytest.mark.parametrize("seed", range(5))
def test_no_row_that_a_filter_keeps_is_ruled_out(kind: type[Filter], seed: int) -> None:
    rng = random.Random(seed)
    stored_ms = sorted(rng.randrange(50) for _ in range(30))

    def at_times(times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int | None]:
        return {
            one: next((n for n, stored in enumerate(stored_ms) if stored >= time_ms), None)
            for one, time_ms in times_ms.items()
        }

    for _ in range(50):
        value = moment(rng.choice([rng.randrange(-5, 60), rng.uniform(-5, 60)]))
        pruning = pruning_of([kind(("storeTimestamp",), value)])  # type: ignore[call-arg]

        left = pruning.between([QueueRange(queue(), 0, len(stored_ms))], at_times)

        read = {n for part in left for n in range(part.start, part.end)}
        kept = {n for n, ms in enumerate(stored_ms) if COMPARISONS[kind](moment(ms), value)}
        assert kept <= read
        if kind is not EqualTo:
            assert kept == read
