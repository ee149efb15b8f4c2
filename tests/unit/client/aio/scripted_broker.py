"""A name server and broker in one, which replies to pulls as the test scripts it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from orbitmq import java_json
from orbitmq.client.aio.instance.client_instance import ClientInstance
from orbitmq.client.options import ClientOptions
from orbitmq.clock import SystemClock
from orbitmq.model.queues import MessageQueue, QueueOffset
from orbitmq.model.routes import BrokerGroup, QueueRoute, TopicRoute
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.offsets import OffsetReply
from orbitmq.protocol.requests.pulling import PullMessages, PullReply
from orbitmq.record.properties import encode_properties
from orbitmq.transport.config import ServerConfig
from orbitmq.transport.connection import Connection
from orbitmq.transport.rpc_server import RpcServer
from tests.unit.record.sample_records import KNOWN

TOPIC: Final = "orders"
QUEUE: Final = MessageQueue(broker_name="broker-a", queue_id=1, topic=TOPIC)


def records(*offsets: int, tags: str = "") -> bytes:
    """Messages of the queue, as a broker sends them."""
    properties = encode_properties({"TAGS": tags} if tags else {})
    return b"".join(
        replace(
            KNOWN,
            topic=TOPIC.encode(),
            body=b"at %d" % offset,
            queue_id=QUEUE.queue_id,
            queue_offset=QueueOffset(offset),
            properties=properties,
        ).encode()
        for offset in offsets
    )


def answer(
    request: Command,
    *,
    next_offset: int,
    body: bytes = b"",
    code: int = ResponseCode.SUCCESS,
    suggested: int = 0,
    min_offset: int = 0,
) -> Command:
    """Make the reply to a pull."""
    header = PullReply(
        suggested_broker_id=Long(suggested),
        next_offset=Long(next_offset),
        min_offset=Long(min_offset),
        max_offset=Long(100),
    )
    return request.reply(header, code=code, body=body)


class ScriptedBroker:
    """Its port, the pulls it received, and its scripted replies."""

    def __init__(self, *, knows_lite_pulls: bool = True) -> None:
        self.pulls: list[tuple[int, PullMessages]] = []
        self.answers: asyncio.Queue[Callable[[Command], Command]] = asyncio.Queue()
        codes = [RequestCode.PULL_MESSAGE]
        if knows_lite_pulls:
            codes.append(RequestCode.LITE_PULL_MESSAGE)
        self.server = RpcServer(
            {
                **dict.fromkeys(codes, self._pull),
                RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            },
            config=ServerConfig(bind_address="127.0.0.1", shutdown_grace_seconds=1),
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def found(self, *offsets: int, tags: str = "", suggested: int = 0) -> None:
        """Make the next pull find these messages."""
        self.answers.put_nowait(
            lambda request: answer(
                request,
                next_offset=offsets[-1] + 1,
                body=records(*offsets, tags=tags),
                suggested=suggested,
            )
        )

    def nothing(self, code: int, *, next_offset: int, min_offset: int = 0) -> None:
        """Make the next pull find nothing."""
        self.answers.put_nowait(
            lambda request: answer(
                request, next_offset=next_offset, code=code, min_offset=min_offset
            )
        )

    def fail(self, code: int, remark: str) -> None:
        """Make the next pull fail."""
        self.answers.put_nowait(lambda request: request.reply(code=code, remark=remark))

    async def _pull(self, _: Connection, request: Command) -> Command:
        self.pulls.append((request.code, PullMessages.decode(request.fields)))
        return (await self.answers.get())(request)

    def _search(self, _: Connection, request: Command) -> Command:
        # Whatever was read is older than all that is asked for.
        return request.reply(OffsetReply(offset=Long(100)))

    def _route(self, _: Connection, request: Command) -> Command:
        route = TopicRoute(
            brokers=[
                BrokerGroup(
                    addresses={0: self.address, 1: f"localhost:{self.server.port}"},
                    name=QUEUE.broker_name,
                    cluster="DefaultCluster",
                )
            ],
            queues=[
                QueueRoute(
                    broker_name=QUEUE.broker_name, permission=6, read_queues=2, write_queues=2
                )
            ],
        )
        return request.reply(body=java_json.encode(route))


@asynccontextmanager
async def scripted_broker(
    *, knows_lite_pulls: bool = True
) -> AsyncIterator[tuple[ScriptedBroker, ClientInstance]]:
    """Run a broker, and a client that knows it."""
    broker = ScriptedBroker(knows_lite_pulls=knows_lite_pulls)
    await broker.server.start()
    instance = ClientInstance(
        "127.0.0.1@test",
        ClientOptions(namesrv=broker.address),
        address="127.0.0.1",
        clock=SystemClock(),
    )
    await instance.start()
    try:
        await instance.routes.refresh(TOPIC)
        yield broker, instance
    finally:
        await instance.stop()
        # Pulls without a reply would delay the stop of the server by its whole grace.
        for _ in broker.pulls:
            broker.nothing(ResponseCode.PULL_NOT_FOUND, next_offset=0)
        await broker.server.stop()
