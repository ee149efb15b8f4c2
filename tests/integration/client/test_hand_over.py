"""Queues change hands at once when members join and leave, and never too early."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from orbitmq.client.aio import Producer, PushConsumer
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.clock import SystemClock
from orbitmq.model.messages import Message
from orbitmq.model.queues import MessageQueue
from tests.integration.client.conftest import Cluster
from tests.integration.client.consuming import Seen, consumer_of, numbered, send
from tests.integration.client.hand_overs import QUEUES, Campaign
from tests.waiting import until

CLOCK = SystemClock()
# Of several hand-overs on a busy machine the quickest counts. One that waits for a look of its own
# at locks or members takes a second or more.
ATTEMPTS = 5
QUICK_MS = 500
# Nobody looks by itself: only notices lead to a round.
NEVER_MS = 600_000


def member(
    cluster: Cluster, group: str, topic: str, name: str = "", **arguments: object
) -> PushConsumer:
    """Make a consumer; the members share the queues in the order of their names."""
    made = consumer_of(
        cluster,
        group,
        **{"rebalance_interval_ms": NEVER_MS, "route_interval_ms": NEVER_MS, **arguments},
        **({"instance_name": name} if name else {}),
    )
    made.subscribe(topic)
    return made


def owned(consumer: PushConsumer, topic: str) -> set[int]:
    return {queue.queue_id for queue in consumer.queues if queue.topic == topic}


@asynccontextmanager
async def kept_sending(cluster: Cluster, topic: str) -> AsyncIterator[None]:
    """Send to all queues while the block runs."""

    async def keep_sending() -> None:
        async with Producer(namesrv=cluster.namesrv) as producer:
            while True:
                await producer.send(Message(topic, b"more"))
                await CLOCK.sleep_ms(1)

    sending = asyncio.create_task(keep_sending())
    try:
        yield
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending


async def ms_until(happened: Callable[[], bool]) -> float:
    began_ms = CLOCK.monotonic_ms()
    await until(happened)
    return CLOCK.monotonic_ms() - began_ms


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
async def test_queues_change_hands_at_once_when_a_member_joins_and_when_it_leaves(
    cluster: Cluster, topic: str, group: str, *, ordered: bool
) -> None:
    await cluster.make_topic(topic)
    first_seen = Seen()
    joined_ms, left_ms = [], []

    first = member(cluster, group, topic, on_message=first_seen.awaited, ordered=ordered)
    async with first, kept_sending(cluster, topic):
        await until(lambda: len(owned(first, topic)) == 4)
        for _ in range(ATTEMPTS):
            seen = Seen()
            second = member(cluster, group, topic, on_message=seen.awaited, ordered=ordered)
            await second.start()
            joined_ms.append(
                await ms_until(lambda: len({m.queue_id for m in seen.messages}) == 2)  # noqa: B023
            )
            first_seen.messages.clear()
            stopping = asyncio.create_task(second.stop())
            left_ms.append(
                await ms_until(lambda: len({m.queue_id for m in first_seen.messages}) == 4)
            )
            await stopping

    assert min(joined_ms) < QUICK_MS, joined_ms
    assert min(left_ms) < QUICK_MS, left_ms


class Held:
    """A plain listener that holds a message of queue 3 until it is let go."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.entered = threading.Event()
        self.may_go = threading.Event()

    def __call__(self, message: ReceivedMessage) -> None:
        if message.queue_id == 3:
            self.entered.set()
            self.may_go.wait(60)
        self.seen.add(message)


async def fill(cluster: Cluster, topic: str) -> None:
    """Send a message to each queue."""
    async with Producer(namesrv=cluster.namesrv) as producer:
        for queue in await producer.queues(topic):
            await producer.send(Message(topic, b"%d" % queue.queue_id), queue=queue)


async def test_a_queue_changes_hands_when_the_message_in_process_is_done_and_comes_once(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic)
    listener, seen = Held(), Seen()
    first = member(cluster, group, topic, "m1", on_message=listener, ordered=True)
    second = member(cluster, group, topic, "m2", on_message=seen.awaited, ordered=True)
    async with first:
        await until(lambda: len(owned(first, topic)) == 4)
        await fill(cluster, topic)
        await until(listener.entered.is_set)
        await fill(cluster, topic)
        async with second:
            await until(lambda: owned(second, topic) == {2})
            assert cluster.brokers["broker-a"].tables.locks.owner(group, queue_of(topic, 3)) == (
                first.client_id
            )

            listener.may_go.set()

            await seen.until(lambda: 3 in {m.queue_id for m in seen.messages})
            both = [m for m in [*listener.seen.messages, *seen.messages] if m.queue_id == 3]
            assert [(m.queue_offset, m in seen.messages) for m in both] == [(0, False), (1, True)]


def queue_of(topic: str, queue_id: int) -> MessageQueue:
    return MessageQueue(topic=topic, broker_name="broker-a", queue_id=queue_id)


async def test_a_stop_does_not_wait_for_a_listener_that_hangs_and_leaves_its_queue_locked(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic)
    listener, seen = Held(), Seen()
    first = member(
        cluster, group, topic, "m2", on_message=listener, ordered=True, await_termination_ms=50
    )
    await first.start()
    client_id = first.client_id
    second = member(cluster, group, topic, "m1", on_message=seen.awaited, ordered=True)
    async with second:
        await until(lambda: len(owned(first, topic)) == len(owned(second, topic)) == 2)
        await fill(cluster, topic)
        await until(listener.entered.is_set)

        await asyncio.wait_for(first.stop(), 20)

        await fill(cluster, topic)
        await seen.until(lambda: {0, 1, 2} <= {m.queue_id for m in seen.messages})
        locks = cluster.brokers["broker-a"].tables.locks
        assert locks.owner(group, queue_of(topic, 3)) == client_id
        assert 3 not in {m.queue_id for m in seen.messages}
        listener.may_go.set()


async def test_a_cut_connection_gives_no_queue_away_while_its_listener_works(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=4)
    listener, seen = Held(), Seen()
    first = member(cluster, group, topic, "m1", on_message=listener, ordered=True)
    second = member(cluster, group, topic, "m2", on_message=seen.awaited, ordered=True)
    async with first:
        await until(lambda: len(owned(first, topic)) == 4)
        await fill(cluster, topic)
        await until(listener.entered.is_set)
        await fill(cluster, topic)
        async with second:
            for _ in range(3):
                await cluster.cut_connections()
                await send(cluster, topic, *numbered(4))
            await until(lambda: owned(second, topic) == {2})
            assert 3 not in {m.queue_id for m in seen.messages}

            listener.may_go.set()

            await seen.until(lambda: 3 in {m.queue_id for m in seen.messages})
            offsets = [
                message.queue_offset
                for message in [*listener.seen.messages, *seen.messages]
                if message.queue_id == 3
            ]
            assert offsets == list(range(len(offsets)))


async def test_a_topic_that_is_unsubscribed_is_unlocked_at_once(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic)
    seen = Seen()
    consumer = member(cluster, group, topic, on_message=seen.awaited, ordered=True)
    async with consumer:
        await until(lambda: len(owned(consumer, topic)) == 4)

        consumer.unsubscribe(topic)

        locks = cluster.brokers["broker-a"].tables.locks
        await until(lambda: locks.owner(group, queue_of(topic, 0)) is None)


@pytest.mark.parametrize("seed", [1, 2])
async def test_order_is_kept_and_nothing_repeated_while_members_come_and_go_at_random(
    cluster: Cluster, topic: str, group: str, seed: int
) -> None:
    await cluster.make_topic(topic, queues=QUEUES)
    campaign = Campaign(cluster.namesrv, topic, group, seed)

    await campaign.run(1.5, joins_min=4)

    assert campaign.ledger.faults() == []
