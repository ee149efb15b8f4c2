"""A name server and brokers in this process, on sockets, for clients under test."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orbitmq.broker.app import Broker
from orbitmq.broker.app import load_settings as load_broker_settings
from orbitmq.clock import ManualClock
from orbitmq.nameserver.app import NameServer
from orbitmq.nameserver.app import load_settings as load_name_server_settings
from orbitmq.protocol.requests.topics import UpdateTopic
from orbitmq.transport.rpc_client import RpcClient
from tests.integration.broker.conftest import SMALL_FILES
from tests.integration.client.chaos_site import chaos, chaos_processes
from tests.integration.transport.leaks import nothing_is_left_behind

__all__ = ["chaos", "chaos_processes", "nothing_is_left_behind"]

HERE = "127.0.0.1"
WAIT_SECONDS = 60

_numbers = itertools.count()


async def pass_time(clock: ManualClock, condition: Callable[[], bool]) -> None:
    """Advance the clock until a condition holds; sockets get real time in between."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await clock.advance(1000)


@dataclass
class Cluster:
    """A name server and its brokers, which keep their folder and port across restarts."""

    folder: Path
    rpc: RpcClient
    name_server: NameServer
    brokers: dict[str, Broker] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    options: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def namesrv(self) -> str:
        """The address of the name server, for clients."""
        return f"{HERE}:{self.name_server.port}"

    def address(self, name: str = "broker-a") -> str:
        """The address of a broker, running or stopped."""
        return f"{HERE}:{self.ports[name]}"

    async def start_broker(self, name: str = "broker-a", **options: str) -> Broker:
        """Start a broker: a new one, or a stopped one with its old folder and port."""
        self.options[name] = {**self.options.get(name, {}), **options}
        flags = {
            "bindAddress": HERE,
            "brokerIP1": HERE,
            "listenPort": str(self.ports.get(name, 0)),
            "brokerName": name,
            "namesrvAddr": self.namesrv,
            "storePathRootDir": str(self.folder / name / "store"),
            "flushDiskType": "ASYNC_FLUSH",
            "syncFlushTimeout": str(WAIT_SECONDS * 1000),
            **SMALL_FILES,
            **self.options[name],
        }
        broker = Broker(load_broker_settings(flags=flags))
        await broker.start()
        self.brokers[name] = broker
        self.ports[name] = broker.port
        return broker

    async def stop_broker(self, name: str = "broker-a") -> None:
        """Stop a broker cleanly: it unregisters, and finishes the work in flight."""
        await self.brokers.pop(name).stop()

    async def cut_connections(self, name: str = "broker-a") -> None:
        """Cut every connection of a broker, like a network failure; it keeps serving."""
        for connection in [
            open_one
            for server in self.brokers[name].serving.servers
            for open_one in server.connections
        ]:
            connection.abort("cut by the test")

    async def kill_broker(self, name: str = "broker-a") -> None:
        """Stop a broker in a way that looks like a crash to clients: cut first, then stop."""
        await self.cut_connections(name)
        await self.stop_broker(name)

    async def make_topic(self, topic: str, *, queues: int = 4, broker: str = "") -> None:
        """Create a topic on one broker, or on all, and wait until the name server knows it."""
        for name in [broker] if broker else [*self.brokers]:
            header = UpdateTopic(
                topic=topic,
                template_topic="TBW102",
                read_queues=queues,
                write_queues=queues,
                permission=6,
                filter_type="SINGLE_TAG",
            )
            await self.rpc.call(self.address(name), header)

    async def stop(self) -> None:
        """Stop everything that still runs."""
        for name in [*self.brokers]:
            await self.stop_broker(name)
        await self.rpc.stop()
        await self.name_server.stop()


async def start_name_server(folder: Path, *, port: int = 0) -> NameServer:
    """Start a name server, on a free port unless one is named."""
    flags = {
        "bindAddress": HERE,
        "listenPort": str(port),
        "kvConfigPath": str(folder / "kvConfig.json"),
    }
    name_server = NameServer(load_name_server_settings(flags=flags))
    await name_server.start()
    return name_server


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """A name server and the broker `broker-a`."""
    rpc = RpcClient()
    await rpc.start()
    cluster = Cluster(tmp_path, rpc, await start_name_server(tmp_path))
    try:
        await cluster.start_broker()
        yield cluster
    finally:
        await cluster.stop()


@pytest.fixture
def namesrv(cluster: Cluster) -> str:
    """The address of the name server."""
    return cluster.namesrv


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses; the topic is not created."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def group() -> str:
    """A group name that no other test uses."""
    return f"group-{next(_numbers)}"
