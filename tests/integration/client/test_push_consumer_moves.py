"""The push consumer when its offset is outside the queue of the broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from tests.integration.client.conftest import WAIT_SECONDS, Cluster
from tests.integration.client.consuming import Seen, committed, consumer_of, numbered, send


class Moves:
    """Answers one pull like a broker that does not have the requested offset."""

    def __init__(self, topic: str, offset: int, *, first: int, end: int, next_offset: int) -> None:
        self._asked = {"topic": topic, "queueOffset": str(offset)}
        self._told = {
            "minOffset": str(first),
            "maxOffset": str(end),
            "nextBeginOffset": str(next_offset),
        }
        self.made = asyncio.Event()
        self.is_on = True

    def before_request(self, address: str, request: Command) -> None:
        """Let it pass."""

    def after_response(self, _address: str, request: Command, response: Command | None) -> None:
        if (
            self.is_on
            and response is not None
            and request.code == RequestCode.PULL_MESSAGE
            and self._asked.items() <= request.fields.items()
        ):
            response.code = ResponseCode.PULL_OFFSET_MOVED
            response.fields |= self._told
            response.body = b""
            self.made.set()


@asynccontextmanager
async def consuming_until_moved(
    cluster: Cluster, topic: str, group: str, moves: Moves
) -> AsyncIterator[threading.Event]:
    """Consume ten messages, the first of which waits, until the broker has moved the offset.

    All of them are to come once the event is set that this gives.
    """
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *numbered(10))
    seen, go_on = Seen(), threading.Event()

    def listen(message: ReceivedMessage) -> None:
        go_on.wait(WAIT_SECONDS)
        seen.add(message)

    consumer = consumer_of(cluster, group, on_message=listen, concurrency=1, rpc_hooks=[moves])
    consumer.subscribe(topic)
    async with consumer:
        await send(cluster, topic, b"wakes the pull that is held")
        await asyncio.wait_for(moves.made.wait(), WAIT_SECONDS)
        yield go_on
        await seen.all_of(set(numbered(10)))


async def test_unfinished_messages_that_the_broker_deleted_are_consumed_before_the_move(
    cluster: Cluster, topic: str, group: str
) -> None:
    moves = Moves(topic, 10, first=50, end=60, next_offset=50)

    async with consuming_until_moved(cluster, topic, group, moves) as go_on:
        assert await committed(cluster, group, topic, queues=1) in ([-1], [0])
        go_on.set()


async def test_unfinished_messages_are_redelivered_when_the_broker_lost_later_ones(
    cluster: Cluster, topic: str, group: str
) -> None:
    moves = Moves(topic, 10, first=0, end=8, next_offset=8)

    async with consuming_until_moved(cluster, topic, group, moves) as go_on:
        moves.is_on = False
        go_on.set()
