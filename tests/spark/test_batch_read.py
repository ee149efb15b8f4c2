"""Topics as tables: batches, with a real Spark and real brokers."""

from __future__ import annotations

import datetime
import json
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from orbitmq.client import Message, MessageQueue
from orbitmq.spark.options.column_names import COLUMN_NAMES, USUAL_COLUMNS
from orbitmq.spark.reading.offsets import Offsets, nested
from tests.spark.conftest import StartCluster
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
QUEUES, PER_QUEUE = 8, 50


@pytest.fixture(scope="module")
def topic(topics: Topics) -> str:
    """Fifty messages in each of eight queues, with tags, keys and prices."""
    name = topics.create(queues=4)
    for place, queue in enumerate(topics.queues(name)):
        topics.send_messages(
            (
                Message(
                    name,
                    f"{place}/{number}",
                    tags=["red", "blue"][number % 2],
                    keys=f"key-{number}",
                    properties={"price": f"{number}"},
                )
                for number in range(PER_QUEUE)
            ),
            queue=queue,
        )
    return name


Read = Callable[..., "DataFrame"]


@pytest.fixture
def read(spark: SparkSession, topics: Topics) -> Read:
    """Reads topics of the shared cluster; `subscribe` is the first argument."""

    def made(
        topic: str | None = None, *, schema: str | None = None, **options: object
    ) -> DataFrame:
        given = {"namesrvAddr": topics.cluster.namesrv, "retryIntervalMs": 10, **options}
        if topic is not None:
            given["subscribe"] = topic
        reading = spark.read.format("rocketmq").options(**given)  # type: ignore[arg-type]
        return (reading.schema(schema) if schema else reading).load()

    return made


@contextmanager
def pushdown(spark: SparkSession, state: str) -> Iterator[None]:
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, state)
    try:
        yield
    finally:
        spark.conf.set(PUSHDOWN, str(before))


def bodies(frame: DataFrame) -> list[str]:
    return sorted(bytes(row.body).decode() for row in frame.select("body").collect())


def numbers(offsets: Offsets) -> str:
    return json.dumps(nested(offsets))


# --- all of it ------------------------------------------------------------------------------------


def test_a_topic_is_a_table(read: Read, topic: str, topics: Topics) -> None:
    frame = read(topic)

    assert frame.columns == list(USUAL_COLUMNS)
    assert bodies(frame) == sorted(f"{q}/{n}" for q in range(QUEUES) for n in range(PER_QUEUE))
    row = frame.filter("body = CAST('3/7' AS BINARY)").collect()[0]
    queue = topics.queues(topic)[3]
    (message,) = [m for m in topics.messages(topic) if m.body == b"3/7"]
    assert (row.topic, row.brokerName, row.queueId) == (topic, queue.broker_name, queue.queue_id)
    assert (row.queueOffset, row.keys, row.tags) == (7, "key-7", "blue")
    assert row.msgId == message.message_id
    assert row.storeTimestamp == datetime.datetime.fromtimestamp(
        message.store_ms / 1000, datetime.UTC
    ).replace(tzinfo=None)
    assert "price\x017\x02" in row.properties


def test_several_topics_are_one_table(read: Read, topics: Topics) -> None:
    one, other = topics.filled(5, queues=1), topics.filled(7, queues=1)

    counts = read(f"{one},{other}").groupBy("topic").count().collect()

    assert {row.topic: row["count"] for row in counts} == {one: 5, other: 7}
    assert read(subscribePattern=f"{one}|{other}|no-topic").count() == 12


def test_queues_can_be_assigned(read: Read, topic: str, topics: Topics) -> None:
    queue = topics.queues(topic)[2]
    assigned = json.dumps({topic: {queue.broker_name: [queue.queue_id]}})

    assert bodies(read(assign=assigned)) == sorted(f"2/{n}" for n in range(PER_QUEUE))


def test_an_empty_topic_has_no_rows(read: Read, topics: Topics) -> None:
    assert read(topics.create()).collect() == []


# --- which columns --------------------------------------------------------------------------------


def test_a_schema_chooses_columns_and_their_order(read: Read, topic: str) -> None:
    frame = read(topic, schema="queueoffset BIGINT, topic STRING")

    assert frame.columns == ["queueoffset", "topic"], "as the user spells them"
    assert frame.distinct().count() == PER_QUEUE


def test_columns_are_named_without_types(read: Read, topic: str) -> None:
    frame = read(topic, columns="queueOffset, Tags", tags="red")

    assert frame.dtypes == [("queueOffset", "bigint"), ("tags", "string")]
    assert sorted(frame.distinct().collect()) == [(n, "red") for n in range(0, PER_QUEUE, 2)]
    assert read(topic, columns="all").columns == list(COLUMN_NAMES)


def test_properties_are_text_or_a_map_or_left_out(read: Read, topic: str) -> None:
    as_map = read(topic, properties="map").filter("queueOffset = 7")
    without = read(topic, properties="none", includeBody=False)

    assert {row.properties["price"] for row in as_map.collect()} == {"7"}
    assert set(USUAL_COLUMNS) - set(without.columns) == {"properties", "body"}
    assert without.count() == QUEUES * PER_QUEUE


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("offset BIGINT, colour STRING", "did you mean queueOffset"),
        ("topic STRING, queueId STRING", "column 'queueId' cannot be STRING"),
    ],
)
def test_a_schema_of_other_columns_is_refused(
    read: Read, topic: str, schema: str, message: str
) -> None:
    with pytest.raises(AnalysisException, match=message):
        read(topic, schema=schema).collect()


# --- from where to where --------------------------------------------------------------------------


def test_offsets_set_the_start_and_end(read: Read, topic: str, topics: Topics) -> None:
    first, second, *others = topics.queues(topic)
    start = {first: 10, second: -2, **dict.fromkeys(others, PER_QUEUE)}
    end = {first: 12, second: 1, **dict.fromkeys(others, -1)}

    frame = read(topic, startingOffsets=numbers(start), endingOffsets=numbers(end))

    assert bodies(frame) == ["0/10", "0/11", "1/0"]
    assert read(topic, startingOffsets="earliest", endingOffsets="latest").count() == 400


def test_times_set_the_start_and_end(read: Read, start_cluster: StartCluster) -> None:
    topics = start_cluster()
    namesrv = topics.cluster.namesrv
    name = topics.create(queues=2)
    topics.send(name, ["a", "b"])
    topics.cluster.advance(seconds=3600)
    topics.send(name, ["c", "d"])
    messages = {bytes(m.body).decode(): m for m in topics.messages(name)}
    begin = min(messages[body].store_ms for body in "cd")
    queues = topics.queues(name)
    each = numbers(dict.fromkeys(queues, begin))

    def read_here(**options: object) -> DataFrame:
        return read(name, **{"namesrvAddr": namesrv, **options})

    assert bodies(read_here(startingTimestamp=begin)) == ["c", "d"]
    assert bodies(read_here(endingTimestamp=begin)) == ["a", "b"]
    assert bodies(read_here(startingOffsetsByTimestamp=each)) == ["c", "d"]
    assert bodies(read_here(endingOffsetsByTimestamp=each)) == ["a", "b"]
    later = begin + 10**9
    with pytest.raises(AnalysisException, match=r"has no message stored at .*and 1 more have none"):
        read_here(startingTimestamp=later).collect()
    at_end = read_here(startingTimestamp=later, startingOffsetsByTimestampStrategy="latest")
    assert at_end.collect() == []


# --- partitions -----------------------------------------------------------------------------------


def test_the_number_of_tasks_can_be_set(read: Read, topic: str) -> None:
    assert read(topic, minPartitions=11).rdd.getNumPartitions() == 11
    assert read(topic, maxRecordsPerPartition=30).rdd.getNumPartitions() == 14
    frame = read(topic, minPartitions=11)
    assert bodies(frame) == bodies(read(topic))


# --- filters --------------------------------------------------------------------------------------


def test_the_broker_filters_by_tags_and_conditions(read: Read, topic: str) -> None:
    assert read(topic, tags="red").count() == 200
    assert read(topic, tags="red || blue").count() == 400
    assert read(topic, tags="none").collect() == []
    assert bodies(read(topic, sql="price > 48")) == sorted(f"{q}/49" for q in range(QUEUES))
    assert read(topic, tags="red", schema="body BINARY").count() == 200


@pytest.mark.parametrize("state", ["true", "false"])
def test_one_dataframe_serves_several_queries_with_or_without_pushed_filters(
    spark: SparkSession, read: Read, topic: str, state: str
) -> None:
    with pushdown(spark, state):
        frame = read(topic, schema="queueId INT, queueOffset BIGINT, tags STRING")

        assert frame.filter("queueId = 1 AND queueOffset < 5 AND tags = 'red'").count() == 6
        assert frame.count() == 400, "Spark may not keep what the filters left"
        both = frame.filter("queueOffset = 3").union(frame.filter("queueId = 0 AND tags = 'blue'"))
        assert both.count() == 8 + 50


@pytest.mark.parametrize("state", ["true", "false"])
def test_filters_that_make_reads_smaller_change_no_rows(
    spark: SparkSession, read: Read, topic: str, state: str
) -> None:
    columns = "topic STRING, queueId INT, queueOffset BIGINT, tags STRING"
    with pushdown(spark, state):
        for condition, count in {
            "queueId IN (0, 1) AND queueOffset > 10 AND queueOffset <= 12": 8,
            "tags = 'blue' AND queueOffset >= 48": 8,
            f"topic = '{topic}' AND queueOffset = 3 OR tags = 'red'": 208,
        }.items():
            frame = read(topic, schema=columns, pushFilters=True, minPartitions=40)
            left = frame.filter(condition)
            assert left.count() == count
            if "queueId" in condition:
                # Two rows in each of two queues of two brokers, or all rows.
                assert left.rdd.getNumPartitions() == (8 if state == "true" else 40)


@pytest.mark.parametrize("state", ["true", "false"])
def test_filters_on_time_keep_every_row_they_should(
    spark: SparkSession, read: Read, start_cluster: StartCluster, state: str
) -> None:
    topics = start_cluster()
    name = topics.create(queues=2)
    for number in range(4):
        topics.send(name, [f"{number}/0", f"{number}/1"])
        topics.cluster.advance(seconds=60)
    namesrv = topics.cluster.namesrv
    stored = {bytes(m.body).decode(): m.store_ms for m in topics.messages(name)}
    limit_ms = stored["2/0"]
    limit = datetime.datetime.fromtimestamp(limit_ms / 1000, datetime.UTC)
    text = f"TIMESTAMP '{limit.isoformat(sep=' ')}'"
    with pushdown(spark, state):
        for sign, holds in {">=": operator.ge, "<": operator.lt, "=": operator.eq}.items():
            frame = read(name, namesrvAddr=namesrv, pushFilters=True)
            expected = sorted(body for body, at in stored.items() if holds(at, limit_ms))
            assert bodies(frame.filter(f"storeTimestamp {sign} {text}")) == expected


# --- lost messages --------------------------------------------------------------------------------


def shortened(start_cluster: StartCluster) -> tuple[Topics, str, MessageQueue, int]:
    """A queue that has lost its first messages; returns the first one left."""
    topics = start_cluster(options={"mappedFileSizeCommitLog": "65536", "fileReservedTime": "0"})
    name = topics.create(queues=1)
    (queue,) = topics.queues(name)
    for start in range(0, 200, 20):
        topics.send(name, [f"{number}".ljust(1000) for number in range(start, start + 20)])
    first = topics.delete_oldest(name, more_than=3)
    assert first < 200
    return topics, name, queue, first


def test_lost_messages_are_an_error_or_left_out(read: Read, start_cluster: StartCluster) -> None:
    topics, name, queue, first = shortened(start_cluster)
    given = {"namesrvAddr": topics.cluster.namesrv, "startingOffsets": numbers({queue: 3})}

    with pytest.raises(AnalysisException, match=rf"messages 3 to {first - 1} of queue 0 of topic"):
        read(name, **given).collect()
    assert read(name, **given, failOnDataLoss=False).count() == 200 - first
    assert read(name, namesrvAddr=topics.cluster.namesrv).count() == 200 - first


def test_messages_deleted_during_a_read_fail_the_task(
    read: Read, start_cluster: StartCluster
) -> None:
    topics = start_cluster(options={"mappedFileSizeCommitLog": "65536", "fileReservedTime": "0"})
    name = topics.create(queues=1)
    for start in range(0, 200, 20):
        topics.send(name, [f"{number}".ljust(1000) for number in range(start, start + 20)])
    planned = [
        read(name, namesrvAddr=topics.cluster.namesrv, failOnDataLoss=fail).rdd
        for fail in (True, False)
    ]
    for frame in planned:
        assert frame.getNumPartitions() == 1, "planned before messages go"
    first = topics.delete_oldest(name, more_than=0)

    with pytest.raises(Exception, match=rf"messages 0 to {first - 1} of queue 0 of topic"):
        planned[0].count()
    assert planned[1].count() == 200 - first


# --- bad input ------------------------------------------------------------------------------------


def test_an_error_about_a_missing_topic_suggests_the_nearest(read: Read, topics: Topics) -> None:
    topics.cluster.create_topic("invoices")

    with pytest.raises(AnalysisException, match=r"no topic 'invoicez' \(did you mean invoices\?"):
        read("invoicez").collect()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"kafka.bootstrap.servers": "x:1"}, "did you mean namesrvAddr"),
        ({"includeBody": "perhaps"}, "includeBody cannot be 'perhaps'"),
        (
            {"startingOffsets": "earliest", "startingTimestamp": "5"},
            "startingOffsets and startingTimestamp are given together",
        ),
        ({"subscribePattern": "x"}, "subscribe and subscribePattern are given together"),
    ],
)
def test_wrong_options_are_an_error_when_the_table_is_loaded(
    read: Read, topic: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(AnalysisException, match=message):
        read(topic, **options)


def test_offsets_that_a_queue_does_not_have_are_refused(
    read: Read, topic: str, topics: Topics
) -> None:
    queues = topics.queues(topic)

    with pytest.raises(AnalysisException, match=r"endingOffsets is 51 for queue 0 of topic"):
        read(topic, endingOffsets=numbers(dict.fromkeys(queues, 51))).collect()
    with pytest.raises(AnalysisException, match=r"startingOffsets does not name queue"):
        read(topic, startingOffsets=numbers({queues[0]: 1})).collect()
    with pytest.raises(AnalysisException, match="cannot be latest in a batch"):
        read(topic, startingOffsets="latest").collect()


def test_an_unreachable_cluster_is_named(read: Read) -> None:
    with pytest.raises(AnalysisException, match=r"127\.0\.0\.1:1\b"):
        read("orders", namesrvAddr="127.0.0.1:1", retries=1).collect()


def test_a_broker_that_stops_during_a_read_is_named_or_comes_back(
    read: Read, start_cluster: StartCluster
) -> None:
    topics = start_cluster(brokers=1)
    name = topics.filled(100, queues=1)
    broker = topics.cluster.brokers[0]
    frame = read(name, namesrvAddr=topics.cluster.namesrv, retries=2)
    planned = frame.rdd
    assert planned.getNumPartitions() == 1, "planned before the broker goes"
    topics.cluster.faults.kill_broker(broker)

    with pytest.raises(
        Exception, match=rf"queue 0 of topic '{name}' on broker '{broker}' could not"
    ):
        planned.count()

    topics.cluster.faults.restart_broker(broker)
    assert frame.count() == 100


def test_a_batch_without_a_killed_broker_fails_or_says_what_it_skips(
    read: Read, start_cluster: StartCluster
) -> None:
    topics = start_cluster(brokers=2)
    name = topics.filled(100, queues=1)
    topics.cluster.faults.kill_broker("broker-b")
    there = {"namesrvAddr": topics.cluster.namesrv, "retries": 2}

    with pytest.raises(Exception, match=rf"broker-b is missing since .*queue 0 of topic '{name}'"):
        read(name, **there).count()
    assert 0 < read(name, **there, missingBrokers="skip").count() < 100
