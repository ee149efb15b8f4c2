"""Rows that Spark writes to topics, in batches and as streams."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from orbitmq.client import Admin, Message, ReceivedMessage
from orbitmq.spark.writing.delivery_marks import MARK, DeliveryMark
from tests.spark.conftest import StartCluster
from tests.spark.streams import QUERY_TIMEOUT_S, started
from tests.spark.topics import PATIENCE_MS, Topics


def _writer(rows: DataFrame, topics: Topics, **options: Any) -> DataFrameWriter:
    writer = rows.write.format("rocketmq").mode("append")
    # A broker on a machine that stalls for a while is not sent everything again.
    writer = writer.option("sendTimeoutMs", PATIENCE_MS)
    return writer.option("namesrvAddr", topics.cluster.namesrv).options(**options)


def _marks(messages: list[ReceivedMessage]) -> list[DeliveryMark]:
    return [DeliveryMark.parse(message.properties[MARK]) for message in messages]


def _bodies(messages: list[ReceivedMessage]) -> list[bytes]:
    return sorted(message.body for message in messages)


def _failing_once() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Adds a row that no broker accepts as the last of a task, in its first attempt."""

    # Within another, since Spark's workers cannot import this module.
    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from batches
        if not context.attemptNumber():
            yield pa.RecordBatch.from_pydict({"body": pa.array([""])})

    return fail_once


# --- batches --------------------------------------------------------------------------------------


def test_rows_become_messages_with_all_columns(spark: SparkSession, topics: Topics) -> None:
    first, second = topics.create(), topics.create()
    rows = spark.createDataFrame(
        [
            (first, b"one", ["k1", "k2"], "paid", 7, {"colour": "red"}, "customer", None),
            (second, b"two", None, None, None, None, None, 0),
            (second, b"late", None, None, None, None, None, 18),
        ],
        "topic STRING, body BINARY, keys ARRAY<STRING>, tags STRING, flag INT, "
        "properties MAP<STRING, STRING>, shardingKey STRING, delayLevel INT",
    )

    _writer(rows, topics).save()

    (one,) = topics.messages(first)
    (two,) = topics.messages(second)
    assert (one.body, one.keys, one.tags, one.flag) == (b"one", ("k1", "k2"), "paid", 7)
    assert one.properties["colour"] == "red"
    assert one.properties["__SHARDINGKEY"] == "customer"
    assert (two.body, two.keys, two.tags, two.flag) == (b"two", (), "", 0)


def test_columns_may_be_in_any_letter_case(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create()
    rows = spark.createDataFrame([(topic, "one", "paid")], "Topic STRING, BODY STRING, Tags STRING")

    _writer(rows, topics).save()

    (one,) = topics.messages(topic)
    assert (one.body, one.tags) == (b"one", "paid")


def test_many_rows_of_many_tasks_are_all_written_once(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create()
    rows = spark.range(0, 30_000, 1, 3).selectExpr("CAST(id AS STRING) AS body")

    _writer(rows, topics, topic=topic).save()

    messages = topics.messages(topic)
    assert _bodies(messages) == sorted(str(number).encode() for number in range(30_000))
    marks = _marks(messages)
    assert len({mark.row for mark in marks}) == 30_000
    assert len({mark.query for mark in marks}) == 1
    assert {mark.partition for mark in marks} == {0, 1, 2}
    assert {(mark.batch, mark.attempt) for mark in marks} == {(0, 0)}


def test_two_writes_have_ids_of_their_own(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create()
    rows = spark.createDataFrame([("a",)], "body STRING")

    for _ in range(2):
        _writer(rows, topics, topic=topic).save()

    assert len({mark.query for mark in _marks(topics.messages(topic))}) == 2


def test_rows_with_a_key_keep_their_order(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create()
    rows = spark.range(0, 5000, 1, 1).selectExpr(
        "CAST(id AS STRING) AS body", "CONCAT('customer-', id % 5) AS shardingKey"
    )

    _writer(rows, topics, topic=topic, batchBytes=5000).save()

    messages = topics.messages(topic)
    assert len(messages) == 5000
    for key in range(5):
        numbers = [int(each.body) for each in messages if int(each.body) % 5 == key]
        assert numbers == list(range(key, 5000, 5))


def test_a_topic_is_a_view_that_rows_are_inserted_into(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create()
    spark.createDataFrame([("a", "red"), ("b", None)], "body STRING, tags STRING").createTempView(
        "rows_to_insert"
    )
    spark.sql(
        "CREATE TEMPORARY VIEW orders (body STRING, tags STRING) USING rocketmq "
        f"OPTIONS (namesrvAddr '{topics.cluster.namesrv}', topic '{topic}')"
    )
    try:
        spark.sql("INSERT INTO orders SELECT * FROM rows_to_insert")
    finally:
        spark.catalog.dropTempView("orders")
        spark.catalog.dropTempView("rows_to_insert")

    assert sorted((each.body, each.tags) for each in topics.messages(topic)) == [
        (b"a", "red"),
        (b"b", ""),
    ]


def test_a_retried_task_writes_every_row_at_least_once(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create()

    rows = spark.range(0, 20_000, 1, 2).selectExpr("CAST(id AS STRING) AS body")

    _writer(rows.mapInArrow(_failing_once(), "body STRING"), topics, topic=topic).save()

    messages = topics.messages(topic)
    assert set(_bodies(messages)) == {str(number).encode() for number in range(20_000)}
    marks = _marks(messages)
    last_tries = [mark for mark in marks if mark.attempt == 1]
    assert Counter(mark.row for mark in last_tries) == Counter({mark.row: 1 for mark in last_tries})
    assert len(last_tries) == 20_000
    # By its mark the first copy is a duplicate: the same row under another attempt.
    by_row = {mark.row: message.body for mark, message in zip(marks, messages, strict=True)}
    assert len(by_row) == 20_000
    assert all(
        by_row[mark.row] == message.body for mark, message in zip(marks, messages, strict=True)
    )


# --- streams --------------------------------------------------------------------------------------


def _lines(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema("body STRING, tags STRING").json(str(folder))


def _add_lines(folder: Path, name: str, *rows: dict[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def _run(rows: DataFrame, topics: Topics, checkpoint: Path | None, **options: Any) -> str:
    """Write everything available, and return the id of the query.

    Without a checkpoint, the query is named `named`, and has one in the session's folder.
    """
    writer = (
        rows.writeStream.format("rocketmq")
        .option("namesrvAddr", topics.cluster.namesrv)
        .option("sendTimeoutMs", PATIENCE_MS)
        .options(**options)
        .trigger(availableNow=True)
    )
    if checkpoint is None:
        query = started(writer.queryName("named").start)
    else:
        query = started(writer.option("checkpointLocation", str(checkpoint)).start)
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S)
    finally:
        query.stop()
    return str(query.id)


@contextmanager
def _checkpoints_in(spark: SparkSession, folder: Path) -> Iterator[None]:
    """Sets the session's folder for checkpoints."""
    name = "spark.sql.streaming.checkpointLocation"
    spark.conf.set(name, str(folder))
    try:
        yield
    finally:
        spark.conf.unset(name)


def test_a_stream_writes_its_micro_batches(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    lines, checkpoint = tmp_path / "lines", tmp_path / "checkpoint"
    _add_lines(lines, "one.json", {"body": "a", "tags": "x"}, {"body": "b"})

    query_id = _run(_lines(spark, lines), topics, checkpoint, topic=topic)
    _add_lines(lines, "two.json", {"body": "c"})
    same_id = _run(_lines(spark, lines), topics, checkpoint, topic=topic)

    messages = sorted(topics.messages(topic), key=lambda message: message.body)
    assert [(each.body, each.tags) for each in messages] == [(b"a", "x"), (b"b", ""), (b"c", "")]
    marks = _marks(messages)
    assert query_id == same_id
    assert {mark.query for mark in marks} == {query_id.replace("-", "")}
    assert [mark.batch for mark in marks] == [0, 0, 1]


def test_a_failed_stream_resumes_with_the_same_batch(
    spark: SparkSession, start_cluster: StartCluster, tmp_path: Path
) -> None:
    topics = start_cluster()
    topic = topics.create()
    lines, checkpoint = tmp_path / "lines", tmp_path / "checkpoint"
    _add_lines(lines, "one.json", *({"body": f"{number}"} for number in range(100)))
    broker = topics.cluster.faults.stop_broker("broker-a")
    quick = {"sendTimeoutMs": 1000, "retries": 1}

    with pytest.raises(StreamingQueryException, match=r"could not write row 0 of partition 0"):
        _run(_lines(spark, lines), topics, checkpoint, topic=topic, **quick)
    topics.cluster.faults.restart_broker(broker)
    _run(_lines(spark, lines), topics, checkpoint, topic=topic)

    messages = topics.messages(topic)
    assert set(_bodies(messages)) == {b"%d" % number for number in range(100)}
    assert {mark.batch for mark in _marks(messages)} == {0}


def test_every_thread_writes_and_so_does_one_that_was_interrupted(
    spark: SparkSession, topics: Topics
) -> None:
    topic = topics.create()

    def write(body: str) -> None:
        _writer(spark.range(1).selectExpr(f"'{body}' AS body"), topics, topic=topic).save()

    with ThreadPoolExecutor(1) as threads:
        threads.submit(write, "in a thread").result()
    client = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]  # is connected
    # What an interrupt does to the thread's connection to Java.
    client.get_thread_connection().close()
    write("after an interrupt")

    assert sorted(_bodies(topics.messages(topic))) == [b"after an interrupt", b"in a thread"]


# --- from topic to topic --------------------------------------------------------------------------


def _said(message: ReceivedMessage) -> tuple[object, ...]:
    """The fields that a copy of a message shares with it."""
    return (message.body, message.keys, message.tags, message.flag, message.properties["colour"])


def _fill(topics: Topics, count: int) -> str:
    topic = topics.create()
    topics.send_messages(
        Message(
            topic,
            f"{number}",
            keys=f"key-{number} all",
            tags="even" if number % 2 == 0 else "",
            flag=number,
            properties={"colour": f"röd-{number}"},
        )
        for number in range(count)
    )
    return topic


@pytest.mark.parametrize("properties", ["string", "map"])
def test_rows_that_were_read_are_written_unchanged(
    spark: SparkSession, topics: Topics, properties: str
) -> None:
    source, target = _fill(topics, 100), topics.create(queues=1)
    rows = (
        spark.read.format("rocketmq")
        .option("namesrvAddr", topics.cluster.namesrv)
        .options(subscribe=source, columns="all", properties=properties)
        .load()
    )

    _writer(rows, topics, topic=target).save()

    originals, copies = topics.messages(source), topics.messages(target)
    assert sorted(map(_said, copies)) == sorted(map(_said, originals))
    assert not {each.message_id for each in copies} & {each.message_id for each in originals}
    # Rows of a queue stay together and in order, though the copy has fewer queues.
    queue_of = {each.body: (each.broker_name, each.queue_id) for each in originals}
    for queue in set(queue_of.values()):
        numbers = [int(each.body) for each in copies if queue_of[each.body] == queue]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("delivery", ["atLeastOnce", "exactlyOnce"])
def test_a_stream_goes_straight_from_topic_to_topic(
    spark: SparkSession, topics: Topics, tmp_path: Path, delivery: str
) -> None:
    source, target = _fill(topics, 100), topics.create()
    rows = (
        spark.readStream.format("rocketmq")
        .option("namesrvAddr", topics.cluster.namesrv)
        .options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=40)
        .option("columns", "all")
        .load()
    )

    _run(rows, topics, tmp_path / "checkpoint", topic=target, delivery=delivery)

    copies = topics.messages(target)
    assert sorted(map(_said, copies)) == sorted(map(_said, topics.messages(source)))
    assert {mark.batch for mark in _marks(copies)} >= {0, 1, 2}


# --- exactly once ---------------------------------------------------------------------------------


def test_a_batch_with_a_write_id_is_written_once_despite_failed_tasks_and_a_rerun(
    spark: SparkSession, topics: Topics
) -> None:
    topic = topics.create()
    once = {"topic": topic, "delivery": "exactlyOnce", "writeId": f"load-{topic}"}
    rows = spark.range(0, 5_000, 1, 2).selectExpr("CAST(id AS STRING) AS body")

    for _ in range(2):
        _writer(rows.mapInArrow(_failing_once(), "body STRING"), topics, **once).save()

    assert _bodies(topics.messages(topic)) == sorted(b"%d" % number for number in range(5_000))


def test_a_micro_batch_that_is_replayed_is_written_once(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    lines, checkpoint = tmp_path / "lines", tmp_path / "checkpoint"
    once = {"topic": topic, "delivery": "exactlyOnce"}
    _add_lines(lines, "one.json", *({"body": f"{number}"} for number in range(100)))
    _run(_lines(spark, lines), topics, checkpoint, **once)
    # As if the driver had died after the commit of the sink, before recording it.
    for noted in (checkpoint / "commits").iterdir():
        noted.unlink()

    _run(_lines(spark, lines).repartition(2, "body"), topics, checkpoint, **once)
    _add_lines(lines, "two.json", {"body": "100"})
    _run(_lines(spark, lines), topics, checkpoint, **once)

    assert _bodies(topics.messages(topic)) == sorted(b"%d" % number for number in range(101))


def test_a_copied_or_restored_checkpoint_fails_and_loses_nothing(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic, other = topics.create(), topics.create()
    lines = tmp_path / "lines"
    used, copied = tmp_path / "used", tmp_path / "copied"
    once = {"topic": topic, "delivery": "exactlyOnce"}
    _add_lines(lines, "0.json", {"body": "0"})
    query = _run(_lines(spark, lines), topics, used, **once)
    shutil.copytree(used, copied)
    _add_lines(lines, "1.json", {"body": "1"})
    _run(_lines(spark, lines), topics, used, **once)

    # It is as good as a backup from before batch 1, whose rows come with others now.
    _add_lines(lines, "2.json", {"body": "2"})
    with pytest.raises(StreamingQueryException, match=f"orbitmq query forget {query}"):
        _run(_lines(spark, lines), topics, copied, **once)
    # A batch that is repeated does not go to another topic.
    (used / "commits" / "1").unlink()
    with pytest.raises(StreamingQueryException, match=f"to topic '{topic}', not topic '{other}'"):
        _run(_lines(spark, lines), topics, used, topic=other, delivery="exactlyOnce")
    assert _bodies(topics.messages(topic)) == [b"0", b"1"]
    assert topics.messages(other) == []

    with Admin(namesrv=topics.cluster.namesrv) as admin:
        admin.queries.forget(query)
    _run(_lines(spark, lines), topics, copied, **once)
    assert _bodies(topics.messages(topic)) == [b"0", b"1", b"1", b"2"]


def test_the_checkpoint_of_a_named_query_in_the_sessions_folder_is_found(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic, lines, copied = topics.create(), tmp_path / "lines", tmp_path / "copied"
    once = {"topic": topic, "delivery": "exactlyOnce"}
    with _checkpoints_in(spark, tmp_path), Admin(namesrv=topics.cluster.namesrv) as admin:
        _add_lines(lines, "0.json", {"body": "0"})
        query = _run(_lines(spark, lines), topics, None, **once)
        shutil.copytree(tmp_path / "named", copied)
        # From now on the topic is another one; the next batch goes there.
        topics.create_again(topic)
        _add_lines(lines, "1.json", {"body": "1"})
        _run(_lines(spark, lines), topics, None, **once)

        assert admin.queries.find(query).target == topic
    assert _bodies(topics.messages(topic)) == [b"1"]
    with pytest.raises(StreamingQueryException, match="for other rows of the source"):
        _run(_lines(spark, lines), topics, copied, **once)


# --- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "options", "reason"),
    [
        ("body STRING, tag STRING", {}, "no column 'tag' .*did you mean tags"),
        ("body INT", {}, "'body' cannot be INT"),
        ("value STRING", {}, "no column 'value'"),
        ("body STRING", {"topic": ""}, "which topic"),
        ("body STRING", {"topik": "x"}, "unknown option 'topik' .*did you mean topic"),
        ("body STRING", {"delivery": "exactlyOnce"}, "needs the option writeId"),
        ("body STRING", {"retries": "many"}, "retries cannot be 'many'"),
    ],
)
def test_wrong_writes_are_refused_before_any_task(
    spark: SparkSession, topics: Topics, schema: str, options: dict[str, str], reason: str
) -> None:
    rows = spark.createDataFrame([], schema)

    with pytest.raises(AnalysisException, match=reason):
        _writer(rows, topics, **{"topic": "orders", **options}).save()


def test_a_topic_is_not_overwritten(spark: SparkSession, topics: Topics) -> None:
    rows = spark.createDataFrame([("a",)], "body STRING")

    with pytest.raises(AnalysisException, match="cannot be overwritten"):
        _writer(rows, topics, topic="orders").mode("overwrite").save()


def test_rows_are_only_appended(spark: SparkSession, topics: Topics) -> None:
    rows = spark.createDataFrame([("a",)], "body STRING")

    # The default mode of a write.
    with pytest.raises(AnalysisException, match=r"(?i)append"):
        _writer(rows, topics, topic="orders").mode("errorifexists").save()


@pytest.mark.parametrize(
    ("body", "options", "reason"),
    [
        ("", {}, r"row 2 of partition 0 \(keys 'k2', .*its body is null or empty"),
        ("x" * 11, {"maxMessageBytes": 10}, r"row 2 .*body of 11 bytes is above the limit of 10"),
    ],
)
def test_a_row_that_cannot_be_sent_fails_the_write_by_name(
    spark: SparkSession, topics: Topics, body: str, options: dict[str, Any], reason: str
) -> None:
    topic = topics.create()
    rows = spark.createDataFrame(
        [("a", "k0"), ("b", "k1"), (body, "k2")], "body STRING, keys STRING"
    ).coalesce(1)

    with pytest.raises(PySparkException, match=reason):
        _writer(rows, topics, topic=topic, **options).save()


def test_a_topic_that_no_broker_creates_fails_the_write(
    spark: SparkSession, start_cluster: StartCluster
) -> None:
    topics = start_cluster(options={"autoCreateTopicEnable": "false"})
    rows = spark.createDataFrame([("a",)], "body STRING").coalesce(1)

    with pytest.raises(PySparkException, match=r"row 0 of partition 0 .*no-such-topic"):
        _writer(rows, topics, topic="no-such-topic").save()
