"""The reader of a batch, as Spark's workers use it."""

from __future__ import annotations

import pickle  # noqa: TID251  # Spark pickles readers
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql.datasource import EqualTo, In, InputPartition

from orbitmq.client import Message, Producer
from orbitmq.embedded import Cluster
from orbitmq.errors import TopicMissingError
from orbitmq.spark.options.read_options import ReadOptions
from orbitmq.spark.reading.batch_reader import BatchReader, PushingReader, reader_for
from orbitmq.spark.reading.filters import is_pushing_worker
from orbitmq.spark.reading.partitions import QueuePartition
from orbitmq.spark.rows.schema import table_projection


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(in_memory=True) as started:
        started.create_topic("orders", queues=3)
        started.create_topic("empty", queues=3)
        with Producer(
            "tests", namesrv=started.namesrv, send_timeout_ms=60_000, call_timeout_ms=60_000
        ) as producer:
            for queue in producer.queues("orders"):
                messages = [Message("orders", f"{n}", tags="ab"[n % 2]) for n in range(100)]
                producer.send(messages, queue=queue)
        yield started


def reader(cluster: Cluster, kind: type[BatchReader] = BatchReader, **given: str) -> BatchReader:
    options = ReadOptions.from_spark(
        {"namesrvAddr": cluster.namesrv, "subscribe": "orders", **given}
    )
    return kind(options, table_projection())


def rows(reading: BatchReader) -> list[tuple[int, int]]:
    """What all tasks read, from partitions pickled as on the way to executors."""
    there = pickle.loads(pickle.dumps(reading))
    return [
        (row["queueId"], row["queueOffset"])
        for partition in reading.partitions()
        for batch in there.read(pickle.loads(pickle.dumps(partition)))
        for row in batch.to_pylist()
    ]


def test_a_batch_reads_everything_available(cluster: Cluster) -> None:
    assert sorted(rows(reader(cluster))) == [(q, n) for q in range(3) for n in range(100)]


def test_an_empty_topic_has_no_partitions_and_spark_makes_one_all_the_same(
    cluster: Cluster,
) -> None:
    reading = reader(cluster, subscribe="empty")

    assert reading.partitions() == []
    assert not list(reading.read(InputPartition(None)))


def test_there_are_as_many_partitions_as_the_option_says(cluster: Cluster) -> None:
    assert len(reader(cluster, minPartitions="7").partitions()) == 7
    small = reader(cluster, maxRecordsPerPartition="20").partitions()
    assert all(isinstance(one, QueuePartition) and one.rows <= 20 for one in small)


def test_a_missing_topic_is_refused(cluster: Cluster) -> None:
    with pytest.raises(TopicMissingError):
        reader(cluster, subscribe="nobody").partitions()


def test_filters_make_a_read_smaller_and_are_returned(cluster: Cluster) -> None:
    reading = reader(cluster, PushingReader)
    assert isinstance(reading, PushingReader)
    filters = [EqualTo(("queueId",), 1), In(("queueOffset",), (7, 8, 9)), EqualTo(("tags",), "a")]

    assert reading.pushFilters(filters) == filters

    assert rows(reading) == [(1, 8)]


def test_a_filter_on_tags_leaves_the_users_own_filter_alone(cluster: Cluster) -> None:
    reading = reader(cluster, PushingReader, tags="b")
    assert isinstance(reading, PushingReader)

    reading.pushFilters([EqualTo(("tags",), "a")])

    assert reading._options.tags == "b"


def test_only_the_worker_that_pushes_filters_gets_a_reader_that_takes_them(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, willing = reader(cluster), reader(cluster, pushFilters="true")
    assert not is_pushing_worker()
    assert type(reader_for(willing._options, made._projection)) is BatchReader

    monkeypatch.setitem(sys.modules, "pyspark.sql.worker.data_source_pushdown_filters", sys)

    assert type(reader_for(willing._options, made._projection)) is PushingReader
    assert type(reader_for(made._options, made._projection)) is BatchReader, "the option is off"
