"""What a task writes, without Spark: rows become messages of a broker."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from orbitmq.embedded import Cluster
from orbitmq.errors import BatchConflictError, RowError, SettingsError
from orbitmq.protocol.requests.staged_writes import BatchStatus
from orbitmq.spark.options.write_options import WriteOptions
from orbitmq.spark.writing import writers
from orbitmq.spark.writing.delivery_marks import MARK, TaskMark
from orbitmq.spark.writing.staging import Staged, decision_of
from orbitmq.spark.writing.write_columns import WriteColumns
from orbitmq.spark.writing.writers import (
    BatchWriter,
    StreamWriter,
    Written,
    commit_staged,
    stage_rows,
    write_rows,
)
from tests.spark.topics import Topics

TASK = TaskMark(query="c0ffee", batch=12, partition=3, attempt=1)
BODIES = StructType([StructField("body", BinaryType())])


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with Cluster(brokers=2, in_memory=True) as cluster, Topics(cluster) as topics:
        yield topics
    writers.stop_clients()


def _options(topics: Topics, **options: Any) -> WriteOptions:
    return WriteOptions(namesrv=topics.cluster.namesrv, **options)


def _write(options: WriteOptions, *batches: dict[str, Any]) -> Written:
    columns = WriteColumns(frozenset(batches[0]) if batches else frozenset({"body"}))
    return write_rows(map(pa.RecordBatch.from_pydict, batches), options, columns, TASK)


def test_rows_become_messages(topics: Topics) -> None:
    topic = topics.create()

    written = _write(
        _options(topics, topic=topic),
        {
            "body": [b"one", b"two"],
            "keys": ["k1 k2", None],
            "tags": ["paid", None],
            "flag": [7, None],
            "properties": pa.array([[("colour", "red")], None], pa.map_(pa.string(), pa.string())),
        },
        {
            "body": [b"three"],
            "keys": ["k3"],
            "tags": [""],
            "flag": [-1],
            "properties": pa.array([[]], pa.map_(pa.string(), pa.string())),
        },
    )

    assert written == Written(3)
    one, three, two = sorted(topics.messages(topic), key=lambda message: message.body)
    assert (one.body, one.keys, one.tags, one.flag) == (b"one", ("k1", "k2"), "paid", 7)
    assert one.properties["colour"] == "red"
    assert (two.body, two.keys, two.tags, two.flag) == (b"two", (), "", 0)
    assert (three.keys, three.flag) == (("k3",), -1)
    assert [each.properties[MARK] for each in (one, two, three)] == [
        f"c0ffee/12/3/1/{sequence}" for sequence in range(3)
    ]
    assert len({each.message_id for each in (one, two, three)}) == 3


def test_many_rows_are_all_stored_once(topics: Topics) -> None:
    topic = topics.create()
    bodies = [b"%d" % number for number in range(25_000)]

    written = _write(_options(topics, topic=topic), {"body": bodies})

    assert written == Written(25_000)
    assert sorted(message.body for message in topics.messages(topic)) == sorted(bodies)


def test_a_small_window_and_small_batches_store_all_rows(topics: Topics) -> None:
    topic = topics.create()
    bodies = [b"%d" % number for number in range(500)]
    options = _options(
        topics, topic=topic, batch_bytes=2000, max_in_flight_messages=10, max_in_flight_bytes=4000
    )

    _write(options, {"body": bodies})

    assert sorted(message.body for message in topics.messages(topic)) == sorted(bodies)


def test_rows_with_one_sharding_key_keep_their_order(topics: Topics) -> None:
    topic = topics.create()
    keys = [f"customer-{number % 7}" for number in range(5000)]
    bodies = [f"{key}/{number}".encode() for number, key in enumerate(keys)]

    _write(_options(topics, topic=topic, batch_bytes=5000), {"body": bodies, "shardingKey": keys})

    messages = topics.messages(topic)
    for key in set(keys):
        of_key = [each for each in messages if each.body.startswith(f"{key}/".encode())]
        assert len({(each.queue_id, each.broker_name) for each in of_key}) == 1
        assert [each.body for each in of_key] == [
            body for body in bodies if body.startswith(f"{key}/".encode())
        ]


def test_rows_go_to_the_queue_they_name(topics: Topics) -> None:
    topic = topics.create(queues=2)
    queues = topics.queues(topic)

    _write(
        _options(topics, topic=topic),
        {
            "body": [b"%d" % number for number in range(len(queues))],
            "brokerName": [queue.broker_name for queue in queues],
            "queueId": [queue.queue_id for queue in queues],
        },
    )

    assert [(each.broker_name, each.queue_id, each.body) for each in topics.messages(topic)] == [
        (queue.broker_name, queue.queue_id, b"%d" % at) for at, queue in enumerate(queues)
    ]


def test_delayed_rows_are_delivered_later(topics: Topics) -> None:
    topic = topics.create()

    _write(_options(topics, topic=topic), {"body": [b"now", b"later"], "delayLevel": [0, 18]})

    assert [message.body for message in topics.messages(topic)] == [b"now"]


def test_large_bodies_are_compressed_if_asked_for(topics: Topics) -> None:
    topic = topics.create()
    options = _options(topics, topic=topic, compression="zstd", compress_above_bytes=1000)

    _write(options, {"body": [b"a" * 10_000, b"b" * 10]})

    large, small = sorted(topics.messages(topic), key=lambda message: message.body)
    assert (large.body, small.body) == (b"a" * 10_000, b"b" * 10)


def test_a_row_larger_than_a_batch_is_sent_by_itself(topics: Topics) -> None:
    topic = topics.create()
    body = os.urandom(3_000_000)

    _write(_options(topics, topic=topic), {"body": [b"a", body, b"b"]})

    assert sorted(message.body for message in topics.messages(topic)) == sorted([b"a", body, b"b"])


def test_a_broker_with_lower_limits_gets_smaller_requests() -> None:
    with (
        Cluster(in_memory=True, options={"maxMessageSize": "20000"}) as cluster,
        Topics(cluster) as topics,
    ):
        topic = topics.create()
        bodies = [b"%4d" % number * 50 for number in range(1000)]
        options = _options(topics, topic=topic)

        _write(options, {"body": bodies})

        assert sorted(message.body for message in topics.messages(topic)) == sorted(bodies)
        with pytest.raises(RowError, match=r"row 2 of partition 3 \(topic .*, keys 'k2', batch"):
            _write(
                options,
                {"body": [b"a", b"b", b"x" * 30_000, b"c"], "keys": ["k0", "k1", "k2", "k3"]},
            )
        writers.stop_clients()


def test_a_task_without_rows_writes_nothing(topics: Topics) -> None:
    assert _write(_options(topics, topic="nowhere")) == Written(0)


def test_a_refused_row_is_named_by_its_position_in_the_task(topics: Topics) -> None:
    topic = topics.create()

    with pytest.raises(RowError, match=r"row 3 of partition 3 \(keys 'k3', .*null or empty"):
        _write(
            _options(topics, topic=topic),
            {"body": [b"a", b"b"], "keys": ["k0", "k1"]},
            {"body": [b"c", None], "keys": ["k2", "k3"]},
        )


def test_a_body_above_the_limit_is_refused_with_the_limit(topics: Topics) -> None:
    options = _options(topics, topic=topics.create(), max_message_bytes=10)

    with pytest.raises(RowError, match=r"row 1 .*11 bytes is above the limit of 10"):
        _write(options, {"body": [b"a", b"x" * 11]})


def test_a_topic_that_may_not_be_created_fails_the_task(topics: Topics) -> None:
    options = _options(topics, topic="no-such-topic", create_topics=False)

    with pytest.raises(RowError, match=r"could not write row 0 .*no-such-topic"):
        _write(options, {"body": [b"a"]})


def test_a_topic_that_may_not_be_created_fails_rows_with_sharding_keys(topics: Topics) -> None:
    options = _options(topics, topic="no-such-topic", create_topics=False)

    with pytest.raises(RowError, match=r"cannot write row 0 .*no-such-topic"):
        _write(options, {"body": [b"a"], "shardingKey": ["k"]})


def test_an_unreachable_cluster_fails_the_task() -> None:
    with Cluster(in_memory=True) as cluster, Topics(cluster) as topics:
        topic = topics.create()
        _write(_options(topics, topic=topic), {"body": [b"a"]})
        cluster.faults.kill_broker("broker-a")

        impatient = _options(topics, topic=topic, retries=1, send_timeout_ms=1000)
        with pytest.raises(RowError, match=r"could not write row 0 .*broker-a"):
            _write(impatient, {"body": [b"b"]})
        writers.stop_clients()


# --- exactly once ---------------------------------------------------------------------------------


def _stage(options: WriteOptions, *batches: dict[str, Any], query: str = "q") -> Staged:
    columns = WriteColumns(frozenset(batches[0]))
    return stage_rows(map(pa.RecordBatch.from_pydict, batches), options, columns, TASK, query)


def _commit(
    messages: Sequence[Staged | None], batch: int, options: WriteOptions, **decided: Any
) -> BatchStatus:
    writes = [message for message in messages if message is not None]
    decision = decision_of(writes, query=writes[0].query, batch=batch, **decided)
    return commit_staged(decision, options)


def _once(topics: Topics, **options: Any) -> WriteOptions:
    return _options(topics, delivery="exactlyOnce", **options)


def test_staged_rows_are_visible_once_their_batch_is_committed(topics: Topics) -> None:
    topic = topics.create()
    options = _once(topics, topic=topic)
    writes = [
        _stage(options, {"body": [b"%d/%d" % (task, number) for number in range(3000)]}, query="q1")
        for task in range(2)
    ]
    assert topics.messages(topic) == []

    _commit(writes, 0, options)

    assert [write.rows for write in writes] == [3000, 3000]
    assert sorted(message.body for message in topics.messages(topic)) == sorted(
        b"%d/%d" % (task, number) for task in range(2) for number in range(3000)
    )


def test_the_first_staged_rows_create_a_topic(topics: Topics) -> None:
    options = _once(topics, topic="made-by-staging", send_timeout_ms=10_000)

    staged = _stage(options, {"body": [b"a", b"b"]}, query="maker")
    _commit([staged], 0, options)

    bodies = [message.body for message in topics.messages("made-by-staging")]
    assert sorted(bodies) == [b"a", b"b"]


def test_of_two_writes_of_one_batch_the_first_that_is_committed_counts(topics: Topics) -> None:
    topic = topics.create()
    options = _once(topics, topic=topic)

    for attempt in range(2):
        write = _stage(options, {"body": [b"attempt %d" % attempt]}, query="q2")
        _commit([write], 0, options)
    _commit([_stage(options, {"body": [b"next"]}, query="q2")], 1, options)

    assert sorted(message.body for message in topics.messages(topic)) == [b"attempt 0", b"next"]


def _said_by_writers(caplog: pytest.LogCaptureFixture) -> list[str]:
    # The cluster runs in this process, and may log something too.
    return [each.getMessage() for each in caplog.records if each.name == writers.__name__]


def test_a_batch_with_a_used_write_id_logs_that_its_rows_are_dropped(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.create()
    options = _once(topics, topic=topic, write_id="load-7")
    first, second = (
        _stage(options, {"body": [body, body]}, query="batch/load-7") for body in (b"one", b"two")
    )
    writer = BatchWriter(options, BODIES, overwrite=False)

    # A repeated commit is not another batch.
    for _ in range(2):
        writer.commit([first])
    assert _said_by_writers(caplog) == []
    writer.commit([second])

    assert [message.body for message in topics.messages(topic)] == [b"one", b"one"]
    (warning,) = _said_by_writers(caplog)
    assert "an earlier batch has this writeId" in warning
    assert "writeId=load-7 rows_dropped=2" in warning


def _checkpoint(folder: Path, query: str, *offsets: str) -> str:
    """What Spark writes before a batch runs."""
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": query}))
    for batch, content in enumerate(offsets):
        (folder / "offsets" / str(batch)).write_text(content)
    return str(folder)


def _stream(options: WriteOptions, checkpoint: str) -> StreamWriter:
    return StreamWriter(options, BODIES, overwrite=False, checkpoint=checkpoint)


def test_a_stream_whose_checkpoint_cannot_be_read_logs_that_rows_are_dropped(
    topics: Topics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.create()
    options = _once(topics, topic=topic)
    stream = _stream(options, str(tmp_path / "nowhere"))
    for body in (b"one", b"two"):
        stream.commit([_stage(options, {"body": [body, body]}, query="unreadable")], 0)

    assert [message.body for message in topics.messages(topic)] == [b"one", b"one"]
    (warning,) = _said_by_writers(caplog)
    assert "this batch was committed before" in warning
    assert "query=unreadable batch=0 rows_dropped=2" in warning
    assert "cannot be read beside the driver" in caplog.text


def test_a_repeated_batch_of_a_stream_is_dropped_and_another_one_is_refused(
    topics: Topics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.create()
    options = _once(topics, topic=topic)
    ours = _stream(options, _checkpoint(tmp_path / "ours", "forked", "v1 a", "v1 b"))
    copy = _stream(options, _checkpoint(tmp_path / "copy", "forked", "v1 a", "v1 c", "v1 d"))
    for stream in (ours, copy):
        stream.commit([_stage(options, {"body": [b"0"]}, query="forked")], 0)
    # A batch without tasks has a place in the sequence, too.
    ours.commit([], 1)

    with pytest.raises(BatchConflictError, match="for other rows of the source"):
        copy.commit([_stage(options, {"body": [b"1"]}, query="forked")], 1)
    with pytest.raises(BatchConflictError, match="does not start where batch 1"):
        copy.commit([_stage(options, {"body": [b"2"]}, query="forked")], 2)

    assert [message.body for message in topics.messages(topic)] == [b"0"]
    assert _said_by_writers(caplog) == []


def test_an_uncommitted_write_is_never_visible(topics: Topics) -> None:
    topic = topics.create()
    options = _once(topics, topic=topic)
    _stage(options, {"body": [b"a failed task"]}, query="q3")

    _commit([None, _stage(options, {"body": [b"its retry"]}, query="q3")], 0, options)

    assert [message.body for message in topics.messages(topic)] == [b"its retry"]


def test_moved_rows_keep_their_order_and_content(topics: Topics) -> None:
    topic = topics.create()
    keys = [f"customer-{number % 7}" for number in range(5000)]
    bodies = [f"{key}/{number}".encode() for number, key in enumerate(keys)]
    options = _once(topics, topic=topic, batch_bytes=5000)

    write = _stage(
        options,
        {"body": bodies, "shardingKey": keys, "tags": ["paid"] * 5000, "flag": [3] * 5000},
        query="q4",
    )
    _commit([write], 0, options)

    messages = topics.messages(topic)
    assert {(each.tags, each.flag) for each in messages} == {("paid", 3)}
    assert {each.properties[MARK].rpartition("/")[0] for each in messages} == {"c0ffee/12/3/1"}
    for key in set(keys):
        of_key = [each.body for each in messages if each.body.startswith(f"{key}/".encode())]
        assert of_key == [body for body in bodies if body.startswith(f"{key}/".encode())]


def test_a_large_row_is_staged_as_well(topics: Topics) -> None:
    topic = topics.create()
    options = _once(topics, topic=topic)
    body = os.urandom(1_000_000)

    _commit([_stage(options, {"body": [body]}, query="q5")], 0, options)

    assert [message.body for message in topics.messages(topic)] == [body]


def test_a_row_that_cannot_be_staged_is_named() -> None:
    with (
        Cluster(in_memory=True, options={"maxMessageSize": "20000"}) as cluster,
        Topics(cluster) as topics,
    ):
        options = _once(topics, topic=topics.create())

        with pytest.raises(RowError, match=r"row 2 of partition 3 \(topic .*, keys 'k2', batch"):
            _stage(
                options,
                {"body": [b"a", b"b", b"x" * 30_000, b"c"], "keys": ["k0", "k1", "k2", "k3"]},
            )
        writers.stop_clients()


def test_a_task_without_rows_stages_nothing_and_can_be_committed(topics: Topics) -> None:
    options = _once(topics, topic=topics.create())
    write = stage_rows(iter([]), options, WriteColumns(frozenset({"body"})), TASK, "q6")

    _commit([write], 0, options)

    assert write.rows == 0


def test_rows_that_were_sent_need_no_commit() -> None:
    StreamWriter(WriteOptions(namesrv="127.0.0.1:1", topic="t"), BODIES, overwrite=False).commit(
        [Written(3), None], 0
    )


def test_exactly_once_needs_a_write_id_for_a_batch_but_not_for_a_stream() -> None:
    options = WriteOptions(namesrv="127.0.0.1:9876", topic="orders", delivery="exactlyOnce")
    named = dataclasses.replace(options, write_id="load-1")

    with pytest.raises(SettingsError, match="needs the option writeId"):
        BatchWriter(options, BODIES, overwrite=False)
    with pytest.raises(SettingsError, match="writeId is for batches"):
        StreamWriter(named, BODIES, overwrite=False)

    BatchWriter(named, BODIES, overwrite=False)
    StreamWriter(options, BODIES, overwrite=False)


# --- planning -------------------------------------------------------------------------------------


@pytest.mark.parametrize("writer", [BatchWriter, StreamWriter])
def test_topics_are_not_overwritten(writer: Any) -> None:
    options = WriteOptions(namesrv="127.0.0.1:9876", topic="orders")

    with pytest.raises(SettingsError, match="cannot be overwritten"):
        writer(options, BODIES, overwrite=True)


@pytest.mark.parametrize("writer", [BatchWriter, StreamWriter])
def test_columns_are_checked_when_the_writer_is_made(writer: Any) -> None:
    options = WriteOptions(namesrv="127.0.0.1:9876")

    with pytest.raises(SettingsError, match="which topic"):
        writer(options, BODIES, overwrite=False)

    writer(dataclasses.replace(options, topic="orders"), BODIES, overwrite=False)
