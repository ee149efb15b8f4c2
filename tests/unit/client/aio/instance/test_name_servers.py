"""A client switches to the next name server when one does not reply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orbitmq.client.aio.instance.name_servers import NameServers
from orbitmq.clock import ManualClock, settle
from orbitmq.errors import NameServersUnreachableError, RouteNotFoundError, SettingsError
from orbitmq.nameserver.app import NameServer, load_settings
from orbitmq.protocol.requests.routing import GetClusterView
from orbitmq.transport.rpc_client import RpcClient


async def started(folder: Path) -> NameServer:
    flags = {"bindAddress": "127.0.0.1", "listenPort": "0", "kvConfigPath": str(folder / "kv.json")}
    server = NameServer(load_settings(flags=flags))
    await server.start()
    return server


@pytest.fixture
async def rpc() -> AsyncIterator[RpcClient]:
    async with RpcClient() as client:
        yield client


async def test_the_next_one_is_asked_when_the_chosen_one_dies(
    tmp_path: Path, rpc: RpcClient
) -> None:
    first, second = await started(tmp_path), await started(tmp_path)
    addresses = [f"127.0.0.1:{server.port}" for server in (first, second)]
    name_servers = NameServers(addresses, rpc)
    await name_servers.cluster_view()
    assert name_servers.chosen == addresses[0]

    await first.stop()
    await name_servers.cluster_view()

    assert name_servers.chosen == addresses[1]
    await second.stop()


async def test_a_failure_code_does_not_switch_the_name_server(
    tmp_path: Path, rpc: RpcClient
) -> None:
    server = await started(tmp_path)
    address = f"127.0.0.1:{server.port}"
    name_servers = NameServers([address, "127.0.0.1:1"], rpc)

    with pytest.raises(RouteNotFoundError, match="create the topic"):
        await name_servers.route("nobody has this")

    assert name_servers.chosen == address
    await server.stop()


async def test_the_error_lists_every_failure_if_no_name_server_replies(rpc: RpcClient) -> None:
    with pytest.raises(
        NameServersUnreachableError, match=r"127\.0\.0\.1:1.*127\.0\.0\.1:2.*and namesrv or"
    ):
        await NameServers(["127.0.0.1:1", "127.0.0.1:2"], rpc).cluster_view()


async def test_concurrent_failures_switch_only_once(tmp_path: Path, rpc: RpcClient) -> None:
    server = await started(tmp_path)
    address = f"127.0.0.1:{server.port}"
    name_servers = NameServers(["127.0.0.1:1", address], rpc)

    await asyncio.gather(*(name_servers.cluster_view() for _ in range(4)))

    assert name_servers.chosen == address
    await server.stop()


async def test_the_chosen_one_stays_when_the_list_changes(rpc: RpcClient) -> None:
    name_servers = NameServers(["127.0.0.1:1", "127.0.0.1:2"], rpc)

    name_servers.update(["127.0.0.1:3", "127.0.0.1:1"])
    assert name_servers.chosen == "127.0.0.1:1"

    name_servers.update(["127.0.0.1:4"])
    assert name_servers.chosen == "127.0.0.1:4"


async def test_an_empty_list_says_what_to_set(rpc: RpcClient) -> None:
    with pytest.raises(SettingsError, match="set namesrvAddr"):
        await NameServers([], rpc).cluster_view()


async def test_silent_name_servers_share_the_time() -> None:
    clock = ManualClock()
    connections = asyncio.Semaphore(0)

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.release()
        await reader.read()
        writer.close()

    first, second = [await asyncio.start_server(hold, "127.0.0.1", 0) for _ in range(2)]
    addresses = [f"127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in (first, second)]
    async with first, second, RpcClient(clock=clock) as rpc:
        name_servers = NameServers(addresses, rpc, clock=clock)
        asking = asyncio.create_task(name_servers.ask(GetClusterView(), timeout_ms=300))
        for _ in addresses:
            await connections.acquire()
            await settle()
            assert not asking.done()
            # A call times out a few milliseconds late.
            await clock.advance(155)
        with pytest.raises(NameServersUnreachableError) as unreachable:
            await asking

        for address in addresses:
            assert f"no answer from {address}" in str(unreachable.value)
        await rpc.stop()
