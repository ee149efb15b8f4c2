"""Ordered queues change hands between Python and Java members: soon, in order, nothing lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from orbitmq.client import Message
from orbitmq.clock import SystemClock
from orbitmq.model.queues import MessageQueue
from tests.interop.building import LINES
from tests.interop.drivers import Driver
from tests.interop.group_members import Member, OfficialMember, PythonMember
from tests.interop.peers import OUR_LINE
from tests.interop.python_trials import Trial
from tests.interop.timeouts import CLIENT_TIMEOUT_S

pytestmark = pytest.mark.interop

log = logging.getLogger(__name__)
CLOCK = SystemClock()
# RocketMQ 4.x releases a queue with pulled messages after 20 s only, so there are pauses.
SEND_PAUSE_MS = 50
# Clients that wait for a look of their own take 20 s, and locks end after 60 s.
SOON_MS = 10_000


class OrderedGroup:
    """Members of an ordered group, and numbered messages that keep coming to each queue."""

    def __init__(self, trial: Trial, queues: list[MessageQueue]) -> None:
        self.trial = trial
        self.queues = queues
        self.members: dict[str, Member] = {}
        self.gone: dict[str, Member] = {}
        self.sent = 0

    async def join_python(self, name: str) -> None:
        consumer, inbox = await self.trial.push(ordered=True)
        self.members[name] = PythonMember(name, consumer, inbox)

    async def join_official(self, name: str, driver: Driver) -> None:
        member = OfficialMember(driver, self.trial, name)
        await member.join(kind="orderly")
        self.members[name] = member

    async def leave(self, name: str) -> None:
        member = self.gone[name] = self.members.pop(name)
        await member.leave()

    @asynccontextmanager
    async def messages(self) -> AsyncIterator[None]:
        """Send a message to each queue again and again while the block runs."""
        producer = await self.trial.producer()
        stopping = asyncio.Event()

        async def keep_sending() -> None:
            while not stopping.is_set():
                number = self.sent
                for queue in self.queues:
                    await producer.send(Message(queue.topic, f"{number}"), queue=queue)
                self.sent += 1
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), SEND_PAUSE_MS / 1000)

        sending = asyncio.create_task(keep_sending())
        try:
            yield
        finally:
            stopping.set()
            await sending

    async def queues_of(self, name: str, count: int) -> float:
        """Wait until a member gets new messages of that many queues, or more; returns the time."""
        began_ms = CLOCK.now_ms()
        first = self.sent
        while True:
            seen = await self.members[name].seen()
            if len({one.queue_id for one in seen if int(one.body) > first}) >= count:
                return CLOCK.now_ms() - began_ms
            waited_ms = CLOCK.now_ms() - began_ms
            assert waited_ms < CLIENT_TIMEOUT_S * 1000, f"{name} has not got {count} queues"
            await CLOCK.sleep_ms(20)

    async def check_order(self, *, repeats: bool) -> None:
        """Wait for every message; each comes after the one it follows, and once unless `repeats`."""
        wanted = set(range(self.sent))
        end_ms = CLOCK.now_ms() + CLIENT_TIMEOUT_S * 1000
        for queue in self.queues:
            while True:
                seen = [
                    one
                    for member in [*self.members.values(), *self.gone.values()]
                    for one in await member.seen()
                    if one.queue_id == queue.queue_id
                ]
                if {int(one.body) for one in seen} >= wanted:
                    break
                assert CLOCK.now_ms() < end_ms, f"messages of {queue} are missing"
                await CLOCK.sleep_ms(50)
            # A member lists what it got in order; the sort keeps that where times are equal.
            numbers = [int(one.body) for one in sorted(seen, key=lambda one: one.received_ms)]
            assert repeats or len(numbers) == len(wanted), numbers
            newest = -1
            for number in numbers:
                assert number <= newest + 1, numbers
                newest = max(newest, number)


@pytest.fixture
async def ordered_group(trial: Trial) -> OrderedGroup:
    producer = await trial.producer(instance_name="lookup")
    return OrderedGroup(trial, list(await producer.queues(trial.topic)))


@pytest.mark.scenario("site", "ordered: queues change hands at once when members join and leave")
async def test_queues_of_python_members_change_hands_at_once(ordered_group: OrderedGroup) -> None:
    group = ordered_group
    joined_ms, left_ms = [], []
    async with group.messages():
        await group.join_python("first")
        await group.queues_of("first", 4)
        for number in range(3):
            await group.join_python(f"other {number}")
            joined_ms.append(await group.queues_of(f"other {number}", 2))
            await group.leave(f"other {number}")
            left_ms.append(await group.queues_of("first", 4))

    await group.check_order(repeats=False)
    log.info("python members: joined in %s ms, left in %s ms", joined_ms, left_ms)
    # Each of which includes the wait for the next message.
    assert min(joined_ms) < 1000
    assert min(left_ms) < 1000


@pytest.mark.scenario("site", "ordered: Java and Python hand queues over to each other")
async def test_queues_change_hands_between_java_and_python(
    ordered_group: OrderedGroup, official_clients: dict[str, Driver]
) -> None:
    group = ordered_group
    site = group.trial.site.line
    # Each client at the broker of its line, and both at ours.
    lines = sorted(LINES) if site == OUR_LINE else [site]
    took_ms: list[float] = []
    async with group.messages():
        for line in lines:
            took_ms += await change_hands(group, line, official_clients[line])
        await group.join_python("last")
        await group.queues_of("last", 4)

    # A Java consumer that stops does not wait for its listener, whose message comes again.
    await group.check_order(repeats=True)
    if site == OUR_LINE:
        assert sorted(took_ms)[len(took_ms) // 2] < SOON_MS, took_ms


async def change_hands(group: OrderedGroup, line: str, java: Driver) -> list[float]:
    """Have Java and Python members join and leave; returns how long each hand-over took."""
    took_ms = {}
    first, second, third, ours = f"{line} a", f"{line} b", f"{line} c", f"python with {line}"
    await group.join_official(first, java)
    await group.queues_of(first, 4)
    await group.join_python(ours)
    took_ms["java to python"] = await group.queues_of(ours, 2)
    leaving = asyncio.create_task(group.leave(first))
    took_ms["java leaves"] = await group.queues_of(ours, 4)
    await leaving
    await group.join_official(second, java)
    took_ms["python to java"] = await group.queues_of(second, 2)
    await group.join_official(third, java)
    took_ms["to java"] = await group.queues_of(third, 1)
    # RocketMQ's clients go on shutting down after they have left the group.
    leaving = asyncio.create_task(group.leave(third))
    await group.queues_of(ours, 2)
    await group.leave(ours)
    took_ms["python leaves"] = await group.queues_of(second, 4)
    await leaving
    await group.leave(second)
    log.info("java %s at %s: %s", line, group.trial.site.line, took_ms)
    return list(took_ms.values())
