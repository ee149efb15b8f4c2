"""Several members of a group, broadcasting, brokers that go away, and operators that interfere."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from orbitmq import java_json
from orbitmq.client.aio.push.push_consumer import PushConsumer
from orbitmq.client.aio.sending.producer import Producer
from orbitmq.client.core.consuming.consume_results import RETRY_LATER
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.clock import settle
from orbitmq.model.messages import Message
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.clients import GroupMembers, ListGroupMembers
from orbitmq.protocol.requests.offsets import ResetOffsets
from orbitmq.protocol.requests.relays import (
    ConsumeDirectly,
    ConsumerOffsets,
    DirectResult,
    GetGroupOffsets,
    GetRunningConsumer,
    RunningConsumer,
)
from tests.integration.client.conftest import Cluster
from tests.integration.client.consuming import (
    Seen,
    committed,
    consumer_of,
    ends,
    numbered,
    send,
    until_committed,
)
from tests.waiting import until


def own(consumer: PushConsumer, topic: str) -> set[MessageQueue]:
    return {queue for queue in consumer.queues if queue.topic == topic}


async def test_two_members_share_the_queues_and_hand_them_over(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic)
    seen = [Seen(), Seen()]
    members = [consumer_of(cluster, group, on_message=one.plain) for one in seen]
    for member in members:
        member.subscribe(topic)
    await members[0].start()
    await until(lambda: len(own(members[0], topic)) == 4)
    await members[1].start()
    await until(lambda: [len(own(member, topic)) for member in members] == [2, 2])
    assert not own(members[0], topic) & own(members[1], topic)

    await send(cluster, topic, *numbered(40))
    everything = set(numbered(40))
    await until(lambda: {*seen[0].bodies, *seen[1].bodies} >= everything)
    assert len(seen[0].bodies) == len(seen[1].bodies) == 20

    await members[1].stop()
    await until(lambda: len(own(members[0], topic)) == 4)
    await send(cluster, topic, *numbered(50)[40:])
    await seen[0].all_of(set(numbered(50)[40:]))
    await members[0].stop()

    assert len(seen[0].bodies) + len(seen[1].bodies) == 50
    assert await committed(cluster, group, topic) == await ends(cluster, topic)


class Alone:
    """Checks that no two listeners of a group work on one queue concurrently."""

    def __init__(self) -> None:
        self.at_work: set[int] = set()
        self.order: dict[int, list[int]] = {}
        self.collisions = 0
        self.lock = threading.Lock()

    def begin(self, message: ReceivedMessage) -> None:
        with self.lock:
            self.collisions += message.queue_id in self.at_work
            self.at_work.add(message.queue_id)
            self.order.setdefault(message.queue_id, []).append(message.queue_offset)

    def end(self, message: ReceivedMessage) -> None:
        with self.lock:
            self.at_work.discard(message.queue_id)


@pytest.mark.parametrize("kind", ["plain", "awaited"])
async def test_ordered_queues_are_handed_over_without_loss_double_or_two_at_a_time(
    cluster: Cluster, topic: str, group: str, kind: str
) -> None:
    await cluster.make_topic(topic)
    alone, seen = Alone(), Seen()

    def plain(message: ReceivedMessage) -> None:
        alone.begin(message)
        threading.Event().wait(0.001)
        alone.end(message)
        seen.add(message)

    async def awaited(message: ReceivedMessage) -> None:
        alone.begin(message)
        await settle(3)
        alone.end(message)
        seen.add(message)

    def member() -> PushConsumer:
        made = consumer_of(
            cluster, group, on_message=plain if kind == "plain" else awaited, ordered=True
        )
        made.subscribe(topic)
        return made

    stopping = asyncio.Event()

    async def keep_sending() -> int:
        number = 0
        async with Producer(namesrv=cluster.namesrv) as producer:
            while not stopping.is_set():
                await producer.send(Message(topic, b"%d" % number))
                number += 1
        return number

    sending = asyncio.create_task(keep_sending())
    first = member()
    await first.start()
    await seen.count(20)
    for _ in range(3):
        second = member()
        await second.start()
        await until(lambda second=second: len(own(second, topic)) == 2)  # type: ignore[misc]
        await seen.count(len(seen.bodies) + 20)
        await second.stop()
        await until(lambda: len(own(first, topic)) == 4)
        await seen.count(len(seen.bodies) + 20)
    stopping.set()
    sent = await sending
    await seen.all_of(set(numbered(sent)))
    await first.stop()

    assert alone.collisions == 0
    for offsets in alone.order.values():
        assert offsets == list(range(len(offsets)))


# --- broadcasting ---------------------------------------------------------------------------------


async def test_each_broadcasting_member_gets_everything_and_resumes_after_a_restart(
    cluster: Cluster, topic: str, group: str, tmp_path: Path
) -> None:
    await cluster.make_topic(topic)
    await send(cluster, topic, *numbered(10))

    def member(name: str, seen: Seen) -> PushConsumer:
        made = consumer_of(
            cluster,
            group,
            on_message=seen.awaited,
            message_model="BROADCASTING",
            instance_name=name,
            local_offset_dir=tmp_path / "offsets",
        )
        made.subscribe(topic)
        return made

    seen = {"one": Seen(), "two": Seen()}
    async with member("one", seen["one"]), member("two", seen["two"]):
        await seen["one"].count(10)
        await seen["two"].count(10)
    await send(cluster, topic, b"meanwhile")

    again = Seen()
    async with member("one", again):
        await again.count(1)

    assert [sorted(one.bodies) for one in seen.values()] == [sorted(numbered(10))] * 2
    assert again.bodies == [b"meanwhile"]
    assert await committed(cluster, group, topic) == [0] * 4


async def test_broadcasting_drops_what_failed(
    cluster: Cluster, topic: str, group: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, b"bad", b"good")
    seen = Seen()

    async def listen(message: ReceivedMessage) -> Any:
        seen.add(message)
        return RETRY_LATER if message.body == b"bad" else None

    consumer = consumer_of(
        cluster,
        group,
        on_message=listen,
        message_model="BROADCASTING",
        local_offset_dir=tmp_path / "offsets",
    )
    consumer.subscribe(topic)
    async with consumer:
        await seen.count(2)

    assert seen.bodies == [b"bad", b"good"]
    assert "message failed and is dropped" in caplog.text


# --- trouble --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
async def test_it_resumes_when_its_broker_comes_back(
    cluster: Cluster, topic: str, group: str, *, ordered: bool
) -> None:
    await cluster.make_topic(topic)
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.plain, ordered=ordered)
    consumer.subscribe(topic)
    async with consumer:
        await send(cluster, topic, *numbered(20))
        await seen.count(20)
        await cluster.kill_broker()
        await cluster.start_broker()
        await send(cluster, topic, *numbered(40)[20:])
        await seen.all_of(set(numbered(40)))

    assert await committed(cluster, group, topic) == await ends(cluster, topic)


async def test_a_cut_connection_loses_nothing(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic)
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    consumer.subscribe(topic)
    async with consumer:
        for number in range(5):
            await send(cluster, topic, b"%d" % number)
            await seen.all_of({b"%d" % number})
            await cluster.cut_connections()

    assert set(seen.bodies) == set(numbered(5))


async def test_an_offset_outside_the_queue_is_corrected(
    cluster: Cluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *numbered(3))
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    consumer.subscribe(topic)
    async with consumer:
        await seen.count(3)
        assert consumer._member is not None
        (queue,) = own(consumer, topic)
        await consumer._member.reset_offsets(topic, {queue: 1_000})
        await until(lambda: "offset is outside the queue" in caplog.text)
        await until_committed(cluster, group, topic, [3])
        await send(cluster, topic, b"new")
        await seen.all_of({b"new"})

    assert seen.bodies == [*numbered(3), b"new"]


# --- operators ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
async def test_an_operator_can_reset_offsets_while_it_runs(
    cluster: Cluster, topic: str, group: str, *, ordered: bool
) -> None:
    await cluster.make_topic(topic, queues=2)
    await send(cluster, topic, *numbered(10))
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.plain, ordered=ordered)
    consumer.subscribe(topic)
    async with consumer:
        await seen.count(10)
        reset = ResetOffsets(topic=topic, group=group, timestamp_ms=Long(0), force=True)
        await cluster.rpc.call(cluster.address(), reset)
        await seen.count(20)
        await until_committed(cluster, group, topic, await ends(cluster, topic, queues=2))

    assert sorted(seen.bodies) == sorted(numbered(10) * 2)


async def client_id(cluster: Cluster, group: str) -> str:
    reply = await cluster.rpc.call(cluster.address(), ListGroupMembers(consumer_group=group))
    (only,) = java_json.decode(reply.body, GroupMembers).client_ids
    return only


async def test_an_operator_can_query_its_state(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *numbered(10))
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.plain, secret_key="s", access_key="a")
    consumer.subscribe(topic, "*")
    async with consumer:
        await seen.count(10)
        await until_committed(cluster, group, topic, [10])
        asked = GetRunningConsumer(
            consumer_group=group, client_id=await client_id(cluster, group), with_stacks=True
        )
        body = (await cluster.rpc.call(cluster.address(), asked)).body
        offsets = java_json.decode(
            (
                await cluster.rpc.call(cluster.address(), GetGroupOffsets(topic=topic, group=group))
            ).body,
            ConsumerOffsets,
        )

    running = java_json.decode(body, RunningConsumer)
    queue = MessageQueue(topic=topic, broker_name="broker-a", queue_id=0)
    assert running.queues[queue].commit_offset == 10
    assert running.queues[queue].cached_messages == 0
    assert running.properties["PROP_CONSUMEORDERLY"] == "false"
    assert running.properties["PROP_THREADPOOL_CORE_SIZE"] == "20"
    assert running.properties["secretKey"] == "******"
    assert {one.topic for one in running.subscriptions} == {topic, f"%RETRY%{group}"}
    assert running.speeds[topic].consumed_per_second > 0
    assert running.stacks is not None
    assert "push_member" in running.stacks
    assert [*offsets.by_client.values()] == [{queue: 10}]


@pytest.mark.parametrize(
    ("body", "outcome"),
    [(b"fine", "CR_SUCCESS"), (b"later", "CR_LATER"), (b"bad", "CR_THROW_EXCEPTION")],
)
@pytest.mark.parametrize("kind", ["plain", "awaited"])
async def test_an_operator_can_have_a_message_consumed(
    cluster: Cluster, topic: str, group: str, body: bytes, outcome: str, kind: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    calls: list[bytes] = []

    def plain(message: ReceivedMessage) -> Any:
        calls.append(message.body)
        if len(calls) == 1:
            return None
        if body == b"bad":
            raise ValueError("not this one")
        return RETRY_LATER if body == b"later" else None

    async def awaited(message: ReceivedMessage) -> Any:
        return plain(message)

    consumer = consumer_of(cluster, group, on_message=plain if kind == "plain" else awaited)
    consumer.subscribe(topic)
    async with consumer:
        async with Producer(namesrv=cluster.namesrv) as producer:
            sent = await producer.send(Message(topic, body))
        await until(lambda: len(calls) == 1)
        asked = ConsumeDirectly(
            consumer_group=group,
            client_id=await client_id(cluster, group),
            message_id=sent.offset_message_id,
            broker_name="broker-a",
        )
        reply = await cluster.rpc.call(cluster.address(), asked, timeout_ms=60_000)

    result = java_json.decode(reply.body, DirectResult)
    assert (result.outcome, calls) == (outcome, [body] * 2)
    assert ("not this one" in (result.remark or "")) == (body == b"bad")
