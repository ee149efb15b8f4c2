"""The fault proxy injects the faults it is given, and no others."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from orbitmq.clock import SystemClock
from orbitmq.errors import CallTimeoutError, ConnectError, ConnectionLostError, TransportError
from orbitmq.nameserver.app import NameServer, load_settings
from orbitmq.protocol.requests.routing import GetClusterView
from orbitmq.transport.rpc_client import RpcClient
from tests.integration.client.fault_proxy import (
    BLACK_HOLE,
    CUT_REPLY,
    CUT_REQUEST,
    PASS,
    REFUSE,
    RESET,
    Delay,
    Fault,
    FaultProxy,
    Throttle,
    Weather,
)
from tests.integration.conftest import PATIENCE_MS
from tests.waiting import until

CLOCK = SystemClock()
TIMEOUT_MS = 300


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[str]:
    """A name server for the proxy to stand in front of."""
    flags = {
        "listenPort": "0",
        "bindAddress": "127.0.0.1",
        "kvConfigPath": str(tmp_path / "kv.json"),
    }
    server = NameServer(load_settings(flags=flags))
    await server.start()
    yield f"127.0.0.1:{server.port}"
    await server.stop()


@pytest.fixture
def proxy(target: str) -> Iterator[FaultProxy]:
    with FaultProxy(target, seed=1) as made:
        yield made


@pytest.fixture
async def rpc() -> AsyncIterator[RpcClient]:
    async with RpcClient() as client:
        yield client


async def ask(rpc: RpcClient, proxy: FaultProxy, *, timeout_ms: float = PATIENCE_MS) -> None:
    await rpc.call(proxy.address, GetClusterView(), timeout_ms=timeout_ms)


async def control(work: object, *arguments: object) -> None:
    """Control the proxy from a thread, not from the loop that the target runs on."""
    await asyncio.to_thread(work, *arguments)  # type: ignore[arg-type]  # any method of the proxy


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (CUT_REPLY, ConnectionLostError),
        (CUT_REQUEST, ConnectionLostError),
        (RESET, ConnectionLostError),
        (BLACK_HOLE, CallTimeoutError),
        (REFUSE, ConnectError),
        (Delay(PATIENCE_MS, PATIENCE_MS), CallTimeoutError),
        (Throttle(50), CallTimeoutError),
    ],
    ids=repr,
)
async def test_fault_lasts_from_inflict_to_heal(
    rpc: RpcClient, proxy: FaultProxy, fault: Fault, error: type[TransportError]
) -> None:
    await ask(rpc, proxy)

    await control(proxy.inflict, fault)
    if fault is REFUSE:
        # The close of the open connection has not arrived yet.
        await until(lambda: not rpc.connected)
    timeout_ms = TIMEOUT_MS if error is CallTimeoutError else PATIENCE_MS
    for _ in range(2):
        with pytest.raises(error):
            await ask(rpc, proxy, timeout_ms=timeout_ms)
    await control(proxy.cut)
    await control(proxy.inflict, PASS)
    with_luck = [await _answered(rpc, proxy) for _ in range(3)]

    # A call may still use the connection that was cut.
    assert with_luck[-1]


async def _answered(rpc: RpcClient, proxy: FaultProxy) -> bool:
    try:
        await ask(rpc, proxy)
    except TransportError:
        return False
    return True


async def test_delayed_reply_arrives_late_but_whole(rpc: RpcClient, proxy: FaultProxy) -> None:
    await control(proxy.inflict, Delay(150, 200))
    start_ms = CLOCK.monotonic_ms()

    await ask(rpc, proxy)

    assert CLOCK.monotonic_ms() - start_ms >= 150
    assert proxy.counts["reply slowed"] == 1


async def test_same_seed_makes_the_same_weather(rpc: RpcClient, target: str) -> None:
    weather = Weather(((PASS, 3), (CUT_REPLY, 1), (CUT_REQUEST, 1)))
    outcomes = []
    for _ in range(2):
        with FaultProxy(target, seed=7) as proxy:
            await control(proxy.inflict, weather)
            outcomes.append([await _answered(rpc, proxy) for _ in range(40)])

    assert outcomes[0] == outcomes[1]
    assert set(outcomes[0]) == {True, False}


async def test_addresses_are_renamed_in_replies(rpc: RpcClient, target: str) -> None:
    with FaultProxy(target, renames={"brokerAddrTable": "brokerAddrGone!"}) as proxy:
        reply = await rpc.call(proxy.address, GetClusterView())

    assert b"brokerAddrGone!" in reply.body


def test_a_connection_that_comes_as_the_proxy_begins_to_refuse_is_not_left_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as target:
        host, port = target.getsockname()
        with FaultProxy(f"{host}:{port}") as proxy:
            for _ in range(100):
                with socket.socket() as client:
                    client.setblocking(False)
                    client.connect_ex(("127.0.0.1", proxy.port))
                    proxy.inflict(REFUSE)
                proxy.heal()
    # Warns of sockets that nobody closed, which fails the test.
    gc.collect()
