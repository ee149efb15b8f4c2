"""Spark with an official RocketMQ broker: what works with ours works with it."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable

from orbitmq.client import Admin as BlockingAdmin
from orbitmq.client import Message, Producer
from orbitmq.client.aio.admin import Admin
from orbitmq.errors import DataLossError, RemoteError
from orbitmq.spark.options.read_options import ReadOptions
from orbitmq.spark.reading.offsets import nested, read_stream_offset
from orbitmq.spark.reading.stream_reader import StreamReader
from orbitmq.spark.rows.schema import table_projection
from tests.interop.conftest import new_folder
from tests.interop.official import CLUSTER, OfficialBroker, OfficialNameServer
from tests.interop.peers import REFERENCE_LINE
from tests.interop.timeouts import CLIENT_TIMEOUT_S
from tests.spark.streams import Stream
from tests.spark.topics import PATIENCE_MS
from tests.waiting import until_reached

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["new_folder"]

pytestmark = pytest.mark.interop

_numbers = itertools.count(1)


class OfficialCluster:
    """An official name server and broker, and a producer that fills topics of theirs."""

    def __init__(self, namesrv: str, producer: Producer) -> None:
        self.namesrv = namesrv
        self.producer = producer

    def create_topic(self, *, queues: int = 2) -> str:
        """Create a topic that no other test uses."""
        name = f"spark-{next(_numbers)}"

        async def create() -> None:
            async with Admin(namesrv=self.namesrv) as admin:
                await admin.topics.create(name, cluster=CLUSTER, queues=queues)

        asyncio.run(create())
        return name

    def wait_for(self, topic: str, messages: int) -> None:
        """Return once this many messages are visible: RocketMQ shows them after a delay."""
        with BlockingAdmin(namesrv=self.namesrv) as admin:

            def all_shown() -> bool:
                bounds = admin.topics.bounds(topic).values()
                return sum(queue.max_offset for queue in bounds) == messages

            asyncio.run(
                until_reached(
                    all_shown, timeout_s=CLIENT_TIMEOUT_S, what=f"{messages} messages in {topic}"
                )
            )


@pytest.fixture(scope="module")
def official(new_folder: Callable[[str], Path]) -> Iterator[OfficialCluster]:
    """A cluster of the release line of RocketMQ's current clients."""
    server = OfficialNameServer(REFERENCE_LINE, new_folder("name server for spark"))
    broker = OfficialBroker(
        REFERENCE_LINE,
        "broker-official",
        new_folder("broker for spark"),
        [server.address],
        {"enablePropertyFilter": "true"},
    )
    try:
        server.process.start()
        server.wait_ready()
        broker.process.start()
        broker.wait_ready()
        with Producer(
            "spark-tests",
            namesrv=server.address,
            compress_above_bytes=4096,
            send_timeout_ms=PATIENCE_MS,
        ) as producer:
            yield OfficialCluster(server.address, producer)
    finally:
        broker.process.kill()
        server.process.kill()


def read(spark: SparkSession, cluster: OfficialCluster, topic: str, **options: object) -> DataFrame:
    given = {"namesrvAddr": cluster.namesrv, "subscribe": topic, **options}
    return spark.read.format("rocketmq").options(**given).load()  # type: ignore[arg-type]


# --- batch read -----------------------------------------------------------------------------------


def test_a_topic_of_an_official_broker_is_a_table(
    spark: SparkSession, official: OfficialCluster
) -> None:
    topic = official.create_topic()
    queues = sorted(official.producer.queues(topic))
    for place, queue in enumerate(queues):
        messages = [
            Message(
                topic,
                f"{place}/{number}",
                tags=["red", "blue"][number % 2],
                properties={"price": f"{number}"},
            )
            for number in range(300)
        ]
        for start in range(0, 300, 100):
            official.producer.send(messages[start : start + 100], queue=queue)
        official.producer.send(Message(topic, b"packed " * 2000), queue=queue)
    official.wait_for(topic, 2 * 301)

    rows = read(spark, official, topic).collect()

    expected = {
        (place, number): f"{place}/{number}".encode() for place in (0, 1) for number in range(300)
    } | {(place, 300): b"packed " * 2000 for place in (0, 1)}
    assert {(row.queueId, row.queueOffset): bytes(row.body) for row in rows} == expected
    assert len(rows) == len(expected)
    assert {row.brokerName for row in rows} == {"broker-official"}
    assert read(spark, official, topic, tags="red").count() == 300
    assert read(spark, official, topic, sql="price >= 290").count() == 20
    begin, end = {queues[0]: 290, queues[1]: -2}, {queues[0]: -1, queues[1]: 5}
    part = read(
        spark,
        official,
        topic,
        startingOffsets=json.dumps(nested(begin)),
        endingOffsets=json.dumps(nested(end)),
    )
    assert part.count() == 11 + 5
    last_ms = max(int(row.storeTimestamp.timestamp() * 1000) for row in rows)
    assert read(spark, official, topic, endingTimestamp=last_ms + 1).count() == len(rows)
    assert read(spark, official, topic, startingTimestamp=0).count() == len(rows)
    slim = read(spark, official, topic, columns="tags, queueOffset").collect()
    assert sorted(row.queueOffset for row in slim) == sorted(row.queueOffset for row in rows)


# --- write ----------------------------------------------------------------------------------------


def test_rows_are_written_to_an_official_broker(
    spark: SparkSession, official: OfficialCluster
) -> None:
    topic = official.create_topic()
    rows = spark.range(0, 5_000, 1, 2).selectExpr(
        "CAST(id AS STRING) AS body",
        "ARRAY(CONCAT('key-', id), 'all') AS keys",
        "IF(id % 2 = 0, 'even', NULL) AS tags",
        "CAST(id AS INT) AS flag",
        "MAP('colour', CONCAT('röd-', id)) AS properties",
        "IF(id < 1000, CONCAT('customer-', id % 5), NULL) AS shardingKey",
        "IF(id = 4999, 18, 0) AS delayLevel",
    )

    (
        rows.write.format("rocketmq")
        .mode("append")
        .options(namesrvAddr=official.namesrv, topic=topic, sendTimeoutMs=PATIENCE_MS)
        .save()
    )
    # The last one is delayed for two hours.
    official.wait_for(topic, 4_999)

    written = sorted(
        read(spark, official, topic, columns="all", properties="map").collect(),
        key=lambda row: int(row.body),
    )
    assert [int(row.body) for row in written] == list(range(4_999))
    for number, row in enumerate(written):
        assert row.keys == f"key-{number} all"
        assert row.tags == ("even" if number % 2 == 0 else None)
        assert row.flag == number
        assert row.properties["colour"] == f"röd-{number}"
        assert row.properties["SPARK_ROW"].endswith(f"/0/{number // 2500}/0/{number % 2500}")
    for customer in range(5):
        of_key = [row for row in written[:1000] if int(row.body) % 5 == customer]
        assert len({row.queueId for row in of_key}) == 1
        in_queue = sorted(of_key, key=lambda row: row.queueOffset)
        assert [int(row.body) for row in in_queue] == list(range(customer, 1000, 5))


def test_an_official_broker_cannot_write_exactly_once_and_the_error_says_so(
    spark: SparkSession, official: OfficialCluster
) -> None:
    topic = official.create_topic()
    writer = (
        spark.createDataFrame([("a",)], "body STRING")
        .write.format("rocketmq")
        .mode("append")
        .options(namesrvAddr=official.namesrv, topic=topic)
        .options(delivery="exactlyOnce", writeId="load-1")
    )

    with pytest.raises(PySparkException, match=r"(?i)could not write row 0 .*OrbitMQ"):
        writer.save()
    assert read(spark, official, topic).count() == 0


# --- streams --------------------------------------------------------------------------------------


def test_a_topic_of_an_official_broker_is_a_stream(
    spark: SparkSession, official: OfficialCluster, tmp_path: Path
) -> None:
    topic, group = official.create_topic(), f"stream-{tmp_path.name}"
    first, second = sorted(official.producer.queues(topic))
    official.producer.send([Message(topic, f"{number}") for number in range(18)], queue=first)
    official.producer.send([Message(topic, f"{number}") for number in range(18, 20)], queue=second)
    official.wait_for(topic, 20)
    stream = Stream(
        spark,
        official.namesrv,
        tmp_path,
        subscribe=topic,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=8,
        maxBytesPerTrigger=1_000_000,
        group=group,
    )

    async def lag() -> int:
        async with Admin(namesrv=official.namesrv) as admin:
            return (await admin.groups.progress(group, topic=topic)).lag

    stream.run()
    official.producer.send([Message(topic, "later")] * 3, queue=second)
    official.wait_for(topic, 23)
    left = asyncio.run(lag())
    stream.run()

    assert stream.sizes == [8, 8, 4, 3]
    assert sorted(stream.bodies) == sorted([*map(str, range(20)), *["later"] * 3])
    assert left == 3


def test_a_topic_created_again_at_an_official_broker_is_noticed(official: OfficialCluster) -> None:
    topic = official.create_topic(queues=1)
    (queue,) = official.producer.queues(topic)
    given = {"namesrvAddr": official.namesrv, "subscribe": topic, "startingOffsets": "earliest"}

    def reader(**more: str) -> StreamReader:
        options = ReadOptions.from_spark({**given, **more}, streaming=True)
        return StreamReader(options, table_projection())

    official.producer.send([Message(topic, "old")] * 4, queue=queue)
    official.wait_for(topic, 4)
    first = reader()
    position = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    with BlockingAdmin(namesrv=official.namesrv) as admin:
        # A broker of this line without timers deletes the topic, and then fails on their metrics.
        with pytest.raises(RemoteError, match="getTimerMetrics"):
            admin.topics.delete(topic)
        admin.topics.create(topic, cluster=CLUSTER, queues=1)
    official.producer.send([Message(topic, "new")] * 10, queue=queue)
    official.wait_for(topic, 10)

    strict, lenient = reader(), reader(failOnDataLoss="false")
    with pytest.raises(DataLossError, match="deleted and created again"):
        strict.latestOffset(position, ReadAllAvailable())
    end = lenient.latestOffset(position, ReadAllAvailable())

    assert [(part.start, part.end) for part in read_stream_offset(end).ranges()] == [(0, 10)]
    for each in (first, strict, lenient):
        each.stop()
