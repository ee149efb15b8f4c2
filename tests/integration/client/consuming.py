"""Listeners that tests can wait for, and consumers with short intervals."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from orbitmq.client.aio.push.push_consumer import PushConsumer
from orbitmq.client.aio.sending.producer import Producer
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.clock import settle
from orbitmq.model.messages import Message
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import request
from orbitmq.protocol.requests.offsets import GetCommittedOffset, GetMaxOffset
from tests.integration.client.conftest import WAIT_SECONDS, Cluster

# Rounds that tests should not wait for.
QUICK: dict[str, Any] = {
    "rebalance_interval_ms": 500,
    "persist_interval_ms": 100,
    "heartbeat_interval_ms": 500,
    "route_interval_ms": 500,
    "pull_retry_ms": 50,
    "await_termination_ms": WAIT_SECONDS * 1000,
}


class Seen:
    """What listeners received, from any thread; tests can wait for it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.messages: list[ReceivedMessage] = []
        self._lock = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    def add(self, message: ReceivedMessage) -> None:
        """Record a message."""
        with self._lock:
            self.bodies.append(message.body)
            self.messages.append(message)
        self._loop.call_soon_threadsafe(self._changed.set)

    def plain(self, message: ReceivedMessage) -> None:
        """Be a plain listener."""
        self.add(message)

    async def awaited(self, message: ReceivedMessage) -> None:
        """Be an async listener."""
        self.add(message)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition on what was received."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():
                self._changed.clear()
                if condition():
                    return
                await self._changed.wait()

    async def count(self, count: int) -> None:
        """Wait for this many messages."""
        await self.until(lambda: len(self.bodies) >= count)

    async def all_of(self, bodies: set[bytes]) -> None:
        """Wait until each of these was received."""
        await self.until(lambda: bodies <= set(self.bodies))


def consumer_of(cluster: Cluster, group: str, **arguments: Any) -> PushConsumer:
    """Make a consumer that starts with the first message."""
    return PushConsumer(
        group, **{"namesrv": cluster.namesrv, "consume_from": "first", **QUICK, **arguments}
    )


async def send(cluster: Cluster, topic: str, *bodies: bytes, **arguments: Any) -> None:
    """Send messages in order."""
    async with Producer(namesrv=cluster.namesrv) as producer:
        for body in bodies:
            await producer.send(Message(topic, body, **arguments))


def numbered(count: int) -> list[bytes]:
    """Return distinct bodies."""
    return [b"%d" % number for number in range(count)]


async def committed(cluster: Cluster, group: str, topic: str, *, queues: int = 4) -> list[int]:
    """Return the group's committed offsets at the broker, by queue; -1 for none."""
    found: list[int] = []
    for queue_id in range(queues):
        header = GetCommittedOffset(consumer_group=group, topic=topic, queue_id=queue_id)
        reply = await cluster.rpc.invoke(cluster.address(), request(header))
        found.append(int(reply.fields["offset"]) if reply.code == ResponseCode.SUCCESS else -1)
    return found


async def ends(cluster: Cluster, topic: str, *, queues: int = 4) -> list[int]:
    """Return the offset after the last message, by queue."""
    return [
        int(
            (
                await cluster.rpc.call(
                    cluster.address(), GetMaxOffset(topic=topic, queue_id=queue_id)
                )
            ).fields["offset"]
        )
        for queue_id in range(queues)
    ]


async def until_committed(cluster: Cluster, group: str, topic: str, offsets: list[int]) -> None:
    """Wait until the broker has these offsets."""
    async with asyncio.timeout(WAIT_SECONDS):
        while await committed(cluster, group, topic, queues=len(offsets)) != offsets:
            await settle()
