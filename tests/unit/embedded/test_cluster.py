"""Whole clusters in this process, seen by a client on sockets."""

from __future__ import annotations

import threading
from pathlib import Path

import psutil
import pytest

from orbitmq.embedded import Cluster
from orbitmq.errors import SettingsError, StateError


def test_a_cluster_leaves_nothing_behind() -> None:
    threads = threading.active_count()
    cluster = Cluster(brokers=2, in_memory=True)

    with cluster:
        assert cluster.brokers == ["broker-a", "broker-b"]
        cluster.create_topic("orders")
        folder = cluster._folder
        assert folder is not None
        assert folder.is_dir()

    assert not folder.exists()
    assert threading.active_count() == threads


def test_twenty_clusters_one_after_the_other_leave_nothing_behind() -> None:
    process = psutil.Process()
    with Cluster():
        pass
    threads, files = threading.active_count(), process.num_fds()

    for _ in range(20):
        with Cluster(in_memory=True) as cluster:
            cluster.ensure_topic("orders")
            cluster.ensure_topic("orders", queues=8)
            assert cluster.message_count("orders") == 0

    assert threading.active_count() == threads
    assert process.num_fds() <= files


async def test_a_cluster_is_used_from_a_loop_as_well() -> None:
    async with Cluster() as cluster:
        assert cluster.namesrv.startswith("127.0.0.1:")


def test_wrong_use_is_explained(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="1 to 26"):
        Cluster(brokers=0)
    with pytest.raises(SettingsError, match="leave one of both out"):
        Cluster(directory=tmp_path, in_memory=True)
    cluster = Cluster()
    cluster.stop()
    with pytest.raises(StateError, match="not started"):
        cluster.namesrv  # noqa: B018  # reading it is what fails
    with cluster:
        with pytest.raises(StateError, match="started before"):
            cluster.start()
        with pytest.raises(SettingsError, match="there are broker-a"):
            cluster.broker("broker-z")


def test_a_cluster_that_cannot_start_leaves_nothing_behind() -> None:
    threads = threading.active_count()
    cluster = Cluster(options={"flushDiskTyp": "ASYNC_FLUSH"})

    with pytest.raises(SettingsError, match="did you mean flushDiskType"):
        cluster.start()

    assert threading.active_count() == threads
    assert cluster._folder is not None
    assert not cluster._folder.exists()
