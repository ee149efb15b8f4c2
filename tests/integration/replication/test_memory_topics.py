"""Topics in memory at a promoted slave: their messages are gone, and no number is given twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orbitmq.client import Message, ReceivedMessage
from orbitmq.client.aio import Admin, Producer, PushConsumer
from orbitmq.protocol.codes import ResponseCode
from orbitmq.store.reading.reserved_offsets import EPOCH_STEP, STEP
from tests.integration.replication.group import Group
from tests.waiting import until

TOPIC = "prices"


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    """A pair with a topic in memory, which the slave knows."""
    async with Group(tmp_path) as group:
        await group.pair()
        await group.create_topic(TOPIC, attributes="+orbitmq.storage=memory")
        await group.send(b"on disk")
        await until(lambda: group.brokers[1].topics.get(TOPIC) is not None)
        yield group


async def number_of(group: Group, broker_id: int, body: bytes = b"body") -> int:
    """Send a message to the topic in memory; returns its number."""
    reply = await group.send(body, broker_id, topic=TOPIC)
    assert reply.code == ResponseCode.SUCCESS, reply.remark
    return int(reply.fields["queueOffset"])


async def test_a_consumer_reads_on_at_the_promoted_slave(group: Group) -> None:
    got: list[tuple[int, bytes]] = []

    async def on_message(message: ReceivedMessage) -> None:
        got.append((message.queue_offset, message.body))

    consumer = PushConsumer(
        "readers", on_message=on_message, consume_from="first", namesrv=group.namesrv
    )
    consumer.subscribe(TOPIC)
    async with consumer, Producer("p", namesrv=group.namesrv) as producer:
        for number in range(3):
            await producer.send(Message(TOPIC, b"old %d" % number))
        await until(lambda: len(got) == 3)
        await group.until_copied()
        await group.kill(0)
        await group.promote(1)

        for number in range(3):
            await producer.send(Message(TOPIC, b"new %d" % number))
        await until(lambda: len(got) == 6)

    assert got == [
        *((number, b"old %d" % number) for number in range(3)),
        *((EPOCH_STEP + number, b"new %d" % number) for number in range(3)),
    ]


async def test_a_committed_offset_stays_and_leads_to_the_first_new_message(group: Group) -> None:
    assert [await number_of(group, 0) for _ in range(2)] == [0, 1]
    await group.commit(TOPIC, 2)
    await until(lambda: group.brokers[1].offsets.get("g", TOPIC, 0) == 2)
    await group.kill(0)

    # While there is no master, an offset that the slave cannot know is left alone.
    waiting = await group.pull(1, 2, topic=TOPIC)
    await group.promote(1)

    assert waiting.code in {ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY}
    assert waiting.fields["nextBeginOffset"] == "2"
    assert group.brokers[1].offsets.get("g", TOPIC, 0) == 2
    moved = await group.pull(1, 2, topic=TOPIC)
    assert moved.code == ResponseCode.PULL_OFFSET_MOVED
    assert moved.fields["nextBeginOffset"] == str(EPOCH_STEP)
    assert await number_of(group, 1) == EPOCH_STEP
    assert (await group.pull(1, EPOCH_STEP, topic=TOPIC)).code == ResponseCode.SUCCESS


async def test_numbers_rise_with_every_promotion(group: Group) -> None:
    given = [await number_of(group, 0)]
    await group.until_copied()
    for epoch, (old, new) in enumerate([(0, 1), (1, 0), (0, 1)], start=1):
        await group.promote(new, epoch=epoch, force=True)
        await group.until_role(old, "SLAVE")
        await group.until_copied(old, master=new)

        given += [await number_of(group, new) for _ in range(2)]

    assert given == [
        0,
        *(epoch * EPOCH_STEP + number for epoch in (1, 2, 3) for number in (0, 1)),
    ]


async def test_a_slave_keeps_the_numbers_that_its_master_reserved(group: Group) -> None:
    await number_of(group, 0)
    slave = group.brokers[1]

    await until(lambda: slave.store.reserved_offsets() != {})

    assert slave.store.reserved_offsets() == {(TOPIC, 0): STEP + 1}
    assert slave.store.reserved_offsets() == group.brokers[0].store.reserved_offsets()


async def test_a_promotion_says_that_topics_in_memory_lose_their_messages(group: Group) -> None:
    await number_of(group, 0)
    await group.stop(0)

    async with Admin(namesrv=group.namesrv) as admin:
        plan = await admin.promotion.plan(group.name)

    assert plan.memory_topics == (TOPIC,)
    assert TOPIC not in plan.kept
