"""Reading clients, kept from task to task."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

import pytest

from orbitmq.embedded import Cluster
from orbitmq.errors import StateError
from orbitmq.spark.options.read_options import ReadOptions
from orbitmq.spark.sessions import reader_pool
from orbitmq.spark.sessions.reader_pool import pooled_reader


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(in_memory=True) as started:
        started.create_topic("orders", queues=1)
        yield started


def options(cluster: Cluster, **given: str) -> ReadOptions:
    return ReadOptions.from_spark({"namesrvAddr": cluster.namesrv, "subscribe": "orders", **given})


def test_the_same_client_serves_one_task_after_the_other(cluster: Cluster) -> None:
    with pooled_reader(options(cluster)) as first:
        pass
    with (
        pooled_reader(options(cluster, properties="map")) as second,
        pooled_reader(options(cluster)) as third,
    ):
        assert first is second is third
        assert "orders" in first.topics()


def test_other_settings_of_the_connection_take_another_client(cluster: Cluster) -> None:
    with (
        pooled_reader(options(cluster)) as one,
        pooled_reader(options(cluster, pullTimeoutMs="7")) as other,
    ):
        assert one is not other


def test_clients_can_be_stopped(cluster: Cluster) -> None:
    with pooled_reader(options(cluster)) as first:
        pass

    reader_pool.stop_all()

    with pytest.raises(StateError, match="stopped"):
        first.topics()
    with pooled_reader(options(cluster)) as second:
        assert second is not first


def _topics_in_child(namesrv: str, found: multiprocessing.Queue[list[str]]) -> None:
    given = {"namesrvAddr": namesrv, "subscribe": "orders"}
    with pooled_reader(ReadOptions.from_spark(given)) as reader:
        found.put(reader.topics())


def test_a_forked_process_has_clients_of_its_own(cluster: Cluster) -> None:
    with pooled_reader(options(cluster)):
        forking = multiprocessing.get_context("fork")
        found = forking.Queue()
        child = forking.Process(target=_topics_in_child, args=(cluster.namesrv, found))
        child.start()

        assert "orders" in found.get(timeout=120)
        child.join(60)
