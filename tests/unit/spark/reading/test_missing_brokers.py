"""Reads while a broker is missing, on real servers: nothing is left out in silence."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from orbitmq.client import Admin, Message, Producer
from orbitmq.embedded import Cluster
from orbitmq.errors import BrokersMissingError, DataLossError, SettingsError
from orbitmq.spark.options.read_options import ReadOptions
from orbitmq.spark.reading.batch_reader import BatchReader
from orbitmq.spark.reading.offsets import read_stream_offset
from orbitmq.spark.reading.partitions import QueuePartition
from orbitmq.spark.reading.stream_reader import StreamReader
from orbitmq.spark.rows.schema import table_projection

ALL = ReadAllAvailable()
QUICK = {"retries": "2", "retryIntervalMs": "1"}
Rows = set[tuple[str, str, int]]


class Site:
    """Two brokers, each with messages of `orders` and of a topic of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.send(2)

    def send(self, count: int) -> None:
        """Send this many messages to each queue."""
        with Producer(
            "tests", namesrv=self.cluster.namesrv, send_timeout_ms=60_000, call_timeout_ms=60_000
        ) as producer:
            for queue in producer.queues("orders"):
                producer.send([Message("orders", b"a body") for _ in range(count)], queue=queue)

    def kill(self) -> None:
        self.cluster.faults.kill_broker("broker-b")

    def options(self, **given: str) -> dict[str, str]:
        forms = {"subscribe", "subscribePattern", "assign"}
        chosen = {} if given.keys() & forms else {"subscribe": "orders"}
        return {"namesrvAddr": self.cluster.namesrv, **chosen, **QUICK, **given}

    def batch(self, **given: str) -> Rows:
        """What the tasks of a batch read: topic, broker and queue."""
        options = ReadOptions.from_spark(self.options(**given))
        return rows_of(BatchReader(options, table_projection()).partitions())

    def stream(self, **given: str) -> StreamReader:
        given = {"startingOffsets": "earliest", **given}
        options = ReadOptions.from_spark(self.options(**given), streaming=True)
        return StreamReader(options, table_projection())


def rows_of(partitions: Any) -> Rows:
    found: Rows = set()
    for partition in partitions:
        assert isinstance(partition, QueuePartition)
        found |= {
            (part.queue.topic, part.queue.broker_name, part.queue.queue_id)
            for part in partition.ranges
            if part.rows
        }
    return found


def queues(*brokers: str, topic: str = "orders") -> Rows:
    return {(topic, broker, number) for broker in brokers for number in range(2)}


@pytest.fixture
def site() -> Iterator[Site]:
    with Cluster(brokers=2, in_memory=True) as cluster:
        cluster.create_topic("orders", queues=2)
        yield Site(cluster)


def test_a_batch_without_a_killed_broker_fails_and_names_what_is_missing(site: Site) -> None:
    assert site.batch() == queues("broker-a", "broker-b")
    site.kill()

    with pytest.raises(BrokersMissingError) as failed:
        site.batch(failOnDataLoss="false")

    assert failed.value.broker_names == ("broker-b",)
    assert "broker-b is missing since 20" in str(failed.value)
    assert "(queues 0, 1 of topic 'orders')" in str(failed.value)
    assert "missingBrokers" in failed.value.hint
    assert "orbitmq cluster forget broker-b" in failed.value.hint


def test_skip_reads_without_the_broker_and_says_so(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.kill()

    with caplog.at_level(logging.WARNING):
        assert site.batch(missingBrokers="skip") == queues("broker-a")

    assert "by missingBrokers=skip: broker-b is missing since" in caplog.text
    assert "queues 0, 1 of topic 'orders'" in caplog.text


def offsets_of(*brokers: str, offset: int = 1) -> str:
    """The option that names each queue of `orders` on these brokers."""
    return json.dumps({"orders": {broker: {"0": offset, "1": offset} for broker in brokers}})


@pytest.mark.parametrize(
    "name",
    ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"],
)
def test_offsets_of_a_skipped_broker_are_skipped_and_named(
    site: Site, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    offset = 2**42 if name == "endingOffsetsByTimestamp" else 1
    site.kill()
    given = {name: offsets_of("broker-a", "broker-b", offset=offset)}

    with caplog.at_level(logging.WARNING):
        assert site.batch(**given, missingBrokers="skip") == queues("broker-a")

    assert f"{name} names queue 1 of topic 'orders' on broker 'broker-b', and" in caplog.text
    with pytest.raises(BrokersMissingError):
        site.batch(**given)
    with pytest.raises(SettingsError, match="names queue 7 of topic 'orders' on broker 'broker-a'"):
        site.batch(
            **{name: json.dumps({"orders": {"broker-a": {"0": 1, "1": 1, "7": 1}}})},
            missingBrokers="skip",
        )


def test_a_stream_reads_a_skipped_broker_from_its_offset_once_it_is_back(site: Site) -> None:
    site.kill()
    reader = site.stream(
        missingBrokers="skip", startingOffsets=offsets_of("broker-a", "broker-b", offset=1)
    )
    first = reader.latestOffset(reader.initialOffset(), ALL)
    site.cluster.faults.restart_broker("broker-b")

    found: dict[str, int] = {}
    for part in reader.partitions(first, reader.latestOffset(first, ALL)):
        assert isinstance(part, QueuePartition)
        found |= {one.queue.broker_name: one.start for one in part.ranges if one.rows}
    reader.stop()

    assert found == {"broker-b": 1}


def test_wait_reads_everything_once_the_broker_is_back(site: Site) -> None:
    site.kill()

    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(
            site.batch, missingBrokers="wait", maxBrokerWait="60s", retries="0"
        )
        site.cluster.faults.restart_broker("broker-b")

        assert reading.result(timeout=60) == queues("broker-a", "broker-b")


def test_wait_ends_after_its_longest_time(site: Site) -> None:
    site.kill()

    with pytest.raises(BrokersMissingError, match="broker-b is missing since"):
        site.batch(missingBrokers="wait", maxBrokerWait="1ms")


def test_queues_that_are_named_decide_which_brokers_are_needed(site: Site) -> None:
    site.kill()
    only_a, both, misspelt = (
        json.dumps({"orders": {name: [0] for name in names}})
        for names in (["broker-a"], ["broker-a", "broker-b"], ["broker-a", "broker-x"])
    )

    assert site.batch(assign=only_a) == {("orders", "broker-a", 0)}
    with pytest.raises(BrokersMissingError, match=r"broker-b is missing .* \(queue 0 of topic"):
        site.batch(assign=both)
    assert site.batch(assign=both, missingBrokers="skip") == {("orders", "broker-a", 0)}
    with pytest.raises(BrokersMissingError, match="broker-x is not registered"):
        site.batch(assign=misspelt)
    with pytest.raises(SettingsError, match="which does not exist"):
        site.batch(assign=json.dumps({"orders": {"broker-a": [9]}}))


def test_a_pattern_sees_topics_that_only_the_missing_broker_has(site: Site) -> None:
    with Admin(namesrv=site.cluster.namesrv) as admin:
        admin.topics.create("orders-of-b", queues=2, broker="broker-b")
    site.kill()

    with pytest.raises(BrokersMissingError, match="of topic 'orders-of-b'"):
        site.batch(subscribePattern="orders-.*")
    assert site.batch(subscribePattern="orders.*", missingBrokers="skip") == queues("broker-a")


def test_a_broker_that_is_forgotten_is_not_waited_for(site: Site) -> None:
    site.kill()
    with Admin(namesrv=site.cluster.namesrv) as admin:
        admin.brokers.forget("broker-b")

    assert site.batch() == queues("broker-a")


def test_a_stream_fails_for_a_missing_broker_and_loses_nothing_when_it_is_back(site: Site) -> None:
    reader = site.stream()
    start = reader.latestOffset(reader.initialOffset(), ALL)
    site.kill()
    site.send(1)
    with pytest.raises(BrokersMissingError, match="broker-b is missing since"):
        reader.latestOffset(start, ALL)
    reader.stop()
    site.cluster.faults.restart_broker("broker-b")
    site.send(1)

    again = site.stream()
    end = again.latestOffset(start, ALL)

    assert rows_of(again.partitions(start, end)) == queues("broker-a", "broker-b")
    read = {queue.broker_name: offset for queue, offset in read_stream_offset(end).queues.items()}
    assert read == {"broker-a": 4, "broker-b": 3}
    again.stop()


def test_positions_of_topics_that_a_stream_no_longer_reads_need_no_broker(site: Site) -> None:
    with Admin(namesrv=site.cluster.namesrv) as admin:
        admin.topics.create("lines", queues=2, broker="broker-a")
    reader = site.stream(subscribe="orders,lines")
    start = reader.initialOffset()
    reader.stop()
    site.kill()

    narrowed = site.stream(subscribe="lines")
    assert len(read_stream_offset(narrowed.latestOffset(start, ALL)).queues) == 6
    narrowed.stop()


def test_a_run_of_all_that_is_available_misses_the_queues_of_its_checkpoint(site: Site) -> None:
    reader = site.stream()
    start = reader.latestOffset(reader.initialOffset(), ALL)
    reader.stop()
    # Unregistered: only the checkpoint knows that it was there.
    site.cluster.faults.stop_broker("broker-b")
    site.send(1)

    strict = site.stream()
    strict.prepareForTriggerAvailableNow()
    with pytest.raises(BrokersMissingError, match="broker-b is not registered"):
        strict.latestOffset(start, ALL)
    strict.stop()
    patient = site.stream(missingBrokers="wait", maxBrokerWait="60s")
    patient.prepareForTriggerAvailableNow()
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(patient.latestOffset, start, ALL)
        site.cluster.faults.restart_broker("broker-b")
        end = asked.result(timeout=60)

    assert rows_of(patient.partitions(start, end)) == queues("broker-a")
    assert len(read_stream_offset(end).queues) == 4
    patient.stop()


def test_a_planned_batch_is_not_read_in_part(site: Site) -> None:
    planned = site.stream()
    start = planned.initialOffset()
    end = planned.latestOffset(start, ALL)
    planned.stop()
    site.kill()

    for given in ({"failOnDataLoss": "false"}, {"missingBrokers": "wait", "maxBrokerWait": "1ms"}):
        strict = site.stream(**given)
        with pytest.raises(BrokersMissingError):
            strict.partitions(start, end)
        strict.stop()
    lossy = site.stream(missingBrokers="skip")
    with pytest.raises(DataLossError, match="of queue 0 of topic 'orders' on broker 'broker-b'"):
        lossy.partitions(start, end)
    lossy.stop()
