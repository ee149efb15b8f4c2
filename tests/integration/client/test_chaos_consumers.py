"""Consumers under faults: they recover, miss nothing, and commit."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from orbitmq.client import Message
from orbitmq.client.aio import LitePullConsumer, Producer, PullConsumer, PushConsumer
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.errors import OrbitError
from tests.integration.client.chaos_site import (
    BACK_TIMEOUT_S,
    CLOCK,
    SLACK_MS,
    ChaosSite,
    Ledger,
    patience,
    quick_member,
)
from tests.integration.client.fault_proxy import (
    BLACK_HOLE,
    CUT_REPLY,
    CUT_REQUEST,
    PASS,
    REFUSE,
    RESET,
    BlackHole,
    Delay,
    Direction,
    Fault,
    Weather,
)
from tests.integration.client.stalls import timed
from tests.integration.conftest import PATIENCE_MS
from tests.waiting import beside, until_reached

__all__ = ["patience"]

# Starting processes takes long on a busy machine.
pytestmark = pytest.mark.timeout(360)

MESSAGES = 200
BAD_WEATHER = Weather(((PASS, 80), (CUT_REPLY, 6), (CUT_REQUEST, 6), (RESET, 4), (Delay(1, 50), 4)))


@pytest.fixture
async def straight(chaos: ChaosSite) -> AsyncIterator[Producer]:
    """A producer that does not go through the fault proxy."""
    async with Producer(
        "straight-producers", namesrv=chaos.name_server.address, send_timeout_ms=PATIENCE_MS
    ) as made:
        yield made


class Reader:
    """A push consumer and everything it received."""

    def __init__(self, chaos: ChaosSite, topic: str, *, ordered: bool = False) -> None:
        self.chaos = chaos
        self.topic = topic
        self.group = f"group-of-{topic}"
        self.received: list[ReceivedMessage] = []
        self.consumer = PushConsumer(
            self.group,
            on_message=self._take,
            ordered=ordered,
            **quick_member(chaos.namesrv),
        )
        self.consumer.subscribe(topic)

    async def _take(self, message: ReceivedMessage) -> None:
        self.received.append(message)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.received]

    async def received_all(self, ledger: Ledger) -> None:
        """Wait until everything acknowledged has arrived."""
        await until_reached(
            lambda: not ledger.missing(self.bodies),
            timeout_s=BACK_TIMEOUT_S,
            what=f"all {len(ledger.acked)} acknowledged messages",
        )

    async def committed_all(self) -> None:
        """Wait until everything is committed at the broker."""
        ends = await beside(self.chaos.ends, self.topic)
        await until_reached(
            lambda: self.chaos.committed(self.group, self.topic) == ends,
            timeout_s=BACK_TIMEOUT_S,
            what=f"{ends} committed",
        )


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
async def test_push_consumer_receives_all_and_commits_through_bad_weather(
    chaos: ChaosSite, straight: Producer, *, ordered: bool
) -> None:
    topic = await beside(chaos.new_topic)
    reader = Reader(chaos, topic, ordered=ordered)
    ledger = Ledger(straight, topic, timeout_ms=PATIENCE_MS)
    await ledger.send_many(MESSAGES)

    await beside(chaos.before_broker.inflict, BAD_WEATHER)
    async with reader.consumer:
        await ledger.send_many(MESSAGES)
        await reader.received_all(ledger)
        await beside(chaos.heal)
        await ledger.send_many(40)
        await reader.received_all(ledger)
        await reader.committed_all()

    assert len(ledger.acked) == 2 * MESSAGES + 40
    if ordered:
        _check_order(reader.received)


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
async def test_push_consumer_resumes_after_the_broker_was_killed(
    chaos: ChaosSite, straight: Producer, *, ordered: bool
) -> None:
    topic = await beside(chaos.new_topic)
    reader = Reader(chaos, topic, ordered=ordered)
    ledger = Ledger(straight, topic, timeout_ms=PATIENCE_MS)
    async with reader.consumer:
        await ledger.send_many(MESSAGES)
        await reader.received_all(ledger)
        await beside(chaos.kill, chaos.broker)
        await beside(chaos.restart, chaos.broker)
        await ledger.send_until_acked()
        await ledger.send_many(MESSAGES)
        await reader.received_all(ledger)
        await reader.committed_all()

    if ordered:
        _check_order(reader.received)


def _check_order(received: list[ReceivedMessage]) -> None:
    """Check that no message overtakes an earlier one; repeats are allowed."""
    for queue in {message.queue for message in received}:
        newest = -1
        for message in received:
            if message.queue == queue:
                assert message.queue_offset <= newest + 1
                newest = max(newest, message.queue_offset)


async def test_push_consumer_resumes_when_a_silent_broker_answers_again(
    chaos: ChaosSite, straight: Producer
) -> None:
    topic = await beside(chaos.new_topic)
    reader = Reader(chaos, topic)
    ledger = Ledger(straight, topic, timeout_ms=PATIENCE_MS)
    async with reader.consumer:
        await ledger.send_until_acked()
        await reader.received_all(ledger)
        await beside(chaos.broker.process.pause)
        sending = asyncio.create_task(ledger.send_many(40))
        await CLOCK.sleep_ms(2000)
        await beside(chaos.broker.process.resume)
        await sending
        await reader.received_all(ledger)
        await reader.committed_all()

    assert ledger.failed == []


async def test_push_consumer_continues_while_the_name_server_is_killed_and_restarted(
    chaos: ChaosSite, straight: Producer
) -> None:
    topic = await beside(chaos.new_topic)
    reader = Reader(chaos, topic)
    ledger = Ledger(straight, topic, timeout_ms=PATIENCE_MS)
    async with reader.consumer:
        await ledger.send_until_acked()
        await reader.received_all(ledger)
        await beside(chaos.kill, chaos.name_server)
        await ledger.send_many(40)
        await reader.received_all(ledger)
        await beside(chaos.restart, chaos.name_server)
        await beside(chaos.broker.wait_ready)
        await ledger.send_many(40)
        await reader.received_all(ledger)
        await reader.committed_all()

    assert ledger.failed == []
    places = Counter((message.queue, message.queue_offset) for message in reader.received)
    assert set(places.values()) == {1}


@pytest.mark.parametrize(
    "fault", [CUT_REPLY, RESET, BLACK_HOLE, BlackHole(Direction.REPLY), REFUSE], ids=repr
)
async def test_consumers_end_their_calls_in_time_and_come_back(
    chaos: ChaosSite, straight: Producer, fault: Fault
) -> None:
    topic = await beside(chaos.new_topic, queues=1)
    lite = LitePullConsumer(f"lite-{topic}", **quick_member(chaos.namesrv))
    lite.subscribe(topic)
    by_hand = PullConsumer(f"pull-{topic}", namesrv=chaos.namesrv)
    async with lite, by_hand:
        (queue,) = await by_hand.queues(topic)
        await straight.send(Message(topic, "before"))
        assert await _poll(lite, b"before") == {b"before"}

        await beside(chaos.before_broker.inflict, fault)
        async with timed() as poll:
            # A message may be stored twice if its broker took long to answer.
            assert {message.body for message in await lite.poll(timeout_ms=500)} <= {b"before"}
        async with timed() as pull:
            with pytest.raises(OrbitError):
                await by_hand.pull(queue, "*", 0, 32, timeout_ms=500)
        await straight.send(Message(topic, "meanwhile"))
        await beside(chaos.before_broker.heal)
        await beside(chaos.before_broker.cut)
        assert await _poll(lite, b"meanwhile") <= {b"before", b"meanwhile"}
        both = await _pull(by_hand, queue)

    assert poll.ms < 500 + SLACK_MS
    assert pull.ms < 500 + SLACK_MS
    assert list(dict.fromkeys(m.body for m in both)) == [b"before", b"meanwhile"]


async def _poll(consumer: LitePullConsumer, awaited: bytes) -> set[bytes]:
    """Poll until a message arrives; return the bodies of all that arrived."""
    bodies: set[bytes] = set()
    async with asyncio.timeout(BACK_TIMEOUT_S):
        while awaited not in bodies:
            bodies |= {message.body for message in await consumer.poll(timeout_ms=200)}
    return bodies


async def _pull(consumer: PullConsumer, queue: object) -> list[ReceivedMessage]:
    async with asyncio.timeout(BACK_TIMEOUT_S):
        while True:
            try:
                found = await consumer.pull(queue, "*", 0, 32)  # type: ignore[arg-type]
            except OrbitError:
                await CLOCK.sleep_ms(50)
            else:
                return list(found.messages)
