"""The reader of a stream, called as Spark calls it."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from orbitmq.client import Admin, Message, MessageQueue, Producer, PullConsumer
from orbitmq.clock import ManualClock
from orbitmq.embedded import Cluster
from orbitmq.errors import BrokersMissingError, DataLossError, StreamOffsetsError
from orbitmq.spark.options.read_options import ReadOptions
from orbitmq.spark.reading.offsets import StreamOffset, read_stream_offset
from orbitmq.spark.reading.partitions import QueuePartition, QueueRange
from orbitmq.spark.reading.stream_reader import StreamReader
from orbitmq.spark.rows.schema import table_projection

ALL = ReadAllAvailable()
pickler: Any = cloudpickle
_numbers = itertools.count(1)


class Site:
    """A cluster with a new topic for each test."""

    def __init__(self, cluster: Cluster, producer: Producer) -> None:
        self.cluster = cluster
        self._producer = producer
        self._readers: list[StreamReader] = []
        self.topic = ""

    def new_topic(self, *, queues: int = 1) -> str:
        self.topic = f"topic-{next(_numbers)}"
        self.cluster.create_topic(self.topic, queues=queues)
        return self.topic

    def queue(self, number: int = 0) -> MessageQueue:
        return MessageQueue(topic=self.topic, broker_name="broker-a", queue_id=number)

    def send(self, count: int, *, queue: int = 0, body: bytes = b"a body") -> None:
        for _ in range(count):
            self._producer.send(Message(self.topic, body), queue=self.queue(queue))

    def skip_numbers(self) -> int:
        """Have the topic in memory, at a master that was promoted; returns its next number."""
        store = self.cluster._brokers["broker-a"]._broker.store
        store.keep_in_memory(self.topic)
        store.begin_reign(1, {*store.memory_topics})
        return store.end_of(self.topic, 0)

    def reader(self, clock: ManualClock | None = None, /, **options: str) -> StreamReader:
        subscribed = {"subscribe": self.topic}
        if options.keys() & {"subscribe", "subscribePattern", "assign"}:
            subscribed = {}
        given = {"namesrvAddr": self.cluster.namesrv, **subscribed, **options}
        read_options = ReadOptions.from_spark(given, streaming=True)
        made = StreamReader(read_options, table_projection(), clock=clock)
        self._readers.append(made)
        return made

    def stop_readers(self) -> None:
        for reader in self._readers:
            reader.stop()
        self._readers.clear()


@pytest.fixture(scope="module")
def shared() -> Iterator[Site]:
    with (
        Cluster(in_memory=True) as cluster,
        Producer(
            "stream-tests", namesrv=cluster.namesrv, send_timeout_ms=60_000, call_timeout_ms=60_000
        ) as producer,
    ):
        yield Site(cluster, producer)


@pytest.fixture
def site(shared: Site) -> Iterator[Site]:
    shared.new_topic()
    yield shared
    shared.stop_readers()


def rows_of(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[QueueRange]:
    """What the tasks of a batch read."""
    parts: list[QueueRange] = []
    for partition in reader.partitions(start, end):
        assert isinstance(partition, QueuePartition)
        parts += partition.ranges
    return parts


def test_the_start_of_a_stream_does_not_move_as_messages_arrive(site: Site) -> None:
    site.send(2)
    reader = site.reader()

    first = reader.initialOffset()
    site.send(1)

    assert reader.initialOffset() == first
    assert read_stream_offset(first).queues == {site.queue(): 2}


def test_a_first_batch_has_the_same_messages_after_the_driver_died(site: Site) -> None:
    killed = site.reader()
    start = killed.initialOffset()
    site.send(5)
    end = killed.latestOffset(start, ALL)

    site.send(5)
    reader = site.reader()
    later_start = reader.initialOffset()

    assert later_start != start
    assert rows_of(reader, later_start, end) == [QueueRange(site.queue(), 0, 5)]


def test_a_first_batch_without_messages_is_repeated_without_messages(site: Site) -> None:
    start = site.reader().initialOffset()
    end = site.reader().latestOffset(start, ALL)
    site.send(3)
    reader = site.reader()

    assert end == start
    assert rows_of(reader, reader.initialOffset(), end) == []
    following = reader.latestOffset(end, ALL)
    assert rows_of(reader, end, following) == [QueueRange(site.queue(), 0, 3)]


def test_a_batch_goes_from_the_end_of_the_last_one_to_the_ends_of_the_queues(site: Site) -> None:
    site.send(4)
    reader = site.reader(startingOffsets="earliest")
    start = reader.initialOffset()
    first = reader.latestOffset(start, ALL)
    site.send(2)

    second = reader.latestOffset(first, ALL)

    assert rows_of(reader, start, first) == [QueueRange(site.queue(), 0, 4)]
    assert rows_of(reader, first, second) == [QueueRange(site.queue(), 4, 6)]
    assert reader.latestOffset(second, ALL) is second
    assert rows_of(reader, second, second) == []


def test_the_reported_ends_are_those_that_the_batch_saw(site: Site) -> None:
    site.send(3)
    reader = site.reader(startingOffsets="earliest", maxOffsetsPerTrigger="1")
    assert reader.reportLatestOffset() is None

    reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    site.send(1)

    reported = reader.reportLatestOffset()
    assert reported is not None
    assert read_stream_offset(reported).queues == {site.queue(): 3}


def test_limits_are_kept_unless_spark_asks_for_everything(site: Site) -> None:
    site.send(9)
    reader = site.reader(startingOffsets="earliest", maxOffsetsPerTrigger="4")
    start = reader.initialOffset()

    limited = reader.latestOffset(start, reader.getDefaultReadLimit())
    everything = reader.latestOffset(start, ALL)

    assert rows_of(reader, start, limited) == [QueueRange(site.queue(), 0, 4)]
    assert rows_of(reader, start, everything) == [QueueRange(site.queue(), 0, 9)]


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ALL),
        ({"maxOffsetsPerTrigger": "4", "maxBytesPerTrigger": "99"}, ReadMaxRows(4)),
        ({"maxBytesPerTrigger": "99", "minOffsetsPerTrigger": "7"}, ReadMaxBytes(99)),
        ({"minOffsetsPerTrigger": "7"}, ReadMinRows(7)),
    ],
)
def test_one_of_the_limits_is_reported_to_spark(
    site: Site, options: dict[str, str], limit: object
) -> None:
    assert site.reader(**options).getDefaultReadLimit() == limit


def test_a_limit_does_not_count_numbers_that_a_promotion_skipped_in_memory(site: Site) -> None:
    reader = site.reader(failOnDataLoss="false", maxOffsetsPerTrigger="3")
    start = reader.initialOffset()
    first = site.skip_numbers()
    site.send(5)

    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    following = reader.latestOffset(end, reader.getDefaultReadLimit())

    assert rows_of(reader, start, end) == [QueueRange(site.queue(), first, first + 3)]
    assert rows_of(reader, end, following) == [QueueRange(site.queue(), first + 3, first + 5)]
    with pytest.raises(DataLossError, match="gone"):
        rows_of(site.reader(), start, end)


def test_a_limit_of_bytes_counts_stored_sizes(site: Site) -> None:
    site.send(20, body=b"x" * 900)
    reader = site.reader(startingOffsets="earliest", maxBytesPerTrigger="10000")
    start = reader.initialOffset()

    end = reader.latestOffset(start, reader.getDefaultReadLimit())

    # A record has more than its body: about 150 bytes here.
    (part,) = rows_of(reader, start, end)
    assert part.rows == 9


def test_a_small_batch_waits_until_its_time_is_over(site: Site) -> None:
    clock = ManualClock()
    site.send(1)
    reader = site.reader(
        clock,
        startingOffsets="earliest",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="5s",
    )
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    site.send(1)

    assert reader.latestOffset(first, limit) is first
    clock.adjust(5000)
    assert reader.latestOffset(first, limit) is first, "the time of day does not count"
    asyncio.run(clock.advance(5000))

    assert reader.latestOffset(first, limit) != first


def test_a_run_with_available_now_ends_where_the_queues_ended(site: Site) -> None:
    site.send(3)
    reader = site.reader(startingOffsets="earliest", minOffsetsPerTrigger="100")
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    site.send(3)
    site.cluster.create_topic(site.topic, queues=2)
    site.send(1, queue=1)

    end = reader.latestOffset(start, reader.getDefaultReadLimit())

    assert rows_of(reader, start, end) == [QueueRange(site.queue(), 0, 3)]
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) is end


def test_a_run_with_available_now_from_latest_reads_nothing(site: Site) -> None:
    site.send(3)
    reader = site.reader(startingOffsets="latest")
    reader.prepareForTriggerAvailableNow()
    site.send(2)

    start = reader.initialOffset()

    assert read_stream_offset(start).queues == {site.queue(): 3}
    assert reader.latestOffset(start, ALL) is start


def test_a_new_queue_is_read_from_its_beginning(site: Site) -> None:
    reader = site.reader()
    start = reader.initialOffset()
    site.cluster.create_topic(site.topic, queues=2)
    site.send(2, queue=1)

    end = reader.latestOffset(start, ALL)

    assert rows_of(reader, start, end) == [QueueRange(site.queue(1), 0, 2)]


def test_a_missing_queue_keeps_its_position(site: Site) -> None:
    site.send(2)
    reader = site.reader(startingOffsets="earliest", missingBrokers="skip")
    position = read_stream_offset(reader.latestOffset(reader.initialOffset(), ALL))
    away = MessageQueue(topic=site.topic, broker_name="broker-b", queue_id=0)
    start = StreamOffset(base={}, queues={**position.queues, away: 70}).to_json()
    site.send(1)

    end = reader.latestOffset(start, ALL)

    assert read_stream_offset(end).queues == {site.queue(): 3, away: 70}
    assert rows_of(reader, start, end) == [QueueRange(site.queue(), 2, 3)]


@pytest.fixture
def fragile() -> Iterator[Site]:
    """A cluster of two brokers that a test may damage."""
    with (
        Cluster(brokers=2, in_memory=True) as cluster,
        Producer(
            "stream-tests", namesrv=cluster.namesrv, send_timeout_ms=60_000, call_timeout_ms=60_000
        ) as producer,
    ):
        site = Site(cluster, producer)
        site.new_topic()
        yield site
        site.stop_readers()


PATIENT = {"retryIntervalMs": "1", "retries": "3"}


@pytest.mark.parametrize("by", ["subscribe", "assign"])
def test_queues_of_a_stopped_broker_keep_their_positions(
    fragile: Site, by: str, caplog: pytest.LogCaptureFixture
) -> None:
    fragile.send(2)
    asked = {"subscribe": fragile.topic}
    if by == "assign":
        asked = {"assign": json.dumps({fragile.topic: {"broker-a": [0], "broker-b": [0]}})}
    reader = fragile.reader(startingOffsets="earliest", missingBrokers="skip", **asked, **PATIENT)
    start = reader.latestOffset(reader.initialOffset(), ALL)
    fragile.cluster.faults.stop_broker("broker-b")
    fragile.send(1)

    end = reader.latestOffset(start, ALL)

    assert rows_of(reader, start, end) == [QueueRange(fragile.queue(), 2, 3)]
    assert "queue is missing, keeps its position: queue 0" in caplog.text
    fragile.cluster.faults.restart_broker("broker-b")
    assert reader.latestOffset(end, ALL) == end
    assert "queue is back: queue 0" in caplog.text


def test_a_topic_is_waited_for_while_no_broker_has_it(fragile: Site) -> None:
    fragile.send(2)
    reader = fragile.reader(startingOffsets="earliest", retryIntervalMs="10", retries="1000")
    start = reader.latestOffset(reader.initialOffset(), ALL)
    for name in ("broker-a", "broker-b"):
        fragile.cluster.faults.stop_broker(name)

    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(reader.latestOffset, start, ALL)
        for name in ("broker-a", "broker-b"):
            fragile.cluster.faults.restart_broker(name)

        assert asked.result(timeout=120) == start


def test_a_topic_that_does_not_come_back_ends_the_query(fragile: Site) -> None:
    reader = fragile.reader(**PATIENT)
    start = reader.initialOffset()
    for name in ("broker-a", "broker-b"):
        fragile.cluster.faults.stop_broker(name)

    with pytest.raises(BrokersMissingError, match=r"broker-a is not registered \(queue 0 of topic"):
        reader.latestOffset(start, ALL)


def test_a_planned_batch_of_lost_queues_fails_or_skips_them(
    fragile: Site, caplog: pytest.LogCaptureFixture
) -> None:
    fragile.cluster.create_topic(fragile.topic, queues=2)
    fragile.send(2)
    fragile.send(3, queue=1)
    planned = fragile.reader(startingOffsets="earliest")
    start = planned.initialOffset()
    end = planned.latestOffset(start, ALL)
    fragile.cluster.create_topic(fragile.topic, queues=1)

    strict, lenient = (
        fragile.reader(**PATIENT, failOnDataLoss=fails) for fails in ("true", "false")
    )
    with pytest.raises(DataLossError, match=r"messages 0 to 2 of queue 1 .* has fewer queues now"):
        strict.partitions(start, end)

    assert rows_of(lenient, start, end) == [QueueRange(fragile.queue(), 0, 2)]
    assert "messages 0 to 2 of queue 1" in caplog.text


def test_a_queue_that_ends_before_the_position_of_the_query_has_lost_messages(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.send(2)
    start = StreamOffset(base={}, queues={site.queue(): 70}).to_json()

    with pytest.raises(DataLossError, match="ends at 2, before the query's position 70"):
        site.reader().latestOffset(start, ALL)
    reader = site.reader(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        end = reader.latestOffset(start, ALL)

    assert read_stream_offset(end).queues == {site.queue(): 2}
    assert rows_of(reader, start, end) == []
    assert "ends at 2, before the query's position 70" in caplog.text


# --- a topic that was deleted and created again -----------------------------------------------


def created_again(site: Site, count: int) -> None:
    with Admin(namesrv=site.cluster.namesrv, call_timeout_ms=60_000) as admin:
        admin.topics.delete(site.topic)
    site.cluster.create_topic(site.topic, queues=1)
    site.send(count, body=b"of the second life")


@pytest.mark.parametrize("count", [1, 4, 10], ids=["fewer", "as many", "more"])
def test_a_topic_created_again_is_read_from_its_beginning_or_fails_the_query(
    site: Site, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    site.send(4)
    reader = site.reader(startingOffsets="earliest")
    position = reader.latestOffset(reader.initialOffset(), ALL)
    created_again(site, count)

    with pytest.raises(DataLossError, match=r"deleted and created again.*failOnDataLoss=false"):
        site.reader().latestOffset(position, ALL)
    lenient = site.reader(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        end = lenient.latestOffset(position, ALL)

    assert rows_of(lenient, position, end) == [QueueRange(site.queue(), 0, count)]
    assert "The query resumes at 0" in caplog.text
    # The next batches are ordinary ones.
    site.send(2)
    following = lenient.latestOffset(end, ALL)
    assert rows_of(lenient, end, following) == [QueueRange(site.queue(), count, count + 2)]


def test_a_repeated_batch_of_the_old_topic_does_not_read_the_new_one(site: Site) -> None:
    site.send(2)
    reader = site.reader(startingOffsets="earliest")
    start = reader.latestOffset(reader.initialOffset(), ALL)
    site.send(4)
    end = reader.latestOffset(start, ALL)
    created_again(site, 10)

    # The driver was killed before it read the batch.
    with pytest.raises(DataLossError, match=r"messages 2 to 5 .* deleted and created again"):
        site.reader().partitions(start, end)
    lenient = site.reader(failOnDataLoss="false")
    assert rows_of(lenient, start, end) == []
    following = lenient.latestOffset(end, ALL)

    assert rows_of(lenient, end, following) == [QueueRange(site.queue(), 0, 10)]


def test_a_query_that_starts_at_the_end_notices_a_topic_created_again(site: Site) -> None:
    site.send(4)
    reader = site.reader(startingOffsets="latest")
    start = reader.initialOffset()
    site.send(1)
    end = reader.latestOffset(start, ALL)
    created_again(site, 10)

    with pytest.raises(DataLossError, match="message 4 of queue 0"):
        reader.latestOffset(end, ALL)


def test_a_checkpoint_of_version_1_goes_on(site: Site) -> None:
    site.send(4)
    start = {"v": 1, "base": {}, "queues": {site.topic: {"broker-a": {"0": 2}}}}
    reader = site.reader()

    end = reader.latestOffset(start, ALL)

    assert rows_of(reader, start, end) == [QueueRange(site.queue(), 2, 4)]
    assert read_stream_offset(end).seen[site.queue()].offset == 3


def test_progress_is_copied_to_the_group(site: Site) -> None:
    site.send(3)
    group = f"group-of-{site.topic}"
    reader = site.reader(startingOffsets="earliest", group=group)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert committed(site, group) == 0

    reader.commit(end)

    assert committed(site, group) == 3


def test_progress_is_copied_when_the_next_batch_is_asked_for(site: Site) -> None:
    site.send(3)
    group = f"group-of-{site.topic}"
    reader = site.reader(startingOffsets="earliest", group=group)
    end = reader.latestOffset(reader.initialOffset(), ALL)

    reader.latestOffset(end, ALL)

    assert committed(site, group) == 3


def test_a_reader_travels_to_the_tasks_after_it_was_used(site: Site) -> None:
    site.send(2)
    reader = site.reader(startingOffsets="earliest")
    start = reader.initialOffset()
    partitions = reader.partitions(start, reader.latestOffset(start, ALL))

    (partition,) = partitions
    batches = list(pickler.loads(pickler.dumps(reader)).read(partition))

    assert sum(batch.num_rows for batch in batches) == 2


def test_offsets_that_are_not_ours_are_refused(site: Site) -> None:
    with pytest.raises(StreamOffsetsError):
        site.reader().latestOffset({"0": 5}, ALL)


def committed(site: Site, group: str) -> int | None:
    with PullConsumer(group, namesrv=site.cluster.namesrv, call_timeout_ms=60_000) as consumer:
        return consumer.committed(site.queue())


def test_a_query_of_a_release_with_other_columns_is_told_once_what_to_set(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.send(2)
    old = {"v": 1, "base": {}, "queues": {site.topic: {"broker-a": {"0": 1}}}}
    reader, other = site.reader(), site.reader(columns="all")

    for _ in range(2):
        reader.partitions(old, reader.latestOffset(old, ALL))
    other.latestOffset(old, ALL)

    (said,) = [line for line in caplog.messages if "columns=all" in line]
    assert "had 17 columns, and this one has 10" in said
