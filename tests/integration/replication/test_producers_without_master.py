"""Producers while a group has no master: they wait for one until the deadline of the send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orbitmq.client.aio import Producer, PullConsumer
from orbitmq.client.core.sending.send_results import SendResult
from orbitmq.clock import SystemClock
from orbitmq.errors import NoMasterError, SendTimeoutError
from orbitmq.model.messages import Message
from tests.integration.client.pulling import bodies, queue_of
from tests.integration.replication.group import Group

QUEUE = queue_of("T", broker_name="group-a")
BEFORE = "before"
IN_ORDER = [f"in order {number}" for number in range(5)]
AWAITED = ["awaited", "with a callback", "by a new producer"]
SHORT_MS = 600
LONG_MS = 60_000
CLOCK = SystemClock()


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    async with Group(tmp_path) as group:
        yield group


def message(text: str) -> Message:
    return Message("T", text.encode())


async def test_sends_wait_for_the_new_master_until_their_deadline(group: Group) -> None:
    await group.pair()
    await group.create_topic()
    async with (
        Producer(namesrv=group.namesrv) as producer,
        Producer(namesrv=group.namesrv, instance_name="new") as new,
    ):
        await producer.send(message(BEFORE), timeout_ms=LONG_MS)
        await group.until_copied()
        await group.until_has_topic("T")
        await group.kill(0)
        began_ms = CLOCK.monotonic_ms()
        with pytest.raises(SendTimeoutError, match=r"topic 'T'.*broker promote"):
            await producer.send(message("lost"), timeout_ms=SHORT_MS)
        waited_ms = CLOCK.monotonic_ms() - began_ms
        await group.until_missed(0)
        with pytest.raises(
            NoMasterError, match=r"topic 'T'.*group-a has no master after 600 ms.*promote group-a"
        ):
            await new.send(message("lost"), timeout_ms=SHORT_MS)

        sends: list[asyncio.Future[SendResult]] = [
            asyncio.ensure_future(producer.send(message(text), queue=QUEUE, timeout_ms=LONG_MS))
            for text in IN_ORDER
        ]
        sends += [
            asyncio.ensure_future(producer.send(message(AWAITED[0]), timeout_ms=LONG_MS)),
            producer.send_async(message(AWAITED[1]), timeout_ms=LONG_MS),
            asyncio.ensure_future(new.send(message(AWAITED[2]), timeout_ms=LONG_MS)),
        ]
        await group.promote(1)
        await asyncio.gather(*sends)

    async with PullConsumer("readers", namesrv=group.namesrv) as consumer:
        stored = bodies((await consumer.pull(QUEUE, "*", 0)).messages)
    assert sorted(stored) == sorted([BEFORE, *IN_ORDER, *AWAITED])
    assert [text for text in stored if text in IN_ORDER] == IN_ORDER
    assert SHORT_MS <= waited_ms < 2 * SHORT_MS


async def test_sends_to_a_former_master_that_is_back_as_a_slave_go_to_the_new_one(
    group: Group,
) -> None:
    await group.pair()
    await group.create_topic()
    async with Producer(namesrv=group.namesrv) as producer:
        await producer.send(message(BEFORE), timeout_ms=LONG_MS)
        await group.until_copied()
        await group.until_has_topic("T")
        await group.stop(0)
        await group.promote(1)
        await group.start(0)
        await group.until_role(0, "SLAVE")

        sends = [
            asyncio.ensure_future(producer.send(message(text), queue=QUEUE, timeout_ms=LONG_MS))
            for text in IN_ORDER
        ]
        await asyncio.gather(*sends)

    async with PullConsumer("readers", namesrv=group.namesrv) as consumer:
        stored = bodies((await consumer.pull(QUEUE, "*", 0)).messages)
    assert [text for text in stored if text != BEFORE] == IN_ORDER
