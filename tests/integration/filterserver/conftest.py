"""A broker and a filter server in this process, on sockets, with filter functions installed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orbitmq.filterserver.app import FilterServer, load_settings
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command, request
from orbitmq.protocol.headers import Header, Long
from orbitmq.protocol.requests.filter_servers import RegisterFilterClass
from orbitmq.protocol.requests.pulling import PullFlag, PullMessages
from orbitmq.record.decode import StoredMessage, decode_records
from orbitmq.transport.rpc_client import RpcClient
from tests.integration.broker.conftest import WAIT_SECONDS, send_header
from tests.integration.client.conftest import HERE, Cluster, cluster
from tests.integration.filterserver import plugins

__all__ = ["cluster"]


@dataclass
class Site:
    """A filter server, its broker, and a consumer that speaks the protocol."""

    cluster: Cluster
    server: FilterServer
    rpc: RpcClient

    async def ask(self, header: Header, body: bytes = b"") -> Command:
        return await self.rpc.invoke(
            self.server.address, request(header, body), timeout_ms=WAIT_SECONDS * 1000
        )

    async def send(self, *bodies: bytes, topic: str = "T", **properties: Any) -> None:
        for body in bodies:
            reply = await self.rpc.invoke(
                self.cluster.address(), request(send_header(topic, **properties), body)
            )
            assert reply.code == ResponseCode.SUCCESS, reply.remark

    async def pull(self, name: str | None, offset: int = 0, **rest: Any) -> Command:
        return await self.ask(pull_header(name, offset, **rest))

    async def read(self, name: str | None, offset: int = 0, **rest: Any) -> list[StoredMessage]:
        reply = await self.pull(name, offset, **rest)
        assert reply.code in {ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY}, reply
        return decode_records(reply.body)

    async def name_class(self, name: str, source: bytes = b"", **rest: Any) -> Command:
        named = {"consumer_group": "g", "topic": "T", "class_name": name, "class_crc": 1, **rest}
        return await self.ask(RegisterFilterClass(**named), source)


def pull_header(
    name: str | None,
    offset: int = 0,
    *,
    group: str = "g",
    topic: str = "T",
    count_max: int = 32,
    hold_ms: int = 0,
) -> PullMessages:
    """Make a pull as our consumers send it; without a name, as Java's do."""
    flag = PullFlag.CLASS_FILTER | (PullFlag.SUSPEND if hold_ms else PullFlag(0))
    return PullMessages(
        consumer_group=group,
        topic=topic,
        queue_id=0,
        queue_offset=Long(offset),
        messages_max=count_max,
        system_flag=int(flag),
        commit_offset=Long(0),
        suspend_timeout_ms=Long(hold_ms),
        expression=name,
        subscription_version=Long(0),
    )


async def start_filter_server(broker: str, **options: str) -> FilterServer:
    flags = {"bindAddress": HERE, "connectWhichBroker": broker, **options}
    server = FilterServer(load_settings(flags=flags))
    await server.start()
    return server


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugins.install(tmp_path / "plugins", monkeypatch)


@pytest.fixture
def options() -> dict[str, str]:
    """Options of the filter server; a test overrides this fixture to set some."""
    return {}


@pytest.fixture
async def site(
    cluster: Cluster,
    installed: None,  # noqa: ARG001  # what it finds
    options: dict[str, str],
) -> AsyncIterator[Site]:
    await cluster.make_topic("T", queues=1)
    server = await start_filter_server(cluster.address(), **options)
    async with RpcClient() as rpc:
        yield Site(cluster, server, rpc)
    await server.stop()
