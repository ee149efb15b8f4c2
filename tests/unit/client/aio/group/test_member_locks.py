"""Queue locks of a member: taken, renewed, lost and released."""

from __future__ import annotations

import pytest

from orbitmq.client.aio.group.member_locks import MemberLocks
from orbitmq.client.core.consuming.allocation import averagely
from orbitmq.client.core.consuming.assignment import Membership
from tests.unit.client.aio.simulated_brokers import SimulatedBrokers, queue, queues

MEMBER = Membership(group="shippers", client_id="c1", allocation=averagely, ordered=True)
ELSEWHERE = queue(0, broker_name="broker-b")


@pytest.fixture
def brokers() -> SimulatedBrokers:
    return SimulatedBrokers()


@pytest.fixture
def locks(brokers: SimulatedBrokers) -> MemberLocks:
    return MemberLocks(MEMBER, brokers)


async def test_only_free_queues_are_locked(locks: MemberLocks, brokers: SimulatedBrokers) -> None:
    brokers.locks[queue(1)] = "c2"

    await locks.lock(queues(3))

    assert locks.held == {queue(0), queue(2)}


async def test_a_broker_is_asked_for_all_its_queues_at_once(
    locks: MemberLocks, brokers: SimulatedBrokers
) -> None:
    await locks.lock([*queues(3), ELSEWHERE])

    assert brokers.calls == ["lock", "lock"]


async def test_a_renewal_returns_the_locks_that_another_client_now_holds(
    locks: MemberLocks, brokers: SimulatedBrokers
) -> None:
    await locks.lock(queues(2))
    brokers.locks[queue(1)] = "c2"

    renewed, lost = await locks.renew()

    assert (renewed, lost) == ({queue(0)}, {queue(1)})
    assert locks.held == {queue(0)}


async def test_locks_at_a_broker_that_does_not_answer_are_not_lost(
    locks: MemberLocks, brokers: SimulatedBrokers, caplog: pytest.LogCaptureFixture
) -> None:
    await locks.lock([queue(0), ELSEWHERE])
    brokers.down.add("broker-b")

    renewed, lost = await locks.renew()

    assert (renewed, lost) == ({queue(0)}, set())
    assert locks.held == {queue(0), ELSEWHERE}
    assert "queues not locked group=shippers broker=broker-b queues=1" in caplog.text


async def test_locks_are_released(locks: MemberLocks, brokers: SimulatedBrokers) -> None:
    await locks.lock(queues(2))

    await locks.unlock({queue(0), queue(7)})

    assert brokers.locks == {queue(1): "c1"}
    assert locks.held == {queue(1)}


async def test_a_lock_that_cannot_be_released_is_released_by_a_later_attempt(
    locks: MemberLocks, brokers: SimulatedBrokers, caplog: pytest.LogCaptureFixture
) -> None:
    await locks.lock([queue(0)])
    brokers.down.add("broker-a")

    await locks.unlock({queue(0)})
    assert locks.held == {queue(0)}
    assert "queues not unlocked" in caplog.text

    brokers.down.clear()
    await locks.unlock({queue(0)})
    assert locks.held == set()
    assert brokers.locks == {}
