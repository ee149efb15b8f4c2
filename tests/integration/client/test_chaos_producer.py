"""Producers under faults: every send ends in time, no acknowledged message is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from orbitmq.client import Message
from orbitmq.client.aio import Producer
from orbitmq.errors import OrbitError
from tests.integration.client.chaos_site import CLOCK, SLACK_MS, ChaosSite, Ledger, patience
from tests.integration.client.fault_proxy import (
    BLACK_HOLE,
    CUT_REPLY,
    CUT_REQUEST,
    PASS,
    REFUSE,
    RESET,
    BlackHole,
    Cut,
    Delay,
    Direction,
    Fault,
    Throttle,
    Weather,
)
from tests.integration.client.stalls import timed
from tests.integration.conftest import PATIENCE_MS
from tests.waiting import beside

__all__ = ["patience"]

# Starts processes, which is slow on a busy machine.
pytestmark = pytest.mark.timeout(360)

DEADLINE_MS = 600
LASTING_FAULTS = [
    CUT_REPLY,
    CUT_REQUEST,
    RESET,
    BLACK_HOLE,
    BlackHole(Direction.REPLY),
    REFUSE,
    Delay(20 * DEADLINE_MS, 21 * DEADLINE_MS),
    Throttle(20),
]
BAD_WEATHER = Weather(
    (
        (PASS, 85),
        (CUT_REPLY, 3),
        (CUT_REQUEST, 3),
        (Cut(Direction.REPLY, after_bytes=4), 2),
        (RESET, 2),
        (BlackHole(Direction.REPLY), 1),
        (Delay(1, 50), 4),
    )
)


@pytest.fixture
async def producer(chaos: ChaosSite) -> AsyncIterator[Producer]:
    async with Producer("chaos-producers", namesrv=chaos.namesrv) as made:
        yield made


async def _ends_in_time(producer: Producer, topic: str, form: str) -> OrbitError | None:
    """Send once with a deadline, and return the error; the send must end in time."""
    message = Message(topic, form)
    failure: OrbitError | None = None
    async with timed() as taken:
        try:
            if form == "send":
                await producer.send(message, timeout_ms=DEADLINE_MS)
            elif form == "async":
                await producer.send_async(message, timeout_ms=DEADLINE_MS)
            elif form == "batch":
                await producer.send([message, message], timeout_ms=DEADLINE_MS)
            else:
                await producer.send_oneway(message, timeout_ms=DEADLINE_MS)
        except OrbitError as error:
            failure = error
    assert taken.ms <= DEADLINE_MS + SLACK_MS, form
    return failure


@pytest.mark.parametrize("fault", LASTING_FAULTS, ids=repr)
async def test_send_ends_in_time_whatever_the_broker_does_and_succeeds_once_it_is_back(
    chaos: ChaosSite, producer: Producer, fault: Fault
) -> None:
    topic = await beside(chaos.new_topic)
    ledger = Ledger(producer, topic, timeout_ms=DEADLINE_MS)
    await ledger.send_until_acked()

    await beside(chaos.before_broker.inflict, fault)
    forms = ("send", "async", "batch", "oneway")
    errors = await asyncio.gather(*(_ends_in_time(producer, topic, form) for form in forms))
    errors.append(await _ends_in_time(producer, topic, "send"))
    await beside(chaos.before_broker.heal)
    await ledger.send_until_acked()

    # A one-way send may fail without an error.
    outcomes = zip((*forms, "send"), errors, strict=True)
    assert all(error is not None for form, error in outcomes if form != "oneway")
    assert ledger.overdue_ms == []


@pytest.mark.parametrize("fault", LASTING_FAULTS, ids=repr)
async def test_send_to_an_unknown_topic_ends_in_time_whatever_the_name_server_does(
    chaos: ChaosSite, producer: Producer, fault: Fault
) -> None:
    known, unknown = await beside(chaos.new_topic), await beside(chaos.new_topic)
    with_route = Ledger(producer, known, timeout_ms=PATIENCE_MS)
    await with_route.send_until_acked()

    await beside(chaos.before_name_server.inflict, fault)
    error = await _ends_in_time(producer, unknown, "send")
    went_on = await with_route.send()
    await beside(chaos.before_name_server.heal)
    without_route = Ledger(producer, unknown, timeout_ms=DEADLINE_MS)
    await without_route.send_until_acked()

    assert error is not None
    assert went_on, with_route.failed


async def test_producer_reconnects_when_its_connection_is_silently_dead(
    chaos: ChaosSite, producer: Producer
) -> None:
    topic, later_topic = await beside(chaos.new_topic), await beside(chaos.new_topic)
    ledger = Ledger(producer, topic, timeout_ms=DEADLINE_MS)
    await ledger.send_until_acked()

    frozen = await beside(chaos.before_broker.freeze), await beside(chaos.before_name_server.freeze)
    await ledger.send_until_acked()
    later = Ledger(producer, later_topic, timeout_ms=DEADLINE_MS)
    await later.send_until_acked()

    # More than one if a call has just timed out.
    assert min(frozen) >= 1
    assert ledger.overdue_ms + later.overdue_ms == []


async def test_nothing_acknowledged_is_lost_in_bad_weather(
    chaos: ChaosSite, producer: Producer
) -> None:
    topic = await beside(chaos.new_topic)
    ledger = Ledger(producer, topic)
    await ledger.send_until_acked()

    await beside(chaos.before_broker.inflict, BAD_WEATHER)
    await beside(chaos.before_name_server.inflict, BAD_WEATHER)
    cuts = chaos.before_broker.counts
    await ledger.send_many(400)
    while cuts["reply cut"] <= 5:
        await ledger.send_many(40)
    await beside(chaos.heal)
    await ledger.send_until_acked()
    stored = [message.body for message in await chaos.stored(topic)]

    # Most of them succeed after retries.
    assert len(ledger.acked) > 300
    assert ledger.missing(stored) == []
    assert ledger.overdue_ms == []


async def test_nothing_acknowledged_is_lost_when_the_broker_is_killed_under_load(
    chaos: ChaosSite, producer: Producer
) -> None:
    topic = await beside(chaos.new_topic)
    ledger = Ledger(producer, topic)
    await ledger.send_until_acked()
    enough = asyncio.Event()
    load = asyncio.create_task(ledger.send_until(enough))

    for _ in range(2):
        before = len(ledger.acked)
        while len(ledger.acked) < before + 100:
            await CLOCK.sleep_ms(10)
        await beside(chaos.kill, chaos.broker)
        await beside(chaos.restart, chaos.broker)
    await ledger.send_until_acked()
    enough.set()
    await load
    stored = [message.body for message in await chaos.stored(topic)]

    assert ledger.missing(stored) == []
    assert ledger.overdue_ms == []
    assert len(ledger.acked) > 200


async def test_producer_keeps_sending_while_the_name_server_is_killed_and_restarted(
    chaos: ChaosSite, producer: Producer
) -> None:
    topic, later_topic = await beside(chaos.new_topic), await beside(chaos.new_topic)
    ledger = Ledger(producer, topic)
    await ledger.send_until_acked()

    await beside(chaos.kill, chaos.name_server)
    without = Ledger(producer, topic, timeout_ms=PATIENCE_MS)
    await without.send_many(40)
    await beside(chaos.restart, chaos.name_server)
    # The broker registers its topics with the new name server by itself.
    await beside(chaos.broker.wait_ready)
    later = Ledger(producer, later_topic)
    await later.send_until_acked()

    assert without.failed == []


async def test_stop_ends_in_time_although_no_server_replies(chaos: ChaosSite) -> None:
    topic = await beside(chaos.new_topic)
    producer = Producer("chaos-stopping", namesrv=chaos.namesrv)
    await producer.start()
    await producer.send(Message(topic, "one"))
    await beside(chaos.before_broker.inflict, BLACK_HOLE)
    await beside(chaos.before_name_server.inflict, BLACK_HOLE)
    sending = asyncio.ensure_future(producer.send(Message(topic, "two"), timeout_ms=DEADLINE_MS))

    async with timed() as taken:
        await producer.stop()
    with pytest.raises(OrbitError):
        await sending

    # Unregistering takes the timeout of a call at most.
    assert taken.ms < 3000 + 3000 + SLACK_MS
