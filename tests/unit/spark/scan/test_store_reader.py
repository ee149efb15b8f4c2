from __future__ import annotations

import datetime
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import EqualTo, Filter, In, InputPartition, LessThan

from orbitmq.errors import ProtocolError, SettingsError, TopicMissingError
from orbitmq.record.layout import SystemFlag
from orbitmq.spark.options.column_names import COLUMN_NAMES
from orbitmq.spark.options.store_options import StoreOptions
from orbitmq.spark.rows.schema import projection_of, table_projection
from orbitmq.spark.scan.store_reader import PushingStoreReader, StoreReader, reader_for
from orbitmq.store.files.file_names import file_name
from orbitmq.store.log.draft import Draft
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from tests.unit.store.written_stores import T0, change, fill, open_store


def moment(since_start_ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp((T0 + since_start_ms) / 1000, datetime.UTC)


def reader(root: Path, *columns: str, **options: str) -> StoreReader:
    projection = table_projection(COLUMN_NAMES)
    if columns:
        schema = projection.spark_schema
        projection = projection_of(type(schema)([schema[name] for name in columns]))
    return StoreReader(StoreOptions.from_spark({"path": str(root), **options}), projection)


def rows(root: Path, *columns: str, **options: str) -> list[dict[str, Any]]:
    """The rows of a scan, run as Spark does: planned in one process, read in another."""
    planned = reader(root, *columns, **options)
    # Spark pickles the reader before it asks for the partitions.
    sent = cloudpickle.dumps(planned)
    partitions = cloudpickle.dumps(planned.partitions())
    there = cloudpickle.loads(sent)
    found: list[dict[str, Any]] = []
    for partition in cloudpickle.loads(partitions):
        for batch in there.read(partition):
            found += batch.to_pylist()
    return found


def pruned(root: Path, *conditions: Filter, **options: str) -> list[int]:
    """The messages read if Spark pushes conditions down."""
    made = PushingStoreReader(
        StoreOptions.from_spark({"path": str(root), **options}), table_projection(COLUMN_NAMES)
    )
    assert made.pushFilters(list(conditions)) == list(conditions)
    batches = [batch for part in made.partitions() for batch in made.read(part)]
    return numbers([row for batch in batches for row in batch.to_pylist()])


def numbers(found: list[dict[str, Any]]) -> list[int]:
    return [int(row["msgId"][2:]) for row in found]


def test_rows_are_the_messages_of_the_store(tmp_path: Path) -> None:
    fill(tmp_path, 500)

    found = rows(tmp_path, brokerName="broker-a", minPartitions="3")

    assert numbers(found) == list(range(500))
    with ReadOnlyStore(tmp_path) as store:
        messages = {
            message.physical_offset: message
            for topic, queue_id in store.queue_keys()
            for message in store.messages(topic, queue_id, 0, 1_000)
        }
    for row in found:
        message = messages[row["physicalOffset"]]
        assert (row["topic"], row["queueId"], row["queueOffset"], row["body"]) == (
            message.topic,
            message.queue_id,
            message.queue_offset,
            message.body,
        )
        assert row["brokerName"] == "broker-a"


def test_a_schema_selects_the_columns(tmp_path: Path) -> None:
    fill(tmp_path, 10)

    assert list(rows(tmp_path, "body", "queueId")[0]) == ["body", "queueId"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": "topic1"}, [n for n in range(400) if n % 2]),
        ({"subscribePattern": ".*0"}, [n for n in range(400) if not n % 2]),
        ({"assign": '{"topic0": {"b": [1]}}'}, [n for n in range(400) if n % 4 == 2]),
        ({"tags": "tag1 || tag2 || none"}, [n for n in range(400) if n % 3]),
        ({"startingTimestamp": str(T0 + 995)}, list(range(100, 400))),
        ({"endingTimestamp": str(T0 + 1_000)}, list(range(100))),
        (
            {"startingTimestamp": str(T0 + 1_000), "tags": "tag0", "subscribe": "topic0"},
            [n for n in range(100, 400) if n % 6 == 0],
        ),
    ],
)
def test_options_choose_messages(
    tmp_path: Path, options: dict[str, str], expected: list[int]
) -> None:
    fill(tmp_path, 400)

    assert numbers(rows(tmp_path, brokerName="b", **options)) == expected


@pytest.mark.parametrize(
    ("conditions", "options", "expected"),
    [
        ([EqualTo(("topic",), "topic1")], {}, lambda n: n % 2),
        ([In(("queueId",), (1, 7))], {}, lambda n: n // 2 % 2),
        ([EqualTo(("queueOffset",), 3)], {}, lambda n: n // 4 == 3),
        ([EqualTo(("brokerName",), "other")], {}, lambda _: False),
        ([EqualTo(("brokerName",), "b")], {}, lambda _: True),
        ([LessThan(("storeTimestamp",), moment(1_000))], {}, lambda n: n < 100),
        ([EqualTo(("tags",), "tag1")], {}, lambda n: n % 3 == 1),
        ([In(("tags",), ("tag1", "tag2"))], {"tags": "tag0 || tag2"}, lambda n: n % 3 == 2),
        ([EqualTo(("topic",), "topic0")], {"subscribe": "topic1"}, lambda _: False),
        ([EqualTo(("keys",), "key3 all")], {}, lambda _: True),
    ],
)
def test_conditions_of_a_query_skip_messages(
    tmp_path: Path,
    conditions: list[Filter],
    options: dict[str, str],
    expected: Callable[[int], bool],
) -> None:
    fill(tmp_path, 300)

    found = pruned(tmp_path, *conditions, brokerName="b", **options)

    assert found == [number for number in range(300) if expected(number)]


def test_a_reader_takes_conditions_only_where_spark_asks_it_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = StoreOptions(path=str(tmp_path), push_filters=True)
    assert type(reader_for(options, table_projection(COLUMN_NAMES))) is StoreReader

    monkeypatch.setitem(sys.modules, "pyspark.sql.worker.data_source_pushdown_filters", sys)
    assert type(reader_for(options, table_projection(COLUMN_NAMES))) is PushingStoreReader
    asked_by_nobody = StoreOptions(path=str(tmp_path))
    assert type(reader_for(asked_by_nobody, table_projection(COLUMN_NAMES))) is StoreReader


def test_tags_with_the_same_hash_are_distinguished(tmp_path: Path) -> None:
    fill(tmp_path, 30)

    # Java gives "tag0" and "tafO" one hash.
    assert rows(tmp_path, "queueOffset", tags="tafO") == []
    found = rows(tmp_path, "queueOffset", tags="tag0 || tafO")
    assert len(found) == 10
    assert list(found[0]) == ["queueOffset"]


def test_several_stores_are_one_table(tmp_path: Path) -> None:
    for name in ("broker-a", "broker-b"):
        fill(tmp_path / name / "store", 50)

    found = rows(tmp_path / "*" / "store", "brokerName", "queueOffset")

    assert [row["brokerName"] for row in found] == ["broker-a"] * 50 + ["broker-b"] * 50


def test_an_error_about_an_unknown_topic_suggests_the_nearest(tmp_path: Path) -> None:
    fill(tmp_path, 10)

    with pytest.raises(TopicMissingError, match="did you mean topic1"):
        rows(tmp_path, subscribe="topic1x")
    with pytest.raises(TopicMissingError, match="topics found: topic0, topic1"):
        rows(tmp_path, subscribe="something-else")


def test_a_topic_without_messages_is_an_empty_table(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / "config" / "topics.json").write_text('{"new":{"perm":6,"topicName":"new"}}')

    assert rows(tmp_path, subscribe="new") == []


def test_a_topic_that_points_to_messages_of_others_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, 10)

    with pytest.raises(SettingsError, match="has no messages of its own"):
        rows(tmp_path, subscribe="%LMQ%x")


def test_wrong_checksums_fail_when_they_are_checked(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    content = (tmp_path / "commitlog" / file_name(0)).read_bytes()
    change(tmp_path / "commitlog" / file_name(0), content.index(b"5:5:5:"), b"?")

    with pytest.raises(ProtocolError, match="checksum"):
        rows(tmp_path, checkCRC="true")
    assert len(rows(tmp_path)) == 10


def test_a_task_that_spark_adds_reads_nothing(tmp_path: Path) -> None:
    fill(tmp_path, 10)

    assert list(reader(tmp_path).read(InputPartition(None))) == []


def test_only_messages_that_consumers_could_get_are_rows(tmp_path: Path) -> None:
    kinds = {
        b"plain": ("orders", SystemFlag(0)),
        b"half": ("orders", SystemFlag.PREPARED),
        b"committed": ("orders", SystemFlag.COMMITTED),
        b"rolled back": ("orders", SystemFlag.ROLLED_BACK),
        b"delayed": ("SCHEDULE_TOPIC_XXXX", SystemFlag(0)),
        b"retried": ("%RETRY%group", SystemFlag(0)),
    }
    with open_store(tmp_path) as store:
        for body, (topic, flag) in kinds.items():
            store.put(Draft(topic=topic, body=body, system_flag=int(flag), properties=b""))

    def bodies(**options: str) -> list[bytes]:
        return [row["body"] for row in rows(tmp_path, "body", **options)]

    assert bodies() == [b"plain", b"committed"]
    assert bodies(includeSystemTopics="true") == [b"plain", b"committed", b"delayed", b"retried"]
    assert bodies(subscribe="SCHEDULE_TOPIC_XXXX") == [b"delayed"]
    assert bodies(subscribe="%RETRY%group,orders") == [b"plain", b"committed", b"retried"]
