"""The push consumer when it is stopped or used at the wrong moment."""

from __future__ import annotations

import asyncio
import threading

import pytest

from orbitmq.client.aio.instance import instances
from orbitmq.client.aio.sending.producer import Producer
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.clock import settle
from orbitmq.model.messages import Message
from tests.integration.client.conftest import WAIT_SECONDS, Cluster
from tests.integration.client.consuming import Seen, committed, consumer_of, send
from tests.waiting import until


@pytest.mark.parametrize("kind", ["plain", "awaited"])
async def test_an_ordered_consumer_that_stops_unlocks_queues_that_had_no_turn_yet(
    cluster: Cluster, topic: str, group: str, kind: str
) -> None:
    await cluster.make_topic(topic)
    async with Producer(namesrv=cluster.namesrv) as producer:
        for queue in await producer.queues(topic):
            await producer.send(Message(topic, b"one"), queue=queue)
    begun: list[ReceivedMessage] = []
    go_on = threading.Event()
    may_end = asyncio.Event()

    def plain(message: ReceivedMessage) -> None:
        begun.append(message)
        go_on.wait(WAIT_SECONDS)

    async def awaited(message: ReceivedMessage) -> None:
        begun.append(message)
        await may_end.wait()

    consumer = consumer_of(
        cluster,
        group,
        on_message=plain if kind == "plain" else awaited,
        ordered=True,
        concurrency=1,
    )
    consumer.subscribe(topic)
    await consumer.start()
    member = consumer._member
    assert member is not None
    await until(lambda: member._consumption.pool.waiting == 3)

    stopping = asyncio.create_task(consumer.stop())
    await until(lambda: member._consumption._stopping)  # type: ignore[attr-defined]
    go_on.set()
    may_end.set()
    async with asyncio.timeout(WAIT_SECONDS / 2):
        await stopping

    assert not member._rebalancing._locks.held


async def test_a_stop_whose_caller_gives_up_leaves_nothing_running(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic)
    await send(cluster, topic, b"one")
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def listen(_message: ReceivedMessage) -> None:
        begun.set()
        await may_end.wait()

    consumer = consumer_of(cluster, group, on_message=listen)
    consumer.subscribe(topic)
    await consumer.start()
    await begun.wait()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(consumer.stop(), 0.2)
    may_end.set()
    async with asyncio.timeout(WAIT_SECONDS / 2):
        await consumer.stop()

    names = {task.get_name() for task in asyncio.all_tasks()}
    assert f"rebalance {group}" not in names
    assert not [key for key in instances._entries if key[0] is asyncio.get_running_loop()]


async def test_a_stop_during_the_start_leaves_nothing_running(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic)
    consumer = consumer_of(cluster, group, on_message=Seen().awaited)
    consumer.subscribe(topic)

    before = asyncio.all_tasks()
    starting = asyncio.create_task(consumer.start())
    await settle(1)
    async with asyncio.timeout(WAIT_SECONDS / 2):
        await consumer.stop()
    await asyncio.gather(starting, return_exceptions=True)

    left = {task.get_name() for task in asyncio.all_tasks() - before}
    assert not left & {"expired pulls", "overdue messages", f"rebalance {group}"}
    assert not [key for key in instances._entries if key[0] is asyncio.get_running_loop()]


async def test_an_async_listener_may_stop_its_consumer(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, b"one")
    stopped = asyncio.Event()

    async def listen(_message: ReceivedMessage) -> None:
        await consumer.stop()
        stopped.set()

    consumer = consumer_of(cluster, group, on_message=listen)
    consumer.subscribe(topic)
    await consumer.start()

    async with asyncio.timeout(WAIT_SECONDS / 2):
        await stopped.wait()
        await consumer.stop()

    assert await committed(cluster, group, topic, queues=1) == [1]
    names = {task.get_name() for task in asyncio.all_tasks()}
    assert f"rebalance {group}" not in names
