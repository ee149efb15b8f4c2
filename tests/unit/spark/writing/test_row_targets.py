"""Where rows go."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from orbitmq.client import Message, queue_selectors
from orbitmq.client.core.sending.message_checks import check_send_topic
from orbitmq.model.queues import MessageQueue
from orbitmq.spark.writing.row_errors import RowRefused
from orbitmq.spark.writing.row_targets import RowRouter, RowTarget
from orbitmq.spark.writing.write_columns import WriteColumns


def _queues(topic: str) -> list[MessageQueue]:
    return [
        MessageQueue(broker_name=broker, queue_id=number, topic=topic)
        for broker in ("a", "b")
        for number in range(3)
    ]


def _targets(*, topic: str = "", replaces_missing: bool = True, **columns: Any) -> list[RowTarget]:
    router = RowRouter(
        WriteColumns(frozenset(columns)),
        topic=topic,
        queues_of=_queues,
        check_topic=check_send_topic,
        replaces_missing=replaces_missing,
    )
    rows = pa.RecordBatch.from_pydict(columns)
    targets = router.targets_of(rows)
    if targets.of_rows is None:
        return [targets.targets[0]] * len(rows)
    return [targets.targets[number] for number in targets.of_rows.tolist()]


def test_the_option_sets_the_topic_of_all_rows() -> None:
    assert _targets(topic="orders", body=[b"a"] * 2) == [RowTarget("orders")] * 2


def test_the_column_sets_the_topic_of_each_row() -> None:
    names = ["orders", "payments", "orders"]

    columns: dict[str, Any] = {"body": [b"a"] * 3, "topic": names}

    assert _target_column(columns) == [RowTarget(name) for name in names]


def _target_column(columns: dict[str, Any]) -> list[RowTarget]:
    router = RowRouter(
        WriteColumns(frozenset(columns)),
        topic="",
        queues_of=_queues,
        check_topic=check_send_topic,
    )
    rows = pa.RecordBatch.from_pydict(columns)
    targets = router.targets_of(rows)
    assert targets.of_rows is not None
    return [targets.targets[number] for number in targets.of_rows.tolist()]


def test_rows_go_to_the_queues_they_name() -> None:
    targets = _targets(
        topic="orders",
        body=[b"a"] * 4,
        brokerName=["a", "b", None, "a"],
        queueId=[2, 0, 1, None],
    )

    queue = {(each.broker_name, each.queue_id): each for each in _queues("orders")}
    assert targets == [
        RowTarget("orders", queue["a", 2]),
        RowTarget("orders", queue["b", 0]),
        RowTarget("orders"),
        RowTarget("orders"),
    ]


def test_a_missing_queue_is_replaced() -> None:
    targets = _targets(
        topic="orders",
        body=[b"a"] * 4,
        brokerName=["a", "gone", "gone", "gone"],
        queueId=[7, 0, 1, 0],
    )

    assert all(target.queue in _queues("orders") for target in targets)
    assert targets[1] == targets[3]


def test_a_missing_queue_may_be_refused() -> None:
    with pytest.raises(
        RowRefused, match=r"'orders' has no writable queue a:7; .*a:0, a:1"
    ) as refused:
        _targets(
            topic="orders",
            replaces_missing=False,
            body=[b"a"] * 2,
            brokerName=["a", "a"],
            queueId=[1, 7],
        )

    assert refused.value.row == 1


def test_sharding_keys_choose_queues_as_producers_do() -> None:
    keys = ["one", "two", None, "", "three", "one"]

    targets = _targets(topic="orders", body=[b"a"] * 6, shardingKey=keys)

    queues = _queues("orders")
    message = Message("orders", b"a")
    assert targets == [
        RowTarget("orders", queue_selectors.by_hash(queues, message, key))
        if key
        else RowTarget("orders")
        for key in keys
    ]


def test_a_queue_overrides_a_sharding_key() -> None:
    targets = _targets(
        topic="orders",
        body=[b"a"] * 2,
        shardingKey=["k", "k"],
        brokerName=["b", None],
        queueId=[1, 1],
    )

    assert targets[0].queue == MessageQueue(broker_name="b", queue_id=1, topic="orders")
    assert targets[1].queue == queue_selectors.queue_by_hash(_queues("orders"), "k")


def test_rows_of_many_topics_go_to_queues_of_their_own() -> None:
    columns = {
        "body": [b"a"] * 3,
        "topic": ["orders", "payments", "orders"],
        "shardingKey": ["k", "k", None],
    }

    orders, payments, any_queue = _target_column(columns)

    assert orders.queue is not None
    assert orders.queue.topic == "orders"
    assert payments.queue is not None
    assert payments.queue.topic == "payments"
    assert any_queue == RowTarget("orders")


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        (None, "its topic is null"),
        ("a b", "topic name 'a b' contains ' '"),
        ("%RETRY%group", "only brokers write"),
        ("SCHEDULE_TOPIC_XXXX", "belongs to the brokers"),
    ],
)
def test_a_row_with_a_topic_that_cannot_be_sent_to_is_refused(
    topic: str | None, reason: str
) -> None:
    with pytest.raises(RowRefused, match=reason) as refused:
        _target_column({"body": [b"a"] * 3, "topic": ["orders", "orders", topic]})

    assert refused.value.row == 2


def _not_utf8(*values: bytes) -> pa.Array:
    """Texts as Spark may hand them over: its casts do not check for UTF-8."""
    return pa.array(values, pa.binary()).view(pa.string())


@pytest.mark.parametrize("column", ["topic", "brokerName", "shardingKey"])
def test_a_row_whose_target_is_not_utf8_is_named(column: str) -> None:
    wrong = _not_utf8(b"a", b"a", b"\xff\xfe")
    columns: dict[str, Any] = {"body": [b"x"] * 3, "topic": ["orders"] * 3, column: wrong}
    if column == "brokerName":
        columns["queueId"] = pa.array([None, 1, 1], pa.int32())

    with pytest.raises(RowRefused, match=rf"its {column} b'\\xff\\xfe' is not UTF-8") as refused:
        _target_column(columns)

    assert refused.value.row == 2
