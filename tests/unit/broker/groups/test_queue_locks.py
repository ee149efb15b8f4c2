"""Locks on queues: who holds them, and when they end."""

from __future__ import annotations

import pytest

from orbitmq.broker.groups.queue_locks import QueueLocks
from orbitmq.clock import ManualClock
from orbitmq.errors import GroupRefusedError
from orbitmq.model.queues import MessageQueue

ONE, TWO, THREE = (MessageQueue(broker_name="b", queue_id=n, topic="T") for n in range(3))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def locks(clock: ManualClock) -> QueueLocks:
    return QueueLocks(clock=clock, locks_max=3)


def test_a_queue_is_locked_by_one_client_of_a_group(locks: QueueLocks) -> None:
    assert locks.lock("g", "a", [ONE, TWO]) == [ONE, TWO]
    assert locks.lock("g", "b", [TWO, THREE]) == [THREE]
    assert locks.owner("g", ONE) == locks.owner("g", TWO) == "a"
    assert locks.owner("g", THREE) == "b"


def test_groups_lock_independently(locks: QueueLocks) -> None:
    locks.lock("g", "a", [ONE])

    assert locks.lock("h", "b", [ONE]) == [ONE]


def test_a_lock_is_released_at_once_by_its_client_only(locks: QueueLocks) -> None:
    locks.lock("g", "a", [ONE, TWO])

    assert not locks.unlock("g", "b", [ONE])
    assert locks.unlock("g", "a", [TWO, THREE])
    assert not locks.unlock("h", "a", [ONE])

    assert locks.owner("g", ONE) == "a"
    assert locks.lock("g", "b", [ONE, TWO]) == [TWO]


def test_a_client_that_leaves_releases_all_its_locks(locks: QueueLocks) -> None:
    locks.lock("g", "a", [ONE, TWO])
    locks.lock("g", "b", [THREE])

    locks.unlock_all("g", "a")

    assert locks.lock("g", "b", [ONE, TWO, THREE]) == [ONE, TWO, THREE]


async def test_a_lock_ends_a_minute_after_its_last_renewal(
    locks: QueueLocks, clock: ManualClock
) -> None:
    locks.lock("g", "a", [ONE])
    await clock.advance(40_000)
    locks.lock("g", "a", [ONE])
    await clock.advance(59_999)
    assert locks.lock("g", "b", [ONE]) == []
    assert locks.has_any("g")

    await clock.advance(1)

    assert locks.owner("g", ONE) is None
    assert not locks.has_any("g")
    assert locks.lock("g", "b", [ONE]) == [ONE]


async def test_a_lock_ends_soon_after_its_connection_was_lost(
    locks: QueueLocks, clock: ManualClock
) -> None:
    locks.lock("g", "a", [ONE])
    locks.lock("g", "b", [TWO])
    locks.shorten("g", "a")
    await clock.advance(34_999)
    assert locks.lock("g", "b", [ONE]) == []

    await clock.advance(1)

    assert locks.lock("g", "b", [ONE]) == [ONE]
    assert locks.owner("g", TWO) == "b"


async def test_a_client_that_trusts_its_locks_for_a_short_time_loses_them_sooner(
    locks: QueueLocks, clock: ManualClock
) -> None:
    locks.lock("g", "a", [ONE], trust_ms=10_000)
    locks.lock("g", "b", [TWO], trust_ms=10_000_000)
    locks.shorten("g", "a")
    locks.shorten("g", "b")

    await clock.advance(14_999)
    assert locks.lock("g", "c", [ONE, TWO]) == []
    await clock.advance(1)
    assert locks.lock("g", "c", [ONE, TWO]) == [ONE]
    # Nobody makes a lock last longer than Java's clients do.
    await clock.advance(20_000)
    assert locks.lock("g", "c", [TWO]) == [TWO]


async def test_a_renewal_says_anew_how_long_the_lock_is_trusted(
    locks: QueueLocks, clock: ManualClock
) -> None:
    locks.lock("g", "a", [ONE], trust_ms=1_000)
    locks.lock("g", "a", [ONE])
    locks.shorten("g", "a")

    await clock.advance(34_999)

    assert locks.owner("g", ONE) == "a"


async def test_a_lost_connection_never_makes_a_lock_last_longer(
    locks: QueueLocks, clock: ManualClock
) -> None:
    locks.lock("g", "a", [ONE])
    await clock.advance(50_000)

    locks.shorten("g", "a")
    await clock.advance(10_000)

    assert locks.lock("g", "b", [ONE]) == [ONE]


async def test_a_client_that_comes_back_keeps_its_locks(
    locks: QueueLocks, clock: ManualClock
) -> None:
    locks.lock("g", "a", [ONE])
    locks.shorten("g", "a")
    await clock.advance(20_000)

    locks.lock("g", "a", [ONE])
    await clock.advance(59_999)

    assert locks.owner("g", ONE) == "a"


async def test_locks_are_bounded_and_expired_ones_make_room(
    locks: QueueLocks, clock: ManualClock
) -> None:
    locks.lock("g", "a", [ONE, TWO, THREE])
    with pytest.raises(
        GroupRefusedError, match="3 queues are locked, the limit; cannot lock more for 'h'"
    ):
        locks.lock("h", "a", [ONE])
    locks.lock("g", "a", [ONE])

    await clock.advance(60_000)
    assert locks.expire() == ["g"]
    assert locks.expire() == []

    assert locks.lock("h", "a", [ONE, TWO, THREE]) == [ONE, TWO, THREE]


def test_nothing_is_locked_at_first(locks: QueueLocks) -> None:
    assert not locks.has_any("g")
    assert locks.owner("g", ONE) is None
    assert locks.lock("g", "a", []) == []
    locks.shorten("g", "a")
    locks.unlock_all("g", "a")
    locks.expire()
