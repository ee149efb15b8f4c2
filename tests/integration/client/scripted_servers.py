"""Scripted servers: a name server, and brokers that reply to sends and store nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from orbitmq import java_json
from orbitmq.model.routes import BrokerGroup, QueueRoute, TopicRoute
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.routing import GetRoute
from orbitmq.protocol.requests.sending import SendMessageShort, SendReply
from orbitmq.transport.connection import Connection
from orbitmq.transport.rpc_server import RpcServer
from tests.integration.transport.serving import LOCAL

HERE: Final = "127.0.0.1"

# Returns the reply to a request; None sends no reply.
Script = Callable[[Command], Command | None]


def stored(request: Command, code: int = ResponseCode.SUCCESS) -> Command:
    """Reply that a message was stored."""
    asked = SendMessageShort.decode(request.fields)
    header = SendReply(
        message_id="7F00000100002A9F0000000000000000", queue_id=asked.queue_id, queue_offset=Long(0)
    )
    return request.reply(header, code=code)


def failed(code: int, remark: str = "scripted") -> Script:
    """Reply with a failure code."""
    return lambda request: request.reply(code=code, remark=remark)


def silent(_: Command) -> None:
    """Never reply."""


@dataclass
class ScriptedBroker:
    """A broker that follows a script, and records the sends."""

    name: str
    script: Script = stored
    queues: int = 4
    sends: list[Command] = field(default_factory=list)
    heartbeats: list[Command] = field(default_factory=list)
    left: list[Command] = field(default_factory=list)
    server: RpcServer = field(init=False)
    address: str = ""

    def __post_init__(self) -> None:
        self.server = RpcServer(
            {
                RequestCode.SEND_MESSAGE_V2: self._send,
                RequestCode.SEND_BATCH_MESSAGE: self._send,
                RequestCode.HEART_BEAT: self._heartbeat,
                RequestCode.UNREGISTER_CLIENT: self._leave,
            },
            config=LOCAL,
        )

    async def start(self) -> None:
        await self.server.start()
        self.address = f"{HERE}:{self.server.port}"

    async def _send(self, _: Connection, request: Command) -> Command | None:
        self.sends.append(request)
        return self.script(request)

    def _heartbeat(self, _: Connection, request: Command) -> Command:
        self.heartbeats.append(request)
        return request.reply()

    def _leave(self, _: Connection, request: Command) -> Command:
        self.left.append(request)
        return request.reply()


@dataclass
class ScriptedCluster:
    """A name server and scripted brokers; every topic is on all of them."""

    brokers: dict[str, ScriptedBroker]
    # Topics without a route.
    missing: set[str] = field(default_factory=set)
    routes_asked: list[str] = field(default_factory=list)
    server: RpcServer = field(init=False)
    # Addresses of brokers in routes that differ from the real ones.
    moved: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.server = RpcServer({RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route}, config=LOCAL)

    @property
    def namesrv(self) -> str:
        return f"{HERE}:{self.server.port}"

    def __getitem__(self, name: str) -> ScriptedBroker:
        return self.brokers[name]

    @property
    def sends(self) -> list[Command]:
        return [sent for broker in self.brokers.values() for sent in broker.sends]

    def _route(self, _: Connection, request: Command) -> Command:
        topic = GetRoute.decode(request.fields).topic
        self.routes_asked.append(topic)
        if topic in self.missing:
            return request.reply(
                code=ResponseCode.TOPIC_NOT_EXIST, remark=f"no route for topic {topic!r}"
            )
        route = TopicRoute(
            brokers=[
                BrokerGroup(
                    addresses={0: self.moved.get(name, broker.address)}, name=name, cluster="c"
                )
                for name, broker in self.brokers.items()
            ],
            queues=[
                QueueRoute(
                    broker_name=name,
                    permission=6,
                    read_queues=broker.queues,
                    write_queues=broker.queues,
                )
                for name, broker in self.brokers.items()
            ],
        )
        return request.reply(body=java_json.encode(route))


@asynccontextmanager
async def scripted_cluster(*brokers: ScriptedBroker) -> AsyncIterator[ScriptedCluster]:
    """Run scripted brokers and their name server."""
    cluster = ScriptedCluster({broker.name: broker for broker in brokers})
    await cluster.server.start()
    for broker in brokers:
        await broker.start()
    try:
        yield cluster
    finally:
        servers = [cluster.server, *(broker.server for broker in brokers)]
        await asyncio.gather(*(server.stop() for server in servers))
