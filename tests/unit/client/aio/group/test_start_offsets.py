"""Where a consumer starts in a queue it has just taken."""

from __future__ import annotations

import pytest

from orbitmq.client.aio.group.offset_stores import BrokerOffsets
from orbitmq.client.aio.group.start_offsets import StartOffsets, start_offsets_of
from orbitmq.client.aio.instance.client_instance import ClientInstance
from orbitmq.client.options import ClientOptions, MemberOptions
from orbitmq.clock import ManualClock
from orbitmq.errors import ConnectError
from orbitmq.model.queues import MessageQueue
from orbitmq.model.subscriptions import (
    FROM_FIRST_OFFSET,
    FROM_LAST_OFFSET,
    FROM_TIMESTAMP,
    ConsumeFrom,
)
from tests.unit.client.aio.simulated_brokers import SimulatedBrokers, queue


@pytest.fixture
def brokers() -> SimulatedBrokers:
    return SimulatedBrokers()


@pytest.fixture
def offsets(brokers: SimulatedBrokers) -> BrokerOffsets:
    return BrokerOffsets("shippers", brokers, ManualClock())


def starts(
    offsets: BrokerOffsets, brokers: SimulatedBrokers, consume_from: ConsumeFrom = FROM_LAST_OFFSET
) -> StartOffsets:
    return StartOffsets(offsets, brokers, consume_from=consume_from, timestamp_ms=55_000)


async def test_a_committed_offset_takes_precedence(
    offsets: BrokerOffsets, brokers: SimulatedBrokers
) -> None:
    brokers.committed[queue(0)] = 42

    assert await starts(offsets, brokers, FROM_FIRST_OFFSET).of(queue(0)) == 42
    assert brokers.calls == ["committed"]


@pytest.mark.parametrize(
    ("consume_from", "expected"),
    [(FROM_FIRST_OFFSET, 10), (FROM_LAST_OFFSET, 90), (FROM_TIMESTAMP, 55)],
)
async def test_without_a_commit_the_broker_is_asked_for_the_start(
    offsets: BrokerOffsets, brokers: SimulatedBrokers, consume_from: ConsumeFrom, expected: int
) -> None:
    assert await starts(offsets, brokers, consume_from).of(queue(0)) == expected


class QueueThatIsEmptyAtFirst(SimulatedBrokers):
    """A queue as RocketMQ 5 has it: its first message arrives just before its end is asked for.

    While it is empty the broker knows no offset of a new group; once it has a first message, which
    is in memory, the broker answers 0.
    """

    def __init__(self, arriving: int) -> None:
        super().__init__()
        self._arriving = arriving
        self._end = 0

    async def committed_offset(self, queue: MessageQueue, _group: str) -> int | None:
        committed = await super().committed_offset(queue, _group)
        return 0 if committed is None and self._end else committed

    async def max_offset(self, queue: MessageQueue, *, at_master: bool = False) -> int:
        await super().max_offset(queue, at_master=at_master)
        self._end = self._arriving
        return self._end


@pytest.mark.parametrize("arriving", [0, 1, 7])
async def test_a_new_group_skips_no_message_that_arrives_while_it_looks_for_its_start(
    arriving: int,
) -> None:
    brokers = QueueThatIsEmptyAtFirst(arriving)
    offsets = BrokerOffsets("shippers", brokers, ManualClock())

    assert await starts(offsets, brokers).of(queue(0)) == 0
    await offsets.persist_all()
    assert brokers.committed == {queue(0): 0}


async def test_a_start_that_another_member_committed_meanwhile_counts(
    offsets: BrokerOffsets, brokers: SimulatedBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def commit_first(queue: MessageQueue, *, at_master: bool) -> int:
        assert at_master
        brokers.committed[queue] = 88
        return 90

    monkeypatch.setattr(brokers, "max_offset", commit_first)

    assert await starts(offsets, brokers).of(queue(0)) == 88


async def test_the_start_is_committed_before_the_first_message(
    offsets: BrokerOffsets, brokers: SimulatedBrokers
) -> None:
    await starts(offsets, brokers).of(queue(0))

    await offsets.persist_all()

    assert brokers.committed == {queue(0): 90}


async def test_the_start_is_not_guessed_when_the_broker_does_not_answer(
    offsets: BrokerOffsets, brokers: SimulatedBrokers
) -> None:
    brokers.down.add("broker-a")

    with pytest.raises(ConnectError):
        await starts(offsets, brokers).of(queue(0))
    assert offsets.cached(queue(0)) is None


async def test_a_consumer_starts_as_configured_and_by_default_half_an_hour_ago() -> None:
    clock = ManualClock()
    instance = ClientInstance("c1", ClientOptions(), address="127.0.0.1", clock=clock)
    offsets = BrokerOffsets("shippers", instance.brokers, clock)

    made = start_offsets_of(instance, offsets, MemberOptions(consume_from="timestamp"))
    exact = start_offsets_of(
        instance, offsets, MemberOptions(consume_from="first", consume_timestamp_ms=5)
    )

    assert (made._consume_from, made._timestamp_ms) == (
        FROM_TIMESTAMP,
        clock.now_ms() - 30 * 60_000,
    )
    assert (exact._consume_from, exact._timestamp_ms) == (FROM_FIRST_OFFSET, 5)
