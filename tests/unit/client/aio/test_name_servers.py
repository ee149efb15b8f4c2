"""A client goes on to the next name server when one does not answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orbitmq.client.aio.name_servers import NameServers
from orbitmq.errors import ConnectError, RouteNotFoundError, SettingsError
from orbitmq.nameserver.app import NameServer, load_settings
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


async def test_an_answer_that_says_no_is_an_answer(tmp_path: Path, rpc: RpcClient) -> None:
    server = await started(tmp_path)
    address = f"127.0.0.1:{server.port}"
    name_servers = NameServers([address, "127.0.0.1:1"], rpc)

    with pytest.raises(RouteNotFoundError, match="create the topic"):
        await name_servers.route("nobody has this")

    assert name_servers.chosen == address
    await server.stop()


async def test_the_last_failure_is_told_when_none_answers(rpc: RpcClient) -> None:
    with pytest.raises(ConnectError, match=r"127\.0\.0\.1:2"):
        await NameServers(["127.0.0.1:1", "127.0.0.1:2"], rpc).cluster_view()


def test_an_empty_list_says_what_to_set(rpc: RpcClient) -> None:
    with pytest.raises(SettingsError, match="set namesrvAddr"):
        NameServers([], rpc)
