"""A name server in this process, on a socket, with a clock moved by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.model.topics import TopicConfig
from orbitmq.model.versions import OUR_VERSION, DataVersion
from orbitmq.nameserver.app import NameServer, load_settings
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import Command, request
from orbitmq.protocol.frame import Encoding
from orbitmq.protocol.headers import Header, Long
from orbitmq.protocol.requests.registration import RegisterBroker, encode_register_body
from orbitmq.transport.rpc_client import RpcClient


@dataclass
class Peer:
    """A client of the server under test, with a connection of its own."""

    address: str
    rpc: RpcClient
    encoding: Encoding = Encoding.JSON

    async def ask(
        self, header: Header, body: bytes = b"", *, version: int = OUR_VERSION
    ) -> Command:
        asked = request(header, body, encoding=self.encoding)
        asked.version = version
        return await self.rpc.invoke(self.address, asked)

    async def ask_code(self, code: RequestCode, **fields: str) -> Command:
        return await self.rpc.invoke(
            self.address, Command(code=code, fields=fields, encoding=self.encoding)
        )

    async def report(
        self,
        *topics: str,
        name: str = "broker-a",
        cluster: str = "C",
        broker_id: int = 0,
        address: str = "10.0.0.1:10911",
        version: int = 1,
        epoch: int = 0,
        unit_flag: int = 0,
    ) -> Command:
        table = {
            topic: TopicConfig(name=topic, read_queues=4, write_queues=4, unit_flag=unit_flag)
            for topic in topics
        }
        return await self.ask(
            RegisterBroker(
                broker_name=name,
                broker_address=address,
                cluster_name=cluster,
                broker_id=Long(broker_id),
                ha_address=f"{address}-ha",
            ),
            encode_register_body(table, DataVersion(counter=version, state_version=epoch)),
        )


@dataclass
class Site:
    """The server under test and what it stands on."""

    server: NameServer
    clock: ManualClock
    folder: Path
    connect: Callable[[], Awaitable[Peer]]


@pytest.fixture
def options() -> dict[str, str]:
    """Options of the server; a test overrides this fixture to set some."""
    return {}


@pytest.fixture(params=Encoding, ids=lambda encoding: encoding.name.lower())
def encoding(request: pytest.FixtureRequest) -> Encoding:
    value: Encoding = request.param
    return value


@pytest.fixture
async def site(tmp_path: Path, options: dict[str, str]) -> AsyncIterator[Site]:
    clock = ManualClock()
    config_file = tmp_path / "namesrv.conf"
    config_file.write_text("# kept\nlistenPort=0\n")
    flags = {
        "bindAddress": "127.0.0.1",
        "kvConfigPath": str(tmp_path / "kvConfig.json"),
        **options,
    }
    server = NameServer(
        load_settings(file=config_file, flags=flags), clock=clock, config_file=config_file
    )
    await server.start()
    async with AsyncExitStack() as peers:

        async def connect() -> Peer:
            rpc = await peers.enter_async_context(RpcClient())
            return Peer(f"127.0.0.1:{server.port}", rpc)

        yield Site(server, clock, tmp_path, connect)
    await server.stop()


@pytest.fixture
async def peer(site: Site, encoding: Encoding) -> Peer:
    connected = await site.connect()
    connected.encoding = encoding
    return connected
