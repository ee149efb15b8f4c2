"""Groups of Java, Go and Python consumers share the queues of a topic, and hand them over."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orbitmq.client import Message
from orbitmq.client.aio import Producer
from orbitmq.clock import SystemClock
from orbitmq.model.queues import MessageQueue
from tests.interop.building import LINES
from tests.interop.drivers import Driver, JavaDriver
from tests.interop.group_members import Member, OfficialMember, PythonMember, Seen
from tests.interop.python_trials import Trial
from tests.interop.timeouts import CLIENT_TIMEOUT_S

pytestmark = pytest.mark.interop

CLOCK = SystemClock()
QUEUES = 10
# A lock whose owner did not give it up ends after a minute.
SETTLE_TIMEOUT_S = 2 * CLIENT_TIMEOUT_S
RECEIVE_TIMEOUT_S = CLIENT_TIMEOUT_S
# Rounds after the queues are shared out, in which every message comes once.
SETTLED_ROUNDS = 5
SETTLING_TRIES = 5
# Clients look for their queues and locks this often, not every twenty seconds.
LOOK_INTERVAL_MS = 1000


class MixedGroup:
    """The members of a group, and what was posted for them round by round."""

    def __init__(self, trial: Trial, producer: Producer, queues: list[MessageQueue]) -> None:
        self.trial = trial
        self.members: list[Member] = []
        self.gone: list[Member] = []
        self._producer = producer
        self._queues = queues
        self._round = 0

    async def join_python(self, name: str, *, ordered: bool = False) -> None:
        consumer, inbox = await self.trial.push(
            ordered=ordered, rebalance_interval_ms=LOOK_INTERVAL_MS, persist_interval_ms=1000
        )
        self.members.append(PythonMember(name, consumer, inbox))

    async def join_official(self, name: str, driver: Driver, *, kind: str = "push") -> None:
        member = OfficialMember(driver, self.trial, name)
        await member.join(kind=kind)
        self.members.append(member)

    async def leave(self, name: str) -> None:
        (member,) = (member for member in self.members if member.name == name)
        self.members.remove(member)
        self.gone.append(member)
        await member.leave()

    async def post_round(self) -> list[str]:
        """Send one message to every queue, and return their bodies."""
        self._round += 1
        bodies = [f"round {self._round} queue {queue.queue_id}" for queue in self._queues]
        for queue, body in zip(self._queues, bodies, strict=True):
            await self._producer.send(Message(self.trial.topic, body), queue=queue)
        return bodies

    async def owners(self, bodies: list[str]) -> dict[str, list[str]]:
        """Who received each of these messages, once every one was received."""
        wanted = set(bodies)
        end_ms = CLOCK.monotonic_ms() + RECEIVE_TIMEOUT_S * 1000
        while True:
            owners: dict[str, list[str]] = {body: [] for body in bodies}
            for member in [*self.members, *self.gone]:
                for seen in await member.seen():
                    if seen.body in wanted:
                        owners[seen.body].append(member.name)
            if all(owners.values()):
                return owners
            assert CLOCK.monotonic_ms() < end_ms, f"not received: {owners}"
            await CLOCK.sleep_ms(100)

    async def settle(self) -> dict[int, str]:
        """Post rounds until the queues are shared out evenly, one owner each; return the owners."""
        end_ms = CLOCK.monotonic_ms() + SETTLE_TIMEOUT_S * 1000
        share, rest = divmod(QUEUES, len(self.members))
        fair = sorted([share + 1] * rest + [share] * (len(self.members) - rest))
        names = {member.name for member in self.members}
        while True:
            owners = await self.owners(await self.post_round())
            by_queue = {int(body.rpartition(" ")[2]): names for body, names in owners.items()}
            counts = Counter(owner for names in by_queue.values() for owner in names)
            if set(counts) == names and sorted(counts.values()) == fair:
                return {queue_id: owner for queue_id, (owner,) in by_queue.items()}
            assert CLOCK.monotonic_ms() < end_ms, f"never shared evenly: {by_queue}"
            await CLOCK.sleep_ms(100)

    async def check_settled(self) -> None:
        """Share the queues out, then see every message come once, and to the same owner.

        Members of a busy machine may share the queues out evenly, and once more after that.
        """
        for tries_left in reversed(range(SETTLING_TRIES)):
            shared = await self.settle()
            bodies = [body for _ in range(SETTLED_ROUNDS) for body in await self.post_round()]
            await self.owners(bodies)
            # Long enough for what should not come to have come.
            await CLOCK.sleep_ms(300)
            owners = await self.owners(bodies)
            expected = {body: [shared[int(body.rpartition(" ")[2])]] for body in bodies}
            if owners == expected:
                return
            assert tries_left, (owners, expected)


@pytest.fixture(scope="module")
def quick_drivers(new_folder: Callable[[str], Path]) -> Iterator[dict[str, JavaDriver]]:
    """Drivers of their own: their clients look for queues every second."""
    made = {
        line: JavaDriver(
            line,
            new_folder(f"quick driver-{line}"),
            properties=[
                f"rocketmq.client.rebalance.waitInterval={LOOK_INTERVAL_MS}",
                f"rocketmq.client.rebalance.lockInterval={LOOK_INTERVAL_MS}",
            ],
        )
        for line in LINES
    }
    for driver in made.values():
        driver.start()
    yield made
    for driver in made.values():
        driver.stop()


@pytest.fixture
async def mixed_group(trial: Trial) -> MixedGroup:
    topic = f"{trial.topic}-mixed"
    await trial.create_topic(topic, queues=QUEUES)
    trial.topic = topic
    producer = await trial.producer()
    return MixedGroup(trial, producer, list(await producer.queues(topic)))


@pytest.mark.scenario("site", "Java, Go and Python in one group share queues, hand them over")
async def test_mixed_group_shares_queues_and_hands_them_over(
    mixed_group: MixedGroup,
    quick_drivers: dict[str, JavaDriver],
    official_clients: dict[str, Driver],
) -> None:
    group = mixed_group
    members: dict[str, Driver] = {**official_clients, **quick_drivers}
    await group.join_python("python a")
    await asyncio.gather(*(group.join_official(line, members[line]) for line in members))
    await group.join_python("python b")
    everyone = len(members) + 2
    await group.trial.members(everyone)

    await group.check_settled()
    await group.leave("v4")
    await group.trial.members(everyone - 1)
    await group.check_settled()
    await group.leave("python a")
    await group.trial.members(everyone - 2)
    await group.check_settled()
    for line in members.keys() - {"v4"}:
        await group.leave(line)
    await group.trial.members(1)
    await group.check_settled()


@pytest.mark.scenario("site", "Java and Python in one ordered group keep the order of each queue")
async def test_mixed_ordered_group_keeps_the_order_of_each_queue(
    mixed_group: MixedGroup, quick_drivers: dict[str, JavaDriver]
) -> None:
    group = mixed_group
    await group.join_official("java v5", quick_drivers["v5"], kind="orderly")
    await group.owners(await group.post_round())
    await group.join_python("python a", ordered=True)
    await group.join_official("java v4", quick_drivers["v4"], kind="orderly")
    await group.join_python("python b", ordered=True)
    await group.trial.members(4)

    await group.check_settled()
    await group.leave("java v5")
    await group.check_settled()
    await group.leave("python a")
    await group.check_settled()

    seen: list[Seen] = []
    for member in [*group.members, *group.gone]:
        seen += await member.seen()
    seen.sort(key=lambda one: one.received_ms)
    for queue_id in range(QUEUES):
        rounds = [int(one.body.split()[1]) for one in seen if one.queue_id == queue_id]
        # Handed over, a message may come again, but none comes before the one it follows.
        newest = 0
        for number in rounds:
            assert number <= newest + 1, rounds
            newest = max(newest, number)
