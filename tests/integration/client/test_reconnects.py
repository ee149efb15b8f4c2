"""A client that must reconnect again and again keeps nothing of old connections.

ORBITMQ_RECONNECTS sets how often; the usual number is small enough for every run.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from orbitmq import java_json
from orbitmq.errors import ConnectionLostError
from orbitmq.model.queues import MessageQueue
from orbitmq.model.routes import BrokerGroup, QueueRoute, TopicRoute
from orbitmq.protocol.command import Command
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.clients import Heartbeat
from orbitmq.protocol.requests.offsets import GetMaxOffset, OffsetReply
from orbitmq.protocol.requests.routing import GetRoute
from orbitmq.transport.connection import Connection
from orbitmq.transport.request_loop import Handler
from orbitmq.transport.rpc_server import RpcServer
from tests.integration.client.members import NotingConsumer, NotingProducer, instance_of
from tests.integration.transport.serving import LOCAL
from tests.waiting import until

RECONNECTS = int(os.environ.get("ORBITMQ_RECONNECTS", "1000"))
ROUNDS = 4
SECONDS_MAX = 240 + RECONNECTS // 10
QUEUE = MessageQueue(broker_name="fickle", queue_id=0, topic="T")


@dataclass
class FickleServer:
    """A name server and broker in one that ends each connection after one reply, or before."""

    address: str = ""
    connections: int = 0
    heartbeats: int = 0
    cuts: int = 0

    def route(self, _: Connection, request: Command) -> Command:
        found = TopicRoute(
            brokers=[BrokerGroup(addresses={0: self.address}, name="fickle", cluster="c")],
            queues=[QueueRoute(broker_name="fickle", permission=6, read_queues=1, write_queues=1)],
        )
        return request.reply(body=java_json.encode(found))

    def heartbeat(self, _: Connection, request: Command) -> Command:
        self.heartbeats += 1
        return request.reply()

    def max_offset(self, connection: Connection, request: Command) -> Command | None:
        self.connections += 1
        if self.connections % 10 == 0:
            # The client sees its connection break before the reply.
            self.cuts += 1
            connection.abort()
            return None
        asyncio.get_running_loop().call_soon(connection.close)
        return request.reply(OffsetReply(offset=Long(self.connections)))


@asynccontextmanager
async def running_fickle() -> AsyncIterator[FickleServer]:
    fickle = FickleServer()
    handlers: dict[int, Handler] = {
        GetRoute.CODE: fickle.route,
        Heartbeat.CODE: fickle.heartbeat,
        GetMaxOffset.CODE: fickle.max_offset,
    }
    server = RpcServer(handlers, config=LOCAL)
    await server.start()
    fickle.address = f"127.0.0.1:{server.port}"
    try:
        yield fickle
    finally:
        await server.stop()


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> None:
    """Replaces the usual check, which ends a test after 40 s: this test counts by itself."""


class Held(NamedTuple):
    """The resources of this process at one moment."""

    open_files: int
    tasks: int
    timers: int
    memory_blocks: int


def held() -> Held:
    gc.collect()
    timers = getattr(asyncio.get_running_loop(), "_scheduled", ())
    return Held(
        len([*Path("/proc/self/fd").iterdir()]),
        len(asyncio.all_tasks()),
        len(timers),
        sys.getallocatedblocks(),
    )


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files in /proc")
async def test_resources_do_not_grow_with_the_number_of_reconnects() -> None:
    # No periodic work: it would connect, too, and nothing would end those connections.
    day_ms = 86_400_000
    async with (
        running_fickle() as fickle,
        instance_of(
            fickle.address, heartbeat_interval_ms=day_ms, route_interval_ms=day_ms
        ) as instance,
    ):
        consumer = NotingConsumer("g", ["T"])
        await instance.add_producer(NotingProducer("p", ["T"]))
        await instance.add_consumer(consumer)

        async def reconnect(times: int) -> None:
            for _ in range(times):
                with suppress(ConnectionLostError):
                    await instance.brokers.max_offset(QUEUE, at_master=True)
                await until(lambda: not instance.rpc.connected)

        await reconnect(200)
        held_at = [held()]
        heartbeats, rebalances = fickle.heartbeats, consumer.rebalances
        for _ in range(ROUNDS):
            await reconnect(RECONNECTS // ROUNDS)
            held_at.append(held())

        assert fickle.connections == RECONNECTS + 200
        assert fickle.cuts == fickle.connections // 10
        # Each new connection brought a heartbeat; those of connections that were cut are lost.
        assert fickle.heartbeats - heartbeats > RECONNECTS // 2
        assert consumer.rebalances > rebalances
        # A leak grows in every round; other work in this process only in some rounds.
        growth = Held(
            *(
                min(later - sooner for sooner, later in itertools.pairwise(counts))
                for counts in zip(*held_at, strict=True)
            )
        )
        assert growth.open_files <= 2
        assert growth.tasks <= 2
        # asyncio sweeps cancelled timers once there are a hundred and they are the majority.
        assert held_at[-1].timers <= 250
        # One block per connection would be a leak.
        assert growth.memory_blocks < RECONNECTS // ROUNDS // 2
