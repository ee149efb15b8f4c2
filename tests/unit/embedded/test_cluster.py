"""Whole clusters in this process, seen by a client on sockets."""

from __future__ import annotations

import threading
from pathlib import Path

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
