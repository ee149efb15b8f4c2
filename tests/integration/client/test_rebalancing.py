"""Members of a group share queues of real brokers: each has one owner and the right start."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack

import pytest

from orbitmq.client import Message
from orbitmq.client.aio import Producer
from orbitmq.client.aio.group.offset_stores import BrokerOffsets
from orbitmq.client.aio.group.rebalancing import Rebalancing
from orbitmq.client.aio.group.start_offsets import StartOffsets
from orbitmq.client.aio.instance.client_instance import ClientInstance
from orbitmq.client.aio.instance.instances import acquire, release
from orbitmq.client.core.consuming.allocation import averagely
from orbitmq.client.core.consuming.assignment import Membership
from orbitmq.client.core.subscriptions import Subscriptions
from orbitmq.client.options import ClientOptions
from orbitmq.clock import SystemClock
from orbitmq.model.names import retry_topic
from orbitmq.model.queues import MessageQueue
from orbitmq.model.subscriptions import (
    FROM_FIRST_OFFSET,
    FROM_LAST_OFFSET,
    FROM_TIMESTAMP,
    ConsumeFrom,
)
from orbitmq.protocol.requests.clients import ConsumerGroup
from orbitmq.protocol.requests.relays import DirectResult, RunningConsumer
from orbitmq.store.stored_messages import StoredMessages
from tests.integration.broker.conftest import send_header
from tests.integration.client.conftest import Cluster
from tests.integration.conftest import PATIENCE_MS
from tests.waiting import until


class Member:
    """A consumer that takes queues and does nothing with them; it keeps those in `busy`."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        topic: str,
        *,
        ordered: bool = False,
        consume_from: ConsumeFrom = FROM_LAST_OFFSET,
        timestamp_ms: int = 0,
    ) -> None:
        self.instance = instance
        self.group = group
        self.starts: dict[MessageQueue, int] = {}
        self.busy: set[MessageQueue] = set()
        self.store = BrokerOffsets(group, instance.brokers, instance.clock)
        self.subscriptions = Subscriptions(instance.clock)
        self.subscriptions.add(topic)
        self.rebalancing = Rebalancing(
            Membership(
                group=group, client_id=instance.client_id, allocation=averagely, ordered=ordered
            ),
            self,
            instance,
            topics=self.subscriptions.topics,
            offsets=self.store,
            starts=StartOffsets(
                self.store, instance.brokers, consume_from=consume_from, timestamp_ms=timestamp_ms
            ),
        )

    @property
    def queue_ids(self) -> set[int]:
        return {queue.queue_id for queue in self.starts}

    async def add_queue(self, queue: MessageQueue, start_offset: int) -> None:
        self.starts[queue] = start_offset

    async def drop_queue(self, queue: MessageQueue) -> bool:
        if queue not in self.busy:
            self.starts.pop(queue, None)
        return queue not in self.busy

    async def queues_changed(
        self, topic: str, queues: Sequence[MessageQueue], own: AbstractSet[MessageQueue]
    ) -> None:
        assert {queue for queue in self.starts if queue.topic == topic} >= own
        assert set(queues) >= own

    def heartbeat(self) -> ConsumerGroup:
        return ConsumerGroup(group=self.group, subscriptions=self.subscriptions.all())

    def topics(self) -> Iterable[str]:
        return self.subscriptions.topics()

    def rebalance_soon(self) -> None:
        self.rebalancing.run_soon()

    def route_changed(self, _topic: str) -> None:
        self.rebalancing.run_soon()

    async def persist_offsets(self) -> None:
        await self.store.persist_all()

    async def reset_offsets(self, _topic: str, offsets: dict[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            self.store.reset(queue, offset)
            self.rebalancing.retake(queue)

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        return self.store.offsets(topic)

    def running(self, *, with_stacks: bool) -> RunningConsumer:
        raise NotImplementedError(with_stacks)

    async def consume_directly(self, record: bytes, broker_name: str) -> DirectResult | None:
        raise NotImplementedError(record, broker_name)

    async def start(self) -> None:
        await self.instance.add_consumer(self)
        self.rebalancing.start()

    async def stop(self) -> None:
        await self.rebalancing.stop(timeout_ms=0)
        await self.instance.remove_consumer(self)


Join = Callable[..., Awaitable[Member]]


@pytest.fixture
async def join(cluster: Cluster, group: str, topic: str) -> AsyncIterator[Join]:
    async with AsyncExitStack() as stack:

        async def join(
            name: str,
            *,
            ordered: bool = False,
            consume_from: ConsumeFrom = FROM_LAST_OFFSET,
            timestamp_ms: int = 0,
            topic: str = topic,
        ) -> Member:
            options = ClientOptions(
                namesrv=cluster.namesrv,
                instance_name=name,
                route_interval_ms=100,
                call_timeout_ms=PATIENCE_MS,
                connect_timeout_ms=PATIENCE_MS,
            )
            instance = await acquire(options)
            stack.push_async_callback(release, instance)
            member = Member(
                instance,
                group,
                topic,
                ordered=ordered,
                consume_from=consume_from,
                timestamp_ms=timestamp_ms,
            )
            stack.push_async_callback(member.stop)
            await member.start()
            return member

        yield join


async def fill(cluster: Cluster, queue: MessageQueue, count: int) -> None:
    """Send messages to one queue, so that offsets up to their count can be committed."""
    async with Producer(namesrv=cluster.namesrv) as producer:
        for _ in range(count):
            await producer.send(Message(queue.topic, b"m"), queue=queue)


async def test_members_share_queues_and_take_over_from_one_that_leaves(
    cluster: Cluster, topic: str, join: Join
) -> None:
    await cluster.make_topic(topic, queues=8)

    first = await join("c1")
    await until(lambda: len(first.starts) == 8)
    second, third = await join("c2"), await join("c3")
    members = [first, second, third]
    await until(lambda: sorted(len(one.starts) for one in members) == [2, 3, 3])
    assert set.union(*(one.queue_ids for one in members)) == set(range(8))

    handed_over = next(iter(second.starts))
    await fill(cluster, handed_over, 7)
    second.store.update(handed_over, 7)
    await second.stop()
    await until(lambda: len(first.starts) == len(third.starts) == 4)

    assert {**first.starts, **third.starts}[handed_over] == 7


async def test_a_member_that_vanishes_loses_its_queues_at_once(
    cluster: Cluster, topic: str, join: Join
) -> None:
    await cluster.make_topic(topic)
    first, second = await join("c1"), await join("c2")
    await until(lambda: len(first.starts) == len(second.starts) == 2)

    # Its heartbeats end with its connections; the broker notifies the other members.
    await second.instance.stop()

    await until(lambda: len(first.starts) == 4)


async def test_an_ordered_queue_has_one_owner_until_its_listener_has_ended(
    cluster: Cluster, topic: str, join: Join
) -> None:
    await cluster.make_topic(topic, queues=2)
    first = await join("c1", ordered=True)
    await until(lambda: len(first.starts) == 2)
    kept = max(first.starts)
    first.busy = {kept}

    second = await join("c2", ordered=True)
    await until(lambda: kept not in first.rebalancing.queues)
    for _ in range(2):
        assert not await second.rebalancing.rebalance()
    assert second.starts == {}

    await fill(cluster, kept, 5)
    first.store.update(kept, 5)
    first.busy.clear()
    first.rebalancing.run_soon()
    await until(lambda: second.starts == {kept: 5})
    assert kept not in first.starts


async def test_an_ordered_member_that_stops_hands_its_locks_over_at_once(
    cluster: Cluster, topic: str, join: Join
) -> None:
    await cluster.make_topic(topic, queues=4)
    first, second = await join("c1", ordered=True), await join("c2", ordered=True)
    await until(lambda: len(first.starts) == len(second.starts) == 2)

    await first.stop()

    await until(lambda: len(second.starts) == 4)


async def test_locks_are_renewed_at_the_broker(cluster: Cluster, topic: str, join: Join) -> None:
    await cluster.make_topic(topic, queues=2)
    member = await join("c1", ordered=True)
    await until(lambda: len(member.starts) == 2)
    other = await join("c2", ordered=True, topic="elsewhere")
    lock = other.instance.brokers.lock

    await member.rebalancing.renew_locks()

    assert member.queue_ids == {0, 1}
    await other.instance.routes.reading(topic)
    assert await lock("broker-a", member.group, "stranger", list(member.starts)) == set()


async def test_a_broker_that_is_away_keeps_its_queues_and_delays_no_other(
    cluster: Cluster, topic: str, join: Join
) -> None:
    await cluster.start_broker("broker-b")
    await cluster.make_topic(topic, queues=2)
    member = await join("c1")
    await until(lambda: len(member.starts) == 4)

    await cluster.kill_broker("broker-b")
    member.rebalancing.run_soon()
    await until(lambda: {one.broker_name for one in member.starts} == {"broker-a"})

    await cluster.start_broker("broker-b")
    await until(lambda: len(member.starts) == 4)


@pytest.mark.parametrize(
    ("consume_from", "expected"),
    [(FROM_FIRST_OFFSET, 0), (FROM_LAST_OFFSET, 3), (FROM_TIMESTAMP, 2)],
    ids=str,
)
async def test_a_new_group_starts_where_its_options_say(
    cluster: Cluster,
    topic: str,
    join: Join,
    consume_from: ConsumeFrom,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As if more messages followed these than fit into memory.
    monkeypatch.setattr(StoredMessages, "is_in_memory", lambda *_: False)
    await cluster.make_topic(topic, queues=1)
    for _ in range(2):
        await cluster.rpc.call(cluster.address(), send_header(topic, queue_id=0), b"old")
    clock = SystemClock()
    sent_ms = clock.now_ms()
    await until(lambda: clock.now_ms() > sent_ms)
    timestamp_ms = clock.now_ms()
    await cluster.rpc.call(cluster.address(), send_header(topic, queue_id=0), b"new")

    member = await join("c1", consume_from=consume_from, timestamp_ms=timestamp_ms)
    await until(lambda: len(member.starts) == 1)

    assert list(member.starts.values()) == [expected]


async def test_a_queue_that_is_young_is_read_from_its_first_message(
    cluster: Cluster, topic: str, join: Join
) -> None:
    # Compat: the broker returns 0, so that no message of a queue added to a topic is missed.
    await cluster.make_topic(topic, queues=1)
    await cluster.rpc.call(cluster.address(), send_header(topic, queue_id=0), b"one")

    member = await join("c1", consume_from=FROM_LAST_OFFSET)
    await until(lambda: len(member.starts) == 1)

    assert list(member.starts.values()) == [0]


async def test_a_reset_restarts_the_queue_at_the_new_offset(
    cluster: Cluster, topic: str, join: Join
) -> None:
    await cluster.make_topic(topic, queues=1)
    for _ in range(3):
        await cluster.rpc.call(cluster.address(), send_header(topic, queue_id=0), b"one")
    member = await join("c1")
    await until(lambda: len(member.starts) == 1)
    queue = next(iter(member.starts))
    member.store.update(queue, 3)
    await member.store.persist([queue])

    await member.reset_offsets(topic, {queue: 1})

    await until(lambda: member.starts.get(queue) == 1)
    assert await member.instance.brokers.committed_offset(queue, member.group) == 1


async def test_a_topic_that_is_created_later_is_taken(
    cluster: Cluster, topic: str, join: Join
) -> None:
    member = await join("c1")

    await cluster.make_topic(topic, queues=3)

    await until(lambda: len(member.starts) == 3)


async def test_the_retry_topic_is_shared_too(
    cluster: Cluster, topic: str, group: str, join: Join
) -> None:
    await cluster.make_topic(topic, queues=1)
    member = await join("c1")

    member.subscriptions.add(retry_topic(group))
    member.rebalancing.run_soon()

    await until(lambda: {one.topic for one in member.starts} == {topic, retry_topic(group)})
