"""Faults of an embedded cluster, and what is left after them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from orbitmq.client.aio.admin import Admin
from orbitmq.embedded import Cluster
from orbitmq.errors import ConnectionLostError, RemoteError, StateError
from orbitmq.protocol.codes import RequestCode
from orbitmq.transport.rpc_client import RpcClient
from tests.integration.broker.conftest import send_header

CALL_MS = 60_000.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, network_faults=True, seed=3) as cluster:
        cluster.create_topic("orders", queues=1)
        yield cluster


def send(cluster: Cluster, body: bytes, broker: str = "broker-a") -> None:
    async def one() -> None:
        async with RpcClient() as rpc:
            await rpc.call(
                cluster.broker(broker).address, send_header("orders"), body, timeout_ms=CALL_MS
            )

    asyncio.run(one())


def ends(cluster: Cluster) -> dict[str, int]:
    """How many messages each broker has."""

    async def ask() -> dict[str, int]:
        async with Admin(namesrv=cluster.namesrv, call_timeout_ms=60_000) as admin:
            bounds = await admin.topics.bounds("orders")
        return {queue.broker_name: one.max_offset for queue, one in bounds.items()}

    return asyncio.run(ask())


def test_a_killed_broker_comes_back_with_what_it_acknowledged(cluster: Cluster) -> None:
    send(cluster, b"kept")
    address = cluster.broker("broker-a").address

    assert cluster.faults.kill_broker("broker-a") == "broker-a"
    assert ends(cluster) == {"broker-b": 0}
    with pytest.raises(StateError, match="is not running"):
        cluster.broker("broker-a").address  # noqa: B018  # reading it is what fails
    cluster.faults.restart_broker("broker-a")

    assert ends(cluster) == {"broker-a": 1, "broker-b": 0}
    assert cluster.broker("broker-a").address == address
    send(cluster, b"another")
    assert ends(cluster)["broker-a"] == 2


def test_a_broker_is_drawn_by_the_seed_as_long_as_one_runs(cluster: Cluster) -> None:
    stopped = {cluster.faults.stop_broker(), cluster.faults.stop_broker()}

    assert stopped == {"broker-a", "broker-b"}
    with pytest.raises(StateError, match="no broker is running"):
        cluster.faults.kill_broker()
    cluster.faults.restart_broker("broker-a")
    with pytest.raises(StateError, match="already running"):
        cluster._loop.call(cluster.broker("broker-a").start())


def test_a_broker_whose_disk_failed_takes_nothing_until_it_is_restarted(cluster: Cluster) -> None:
    assert cluster.faults.fail_disk("broker-b") == "broker-b"
    with pytest.raises(RemoteError, match="injected"):
        send(cluster, b"refused", "broker-b")

    cluster.faults.restart_broker("broker-b")
    send(cluster, b"taken", "broker-b")

    assert ends(cluster)["broker-b"] == 1


def test_connections_are_dropped_refused_and_delayed(cluster: Cluster) -> None:
    async def exchange() -> None:
        async with RpcClient() as rpc:
            address = cluster.broker().address
            await rpc.call(address, send_header("orders"), b"one", timeout_ms=CALL_MS)
            assert await asyncio.to_thread(cluster.faults.drop_connections, "broker-a") == 1
            cluster.faults.refuse_connections("broker-a")
            with pytest.raises(ConnectionLostError):
                await rpc.call(address, send_header("orders"), b"two", timeout_ms=CALL_MS)
            cluster.faults.refuse_connections("broker-a", refuse=False)
            cluster.faults.delay_connections("broker-a", delay_ms=30)
            begun = asyncio.get_running_loop().time()
            await rpc.call(address, send_header("orders"), b"three", timeout_ms=CALL_MS)
            assert asyncio.get_running_loop().time() - begun >= 0.06

    asyncio.run(exchange())

    assert ends(cluster)["broker-a"] == 2


def test_requests_of_one_kind_wait_until_they_are_released(cluster: Cluster) -> None:
    async def exchange() -> None:
        async with (
            RpcClient() as rpc,
            Admin(namesrv=cluster.namesrv, call_timeout_ms=60_000) as admin,
        ):
            address = cluster.broker().address
            sending = asyncio.ensure_future(
                rpc.call(address, send_header("orders"), b"late", timeout_ms=CALL_MS)
            )
            # Asked of the same broker, by others.
            bounds = await admin.topics.bounds("orders")
            assert {one.max_offset for one in bounds.values()} == {0}
            await asyncio.to_thread(
                cluster.faults.let_requests_go, "broker-a", RequestCode.SEND_MESSAGE_V2
            )
            await sending

    cluster.faults.hold_requests("broker-a", RequestCode.SEND_MESSAGE_V2)
    asyncio.run(exchange())

    assert ends(cluster)["broker-a"] == 1


def test_without_a_relay_the_network_cannot_fail() -> None:
    with Cluster() as cluster, pytest.raises(StateError, match="network_faults=True"):
        cluster.faults.drop_connections()
