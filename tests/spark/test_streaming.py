"""Streams of topics: what each batch has, whatever happens between them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from orbitmq.client import Message, MessageQueue
from orbitmq.client.aio.admin import Admin
from orbitmq.spark import LagListener
from orbitmq.spark.reading.lag_listener import QueryLag
from tests.spark.conftest import StartCluster
from tests.spark.streams import QUERY_TIMEOUT_S, Stream
from tests.spark.topics import Topics
from tests.waiting import wait_until


class StreamOf(Protocol):
    """Makes a stream of a topic, by default from its beginning."""

    def __call__(self, topic: str, **options: Any) -> Stream: ...


@pytest.fixture
def stream_of(spark: SparkSession, topics: Topics, tmp_path: Path) -> StreamOf:
    def make(topic: str, **options: Any) -> Stream:
        options = {"subscribe": topic, "startingOffsets": "earliest", **options}
        return Stream(spark, topics.cluster.namesrv, tmp_path, **options)

    return make


def numbered(count: int) -> list[str]:
    return sorted(f"message {number}" for number in range(count))


# --- checkpoints ----------------------------------------------------------------------------------


def test_a_query_resumes_at_its_checkpoint(
    topics: Topics, tmp_path: Path, stream_of: StreamOf
) -> None:
    topic = topics.filled(20, queues=2)
    stream = stream_of(topic)
    stream.run()
    topics.send(topic, ["later"] * 3)

    stream.run()

    assert sorted(stream.bodies) == sorted([*numbered(20), *["later"] * 3])
    assert stream.sizes == [20, 3]
    assert '"v": 2' in (tmp_path / "offsets" / "1").read_text()


def test_a_checkpoint_of_a_newer_release_is_refused(
    topics: Topics, tmp_path: Path, stream_of: StreamOf
) -> None:
    topic = topics.filled(1, queues=1)
    stream = stream_of(topic)
    stream.run()
    offsets = tmp_path / "offsets" / "0"
    (tmp_path / "offsets" / ".0.crc").unlink()
    offsets.write_text(offsets.read_text().replace('"v": 2', '"v": 3'))

    with pytest.raises(StreamingQueryException, match="version 3; this release reads up to 2"):
        stream.run()


def test_a_stream_starts_with_new_messages_by_default(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.filled(5, queues=1)
    stream = Stream(spark, topics.cluster.namesrv, tmp_path, subscribe=topic)
    stream.run()
    topics.send(topic, ["new"])

    stream.run()

    assert stream.bodies == ["new"]


# --- limits ---------------------------------------------------------------------------------------


def test_a_limit_of_messages_is_kept_by_every_batch(topics: Topics, stream_of: StreamOf) -> None:
    topic = topics.filled(18, queues=1)
    stream = stream_of(topic, maxOffsetsPerTrigger=7)

    stream.run()

    assert stream.sizes == [7, 7, 4]
    assert sorted(stream.bodies) == numbered(18)
    queues_of_batches = [{row["brokerName"] for row in rows} for rows in stream.batches.values()]
    assert queues_of_batches == [{"broker-a", "broker-b"}] * 3


def test_a_limit_of_bytes_is_kept_within_a_few_messages(
    topics: Topics, stream_of: StreamOf
) -> None:
    topic = topics.create(queues=1)
    topics.send(topic, [b"x" * 4000] * 30)
    stream = stream_of(topic, maxBytesPerTrigger=50_000)

    stream.run()

    assert sum(stream.sizes) == 30
    assert 10 <= max(stream.sizes) <= 12


def test_a_small_batch_waits_for_more(topics: Topics, stream_of: StreamOf) -> None:
    topic = topics.filled(1, queues=1)
    stream = stream_of(topic, minOffsetsPerTrigger=5)
    query = stream.start()
    try:
        query.processAllAvailable()
        topics.send(topic, ["a"] * 4)
        query.processAllAvailable()
        assert stream.sizes == [1], "four are too few, and the delay is 15 minutes"
        topics.send(topic, ["b"])
        query.processAllAvailable()
    finally:
        query.stop()

    assert stream.sizes == [1, 5]


# --- trigger(availableNow=True) -------------------------------------------------------------------


def test_a_run_reads_what_was_available_at_its_start_and_the_next_one_the_rest(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.filled(10, queues=1)
    name = f"{topic}-new"

    def go_on_producing(batch: int) -> None:
        topics.send(topic, [f"during batch {batch}"] * 4)
        if batch == 0:
            topics.cluster.create_topic(topic, queues=2)
            topics.cluster.create_topic(name, queues=1)
            topics.send(name, ["of a new topic"])
            new_queue = MessageQueue(topic=topic, broker_name="broker-a", queue_id=1)
            topics.send_messages([Message(topic, "of a new queue")], queue=new_queue)

    stream = Stream(
        spark,
        topics.cluster.namesrv,
        tmp_path,
        in_batch=go_on_producing,
        subscribePattern=f"{topic}(-new)?",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=6,
        # More than arrive: such a run does not wait for more.
        minOffsetsPerTrigger=1000,
    )

    stream.run()

    assert stream.sizes == [6, 4]
    assert sorted(stream.bodies) == numbered(10)
    stream.options["maxOffsetsPerTrigger"] = 1000
    stream.run()
    assert Counter(stream.bodies) - Counter(numbered(10)) == Counter(
        {
            "during batch 0": 4,
            "during batch 1": 4,
            "of a new topic": 1,
            "of a new queue": 1,
        }
    )


def test_queues_and_topics_that_appear_during_a_run_are_read_from_their_beginning(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.filled(3, queues=1)
    name = f"{topic}-new"
    # Starts at the end of present queues, but not of those that appear later.
    stream = Stream(spark, topics.cluster.namesrv, tmp_path, subscribePattern=f"{topic}.*")
    query = stream.start()
    try:
        query.processAllAvailable()
        topics.cluster.create_topic(topic, queues=2)
        topics.cluster.create_topic(name, queues=1)
        new_queue = MessageQueue(topic=topic, broker_name="broker-b", queue_id=1)
        topics.send_messages([Message(topic, "of a new queue")], queue=new_queue)
        topics.send(name, ["of a new topic"])
        query.processAllAvailable()
    finally:
        query.stop()

    assert sorted(stream.bodies) == ["of a new queue", "of a new topic"]


# --- lost messages --------------------------------------------------------------------------------


def test_rows_of_a_broker_that_was_away_are_read_when_it_is_back(
    spark: SparkSession, start_cluster: StartCluster, tmp_path: Path
) -> None:
    topics = start_cluster(brokers=2)
    topic = topics.filled(20, queues=1)
    options: dict[str, Any] = {"subscribe": topic, "startingOffsets": "earliest", "retries": 2}
    stream = Stream(spark, topics.cluster.namesrv, tmp_path, **options, retryIntervalMs=10)
    stream.run()
    topics.send(topic, [f"message {number}" for number in range(20, 40)])
    topics.cluster.faults.kill_broker("broker-b")

    stream.options["missingBrokers"] = "skip"
    stream.run()
    assert 20 < len(stream.bodies) < 40
    del stream.options["missingBrokers"]
    topics.cluster.faults.restart_broker("broker-b")
    stream.run()

    assert sorted(stream.bodies) == numbered(40)


def test_messages_deleted_before_they_were_read_fail_the_query_or_are_skipped(
    spark: SparkSession, start_cluster: StartCluster, tmp_path: Path
) -> None:
    topics = start_cluster(
        options={"mappedFileSizeCommitLog": str(64 << 10), "fileReservedTime": "0"}
    )
    topic = topics.filled(2, queues=1)
    stream = Stream(
        spark, topics.cluster.namesrv, tmp_path, subscribe=topic, startingOffsets="earliest"
    )
    stream.run()
    for number in range(10):
        topics.send(topic, [b"%d" % number + bytes(20_000)])
    topics.delete_oldest(topic, more_than=2)

    with pytest.raises(StreamingQueryException, match=rf"queue 0 of topic '{topic}'.*deleted"):
        stream.run()
    stream.options["failOnDataLoss"] = "false"
    stream.run()

    kept = [int(body.rstrip("\0")) for body in stream.bodies[2:]]
    assert 0 < len(kept) < 10
    assert kept == list(range(10))[-len(kept) :]


def test_a_topic_created_again_fails_the_query_or_is_read_from_its_beginning(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.filled(2, queues=1)
    stream = Stream(
        spark, topics.cluster.namesrv, tmp_path, subscribe=topic, startingOffsets="earliest"
    )
    stream.run()
    topics.create_again(topic, queues=1)
    # More than before in every queue, so that the old offsets exist.
    topics.send(topic, [f"new {number}" for number in range(8)])

    with pytest.raises(StreamingQueryException, match="deleted and created again"):
        stream.run()
    stream.options["failOnDataLoss"] = "false"
    stream.run()

    assert sorted(stream.bodies[2:]) == [f"new {number}" for number in range(8)]


# --- tasks ----------------------------------------------------------------------------------------


def fail_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() == 0:
        raise RuntimeError("the first try of a task fails on purpose")


def test_a_retried_task_reads_the_same(topics: Topics, stream_of: StreamOf) -> None:
    topic = topics.filled(12, queues=2)

    def failing(rows: DataFrame) -> DataFrame:
        rows = rows.select("body")
        return rows.mapInArrow(fail_at_first, rows.schema)

    stream = stream_of(topic, change=failing)

    stream.run()

    assert sorted(stream.bodies) == numbered(12)


# --- progress -------------------------------------------------------------------------------------


def test_progress_is_shown_by_the_group_and_never_read_from_it(
    topics: Topics, tmp_path: Path, stream_of: StreamOf
) -> None:
    topic, group = topics.filled(8, queues=1), f"spark-{tmp_path.name}"
    stream = stream_of(topic, group=group)
    stream.run()
    topics.send(topic, ["not read yet"] * 3)

    async def lag_and_reset() -> int:
        async with Admin(namesrv=topics.cluster.namesrv) as admin:
            lag = (await admin.groups.progress(group, topic=topic)).lag
            await admin.offsets.set(group, dict.fromkeys(topics.queues(topic), 0))
            return lag

    lag = asyncio.run(lag_and_reset())
    stream.run()

    assert lag == 3
    assert sorted(stream.bodies) == sorted([*numbered(8), *["not read yet"] * 3])


def test_the_listener_shows_the_lag_of_each_queue(
    spark: SparkSession, topics: Topics, stream_of: StreamOf
) -> None:
    topic = topics.filled(10, queues=1)
    reported: list[QueryLag] = []
    listener = LagListener(reported.append)

    def rows_left() -> dict[int, int]:
        """The lag after each batch; Spark may report other queries, too."""
        own = [lag for lag in reported if sorted(lag.queues) == topics.queues(topic)]
        return {lag.batch: lag.rows for lag in own}

    stream = stream_of(topic, maxOffsetsPerTrigger=4)

    spark.streams.addListener(listener)
    try:
        stream.run()
        wait_until(
            lambda: 0 in rows_left().values(),
            timeout_s=QUERY_TIMEOUT_S,
            what="Spark to tell of no lag",
        )
    finally:
        spark.streams.removeListener(listener)

    # Spark reports no lag for a batch that it repeats on a busy machine.
    assert rows_left().items() <= {0: 6, 1: 2, 2: 0}.items()
