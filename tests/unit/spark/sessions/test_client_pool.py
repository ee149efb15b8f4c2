"""Clients shared by tasks."""

from __future__ import annotations

import os

import pytest

from orbitmq.errors import StateError
from orbitmq.spark.sessions.client_pool import ClientPool


class RecordingClient:
    """Records whether it was started and stopped."""

    def __init__(self, cluster: str, *, retries: int = 3) -> None:
        self.made_with = (cluster, retries)
        self.states: list[str] = []

    def start(self) -> None:
        if self.made_with[0] == "none":
            raise StateError("no cluster is there")
        self.states.append("started")

    def stop(self) -> None:
        self.states.append("stopped")


@pytest.fixture
def pool() -> ClientPool[..., RecordingClient]:
    return ClientPool(RecordingClient, idle_max=2)


def test_equal_arguments_give_the_same_running_client(
    pool: ClientPool[..., RecordingClient],
) -> None:
    with pool.lend("a", retries=1) as first:
        assert first.states == ["started"]

    with pool.lend("a", retries=1) as second, pool.lend("a", retries=1) as third:
        assert first is second is third
    assert first.states == ["started"]


def test_other_arguments_give_another(pool: ClientPool[..., RecordingClient]) -> None:
    with pool.lend("a") as one, pool.lend("a", retries=1) as other, pool.lend("b") as third:
        assert [each.made_with for each in (one, other, third)] == [("a", 3), ("a", 1), ("b", 3)]


def test_the_least_recently_used_one_is_stopped(pool: ClientPool[..., RecordingClient]) -> None:
    clients = {}
    for cluster in ("a", "b", "a", "c"):
        with pool.lend(cluster) as client:
            clients[cluster] = client

    assert len(pool) == 2
    assert clients["b"].states == ["started", "stopped"]
    assert clients["a"].states == clients["c"].states == ["started"]


def test_a_client_in_use_stays(pool: ClientPool[..., RecordingClient]) -> None:
    with pool.lend("used") as used:
        for cluster in ("a", "b", "c"):
            with pool.lend(cluster):
                pass

        assert used.states == ["started"]
        assert len(pool) == 3


def test_a_client_that_does_not_start_is_not_kept(pool: ClientPool[..., RecordingClient]) -> None:
    with pytest.raises(StateError, match="no cluster"), pool.lend("none"):
        pass

    assert len(pool) == 0


def test_a_stopped_client_is_replaced(pool: ClientPool[..., RecordingClient]) -> None:
    with pool.lend("a") as used:
        pool.stop_all()

        assert used.states == ["started", "stopped"]
        with pool.lend("a") as new:
            assert new is not used
    assert used.states == ["started", "stopped"]


def test_a_child_process_starts_with_none(pool: ClientPool[..., RecordingClient]) -> None:
    reading, writing = os.pipe()

    with pool.lend("a"):
        child = os.fork()
        if not child:
            os.write(writing, b"%d" % len(pool))
            os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)

    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b"0"
    assert len(pool) == 1
