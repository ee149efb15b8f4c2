"""What a task reads, against real brokers and without Spark."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import pytest

from orbitmq.client import Message, MessageQueue, Producer
from orbitmq.client.aio.pull.record_reader import RecordRun
from orbitmq.embedded import Cluster
from orbitmq.errors import DataLossError, QueueReadError
from orbitmq.spark.options.read_options import ReadOptions
from orbitmq.spark.reading import queue_fetch
from orbitmq.spark.reading.partitions import QueuePartition, QueueRange
from orbitmq.spark.reading.queue_fetch import first_gap, queue_offsets, read_partition
from orbitmq.spark.rows.row_decoder import record_positions
from orbitmq.spark.rows.schema import Projection, table_projection
from orbitmq.spark.sessions.reader_pool import pooled_reader
from tests.unit.record.sample_records import KNOWN


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, in_memory=True) as started:
        yield started


@pytest.fixture(scope="module")
def queues(cluster: Cluster) -> list[MessageQueue]:
    """Two queues of 200 messages at each of two brokers; every other has a tag."""
    cluster.create_topic("orders", queues=2)
    with Producer(
        "tests", namesrv=cluster.namesrv, send_timeout_ms=60_000, call_timeout_ms=60_000
    ) as producer:
        found = sorted(producer.queues("orders"))
        for queue in found:
            messages = [
                Message("orders", f"{number}", tags=["Aa", "BB"][number % 2], keys=f"{number}")
                for number in range(200)
            ]
            producer.send(messages, queue=queue)
    return found


def options(cluster: Cluster, **given: str) -> ReadOptions:
    return ReadOptions.from_spark(
        {
            "namesrvAddr": cluster.namesrv,
            "subscribe": "orders",
            "retries": "1",
            "retryIntervalMs": "1",
            **given,
        }
    )


def columns(*names: str) -> Projection:
    schema = table_projection().spark_schema
    return Projection(type(schema)([schema[name] for name in names]))


def partition(queues: list[MessageQueue], start: int, end: int) -> QueuePartition:
    return QueuePartition(tuple(QueueRange(queue, start, end) for queue in queues))


def test_ranges_of_many_queues_come_in_order(cluster: Cluster, queues: list[MessageQueue]) -> None:
    names = columns("queueOffset", "brokerName", "queueId", "body")

    batches = list(read_partition(partition(queues, 10, 190), options(cluster), names))

    assert [batch.schema for batch in batches] == [names.arrow_schema] * 2, "one for each broker"
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [(row["brokerName"], row["queueId"], row["queueOffset"]) for row in rows] == [
        (queue.broker_name, queue.queue_id, offset) for queue in queues for offset in range(10, 190)
    ]
    assert {row["queueOffset"]: row["body"] for row in rows}[77] == b"77"


def test_records_that_are_joined_keep_the_topic_they_were_read_from(cluster: Cluster) -> None:
    runs = [
        RecordRun(MessageQueue(topic=topic, broker_name="a", queue_id=0), 0, 2, KNOWN.encode() * 2)
        for topic in ("orders", "bills", "orders")
    ]

    (piece,) = queue_fetch._pieces(queue_fetch._checked(runs, options(cluster)))

    assert [piece.topic_at(at) for at in piece.positions.tolist()] == [
        *["orders"] * 2,
        *["bills"] * 2,
        *["orders"] * 2,
    ]


def test_a_batch_is_handed_over_once_it_is_large_enough(
    cluster: Cluster, queues: list[MessageQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_fetch, "BATCH_ROWS", 150)
    given = options(cluster, pullBytesMax="10000")

    batches = list(read_partition(partition(queues[:2], 0, 200), given, columns("queueOffset")))

    assert len(batches) > 1
    assert sum(batch.num_rows for batch in batches) == 400
    assert all(150 <= batch.num_rows < 250 for batch in batches[:-1])


@pytest.mark.parametrize("names", [("body",), ("tags", "body")])
def test_rows_have_the_tag_asked_for_though_another_has_its_hash(
    cluster: Cluster, queues: list[MessageQueue], names: tuple[str, ...]
) -> None:
    # "Aa" and "BB" have the same hash in Java.
    given = options(cluster, tags="Aa || zz")

    (batch,) = read_partition(partition(queues[:1], 0, 200), given, columns(*names))

    assert batch.schema.names == list(names)
    assert batch.column("body").to_pylist() == [f"{number}".encode() for number in range(0, 200, 2)]


def test_rows_meet_a_condition(cluster: Cluster, queues: list[MessageQueue]) -> None:
    given = options(cluster, sql="TAGS = 'BB' AND KEYS > 5")

    batches = list(read_partition(partition(queues[:1], 0, 100), given, columns("queueOffset")))

    found = [offset for batch in batches for offset in batch.column(0).to_pylist()]
    assert found == [*range(7, 100, 2)]


def test_a_partition_without_messages_gives_no_batch(
    cluster: Cluster, queues: list[MessageQueue]
) -> None:
    assert not list(
        read_partition(partition(queues, 5, 5), options(cluster), columns("queueOffset"))
    )


def test_lost_messages_are_an_error_or_a_warning(
    cluster: Cluster, queues: list[MessageQueue], caplog: pytest.LogCaptureFixture
) -> None:
    beyond = partition(queues[:1], 190, 210)

    with pytest.raises(DataLossError, match=r"messages 200 to 2\d\d of queue 0 of topic 'orders'"):
        list(read_partition(beyond, options(cluster), columns("queueOffset")))
    with caplog.at_level(logging.WARNING):
        given = options(cluster, failOnDataLoss="false")
        batches = list(read_partition(beyond, given, columns("queueOffset")))
    assert sum(batch.num_rows for batch in batches) == 10
    assert "data loss: messages 200 to" in caplog.text


def test_a_queue_that_cannot_be_read_is_named(cluster: Cluster, queues: list[MessageQueue]) -> None:
    gone = MessageQueue(topic="orders", broker_name="broker-z", queue_id=0)

    with pytest.raises(QueueReadError, match=r"queue 0 of topic 'orders' on broker 'broker-z'"):
        list(read_partition(partition([gone], 0, 5), options(cluster), columns("queueOffset")))
    assert queues


def test_offsets_are_read_from_records(cluster: Cluster, queues: list[MessageQueue]) -> None:
    with pooled_reader(options(cluster)) as reader:
        (run,) = reader.read([(queues[0], 30, 40)])

    positions = record_positions(run.records)

    assert queue_offsets(run.records, positions).tolist() == [*range(30, 40)]


@pytest.mark.parametrize(
    ("present", "gap"),
    [
        ([], (3, 9)),
        ([3, 4, 8], (5, 8)),
        ([4, 5, 6, 7, 8], (3, 4)),
        ([3, 5, 7], (4, 5)),
        ([3, 4, 5, 6, 7], (8, 9)),
    ],
)
def test_the_first_gap_is_found(present: list[int], gap: tuple[int, int]) -> None:
    assert first_gap(np.array(present, np.int64), 3, 9) == gap
