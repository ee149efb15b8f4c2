"""Rebalancing: when rounds run, what they take and give up, in which order, with which locks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orbitmq.client.aio.group.offset_stores import BrokerOffsets
from orbitmq.client.aio.group.rebalancing import Rebalancing
from orbitmq.client.aio.group.start_offsets import StartOffsets
from orbitmq.client.core.consuming.allocation import averagely
from orbitmq.client.core.consuming.assignment import Membership
from orbitmq.clock import ManualClock
from orbitmq.errors import StateError
from orbitmq.model.queues import MessageQueue
from orbitmq.model.subscriptions import (
    BROADCASTING,
    CLUSTERING,
    FROM_LAST_OFFSET,
    MessageModel,
)
from tests.unit.client.aio.simulated_brokers import SimulatedBrokers, queue, queues


class Owner:
    """A consumer that records its calls; it cannot release the queues in `busy`."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []
        self.starts: dict[MessageQueue, int] = {}
        self.busy: set[MessageQueue] = set()
        self.changes: list[tuple[str, int, int]] = []
        self.failures: list[Exception] = []

    async def add_queue(self, queue: MessageQueue, start_offset: int) -> None:
        if self.failures:
            raise self.failures.pop()
        self.events.append(("add", queue.queue_id))
        self.starts[queue] = start_offset

    async def drop_queue(self, queue: MessageQueue) -> bool:
        if queue in self.busy:
            return False
        if queue in self.starts:
            del self.starts[queue]
            self.events.append(("drop", queue.queue_id))
        return True

    async def queues_changed(
        self, topic: str, queues: Sequence[MessageQueue], own: AbstractSet[MessageQueue]
    ) -> None:
        self.changes.append((topic, len(queues), len(own)))


class Client:
    """One member of the group, and its parts."""

    def __init__(
        self,
        brokers: SimulatedBrokers,
        clock: ManualClock,
        client_id: str,
        *,
        model: MessageModel = CLUSTERING,
        ordered: bool = False,
    ) -> None:
        self.routes = self.brokers = brokers
        self.clock = clock
        self.owner = Owner()
        self.topics = ["orders"]
        self.renewed: list[MessageQueue] = []
        self.offsets = BrokerOffsets("shippers", brokers, clock)
        starts = StartOffsets(self.offsets, brokers, consume_from=FROM_LAST_OFFSET, timestamp_ms=0)
        self.rebalancing = Rebalancing(
            Membership(
                group="shippers",
                client_id=client_id,
                allocation=averagely,
                model=model,
                ordered=ordered,
            ),
            self.owner,
            self,
            topics=lambda: self.topics,
            offsets=self.offsets,
            starts=starts,
            on_lock=self.renewed.append,
        )

    @property
    def queue_ids(self) -> list[int]:
        return sorted(one.queue_id for one in self.owner.starts)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def brokers() -> SimulatedBrokers:
    return SimulatedBrokers(orders=queues(4))


@pytest.fixture
async def started(
    brokers: SimulatedBrokers, clock: ManualClock
) -> AsyncIterator[Callable[..., Client]]:
    async with AsyncExitStack() as stack:

        def start(
            client_id: str = "c1", *, model: MessageModel = CLUSTERING, ordered: bool = False
        ) -> Client:
            client = Client(brokers, clock, client_id, model=model, ordered=ordered)
            if client_id not in brokers.client_ids:
                brokers.client_ids.append(client_id)
            client.rebalancing.start()
            stack.push_async_callback(client.rebalancing.stop, timeout_ms=0)
            return client

        yield start


Start = Callable[..., Client]


async def test_the_first_round_runs_at_once_and_takes_all_queues_in_order(
    started: Start, clock: ManualClock, brokers: SimulatedBrokers
) -> None:
    brokers.committed[queue(2)] = 42

    client = started()
    await clock.advance(0)

    assert client.owner.events == [("add", 0), ("add", 1), ("add", 2), ("add", 3)]
    assert client.owner.starts[queue(2)] == 42
    assert client.owner.starts[queue(1)] == 90
    assert client.owner.changes == [("orders", 4, 4)]
    assert client.rebalancing.queues == set(queues(4))


async def test_rounds_run_every_interval_and_change_nothing_if_nothing_changed(
    started: Start, clock: ManualClock, brokers: SimulatedBrokers
) -> None:
    client = started()
    await clock.advance(0)
    brokers.calls.clear()

    await clock.advance(19_999)
    assert brokers.calls == []
    await clock.advance(1)
    assert brokers.calls == ["members"]
    await clock.advance(20_000)
    assert brokers.calls == ["members", "members"]
    assert len(client.owner.events) == 4
    assert len(client.owner.changes) == 1


async def test_a_notification_starts_a_round_at_once_and_many_start_few(
    started: Start, clock: ManualClock, brokers: SimulatedBrokers
) -> None:
    client = started()
    await clock.advance(5_000)
    brokers.calls.clear()

    client.rebalancing.run_soon()
    await clock.advance(0)
    assert brokers.calls == ["members"]

    brokers.calls.clear()
    for _ in range(100):
        client.rebalancing.run_soon()
        await clock.advance(10)
    assert 10 <= len(brokers.calls) <= 13


async def test_members_share_the_queues_and_hand_over_what_was_committed(
    started: Start, clock: ManualClock, brokers: SimulatedBrokers
) -> None:
    first = started("c1")
    await clock.advance(1_000)
    first.offsets.update(queue(3), 123)

    second = started("c2")
    first.rebalancing.run_soon()
    await clock.advance(0)

    assert (first.queue_ids, second.queue_ids) == ([0, 1], [2, 3])
    assert brokers.committed[queue(3)] == 123
    assert first.offsets.cached(queue(3)) is None
    assert first.owner.changes[-1] == ("orders", 4, 2)


async def test_the_others_take_over_when_a_member_leaves(
    started: Start, clock: ManualClock, brokers: SimulatedBrokers
) -> None:
    first, second = started("c1"), started("c2")
    await clock.advance(1_000)
    second.offsets.update(queue(3), 123)

    await second.rebalancing.stop()
    brokers.client_ids.remove("c2")
    first.rebalancing.run_soon()
    await clock.advance(0)

    assert second.queue_ids == []
    assert first.queue_ids == [0, 1, 2, 3]
    assert first.owner.starts[queue(3)] == 123


async def test_members_that_cannot_be_fetched_change_nothing_and_are_retried_soon(
    started: Start, clock: ManualClock, brokers: SimulatedBrokers
) -> None:
    client = started()
    await clock.advance(0)
    brokers.down.add("broker-a")
    client.rebalancing.run_soon()
    await clock.advance(1_000)
    assert client.queue_ids == [0, 1, 2, 3]

    brokers.down.clear()
    brokers.client_ids.append("c2")
    await clock.advance(1_100)

    assert client.queue_ids == [0, 1]


async def test_a_queue_whose_offset_is_unknown_waits_while_the_others_start(
    started: Start, clock: ManualClock, brokers: SimulatedBrokers
) -> None:
    other = queue(9, broker_name="broker-b")
    brokers.topics["orders"] = [*queues(2), other]
    brokers.down.add("broker-b")

    client = started()
    await clock.advance(0)
    assert client.queue_ids == [0, 1]

    brokers.down.clear()
    await clock.advance(1_100)
    assert client.queue_ids == [0, 1, 9]


async def test_a_topic_no_longer_subscribed_is_given_up(started: Start, clock: ManualClock) -> None:
    client = started()
    await clock.advance(1_000)

    client.topics.clear()
    client.rebalancing.run_soon()
    await clock.advance(0)

    assert client.queue_ids == []
    assert client.owner.changes[-1] == ("orders", 0, 0)


async def test_a_retaken_queue_starts_at_the_offset_in_the_store(
    started: Start, clock: ManualClock, brokers: SimulatedBrokers
) -> None:
    client = started()
    await clock.advance(1_000)
    client.owner.events.clear()

    client.offsets.reset(queue(1), 7)
    client.rebalancing.retake(queue(1))
    client.rebalancing.retake(queue(77))
    assert queue(1) not in client.rebalancing.queues
    await clock.advance(0)

    assert client.owner.events == [("drop", 1), ("add", 1)]
    assert client.owner.starts[queue(1)] == 7
    assert brokers.committed[queue(1)] == 7


async def test_a_broadcasting_consumer_takes_all_queues_without_fetching_members(
    started: Start, clock: ManualClock, brokers: SimulatedBrokers
) -> None:
    brokers.client_ids = ["c2"]

    client = started("c1", model=BROADCASTING, ordered=True)
    await clock.advance(0)

    assert client.queue_ids == [0, 1, 2, 3]
    assert "members" not in brokers.calls
    assert "lock" not in brokers.calls


async def test_a_failed_round_is_logged_and_the_next_one_runs_soon(
    started: Start, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    client = started()
    client.owner.failures.append(ValueError("broken"))
    await clock.advance(0)
    assert "rebalancing failed group=shippers" in caplog.text
    assert client.queue_ids == [1, 2, 3]

    await clock.advance(1_100)

    assert client.queue_ids == [0, 1, 2, 3]


async def test_ordered_members_lock_before_they_fetch_the_start_offset(
    started: Start, clock: ManualClock, brokers: SimulatedBrokers
) -> None:
    started(ordered=True)
    await clock.advance(0)

    assert brokers.locks == dict.fromkeys(queues(4), "c1")
    assert brokers.calls.index("lock") < brokers.calls.index("committed")


async def test_an_ordered_queue_is_handed_over_only_after_its_listener_has_ended(
    started: Start, clock: ManualClock, brokers: SimulatedBrokers
) -> None:
    first = started("c1", ordered=True)
    await clock.advance(1_000)
    first.owner.busy = {queue(3)}
    first.offsets.update(queue(3), 100)

    second = started("c2", ordered=True)
    first.rebalancing.run_soon()
    await clock.advance(5_000)
    assert second.queue_ids == [2]
    assert brokers.locks[queue(3)] == "c1"

    first.offsets.update(queue(3), 101)
    first.owner.busy.clear()
    first.rebalancing.run_soon()
    await clock.advance(1_200)

    assert (first.queue_ids, second.queue_ids) == ([0, 1], [2, 3])
    assert second.owner.starts[queue(3)] == 101
    assert brokers.locks[queue(3)] == "c2"


async def test_a_member_that_waits_for_a_lock_asks_again_soon_and_less_and_less_often(
    started: Start, clock: ManualClock, brokers: SimulatedBrokers
) -> None:
    brokers.locks = dict.fromkeys(queues(4), "gone")
    client = started("c1", ordered=True)
    asked = []
    for _ in range(100):
        brokers.calls.clear()
        await clock.advance(50)
        asked.append("lock" in brokers.calls)

    assert [at * 50 for at, has_asked in enumerate(asked, 1) if has_asked][:8] == [
        50, 150, 350, 750, 1550, 2550, 3550, 4550,
    ]  # fmt: skip

    brokers.locks.clear()
    client.rebalancing.run_soon()
    await clock.advance(0)
    assert client.queue_ids == [0, 1, 2, 3]


async def test_a_queue_that_could_not_be_unlocked_is_unlocked_by_the_next_round(
    started: Start, clock: ManualClock, brokers: SimulatedBrokers
) -> None:
    class Deaf(SimulatedBrokers):
        async def unlock(self, *_: object) -> None:
            self.down.add("broker-a")
            self._answer("unlock", "broker-a")

    client = started("c1", ordered=True)
    await clock.advance(5_000)
    brokers.client_ids.append("c2")
    brokers.__class__ = Deaf
    client.rebalancing.run_soon()
    await clock.advance(0)
    assert client.queue_ids == [0, 1]
    assert brokers.locks == dict.fromkeys(queues(4), "c1")

    brokers.__class__ = SimulatedBrokers
    brokers.down.clear()
    await clock.advance(1_000)

    assert brokers.locks == dict.fromkeys(queues(2), "c1")


async def test_brokers_learn_for_how_long_locks_are_trusted_and_renewals_are_more_frequent(
    started: Start, clock: ManualClock, brokers: SimulatedBrokers
) -> None:
    started("c1", ordered=True)
    await clock.advance(0)
    assert brokers.trusted_ms == 10_000
    brokers.calls.clear()

    await clock.advance(10_000)

    assert brokers.calls.count("lock") == 3


async def test_locks_are_renewed_even_while_a_listener_keeps_a_queue(
    started: Start, clock: ManualClock, brokers: SimulatedBrokers
) -> None:
    client = started(ordered=True)
    await clock.advance(1_000)
    client.owner.busy = {queue(3)}
    brokers.client_ids.append("c2")
    client.rebalancing.run_soon()
    await clock.advance(0)
    brokers.locks.clear()

    await clock.advance(19_000)

    assert brokers.locks == dict.fromkeys([queue(0), queue(1), queue(3)], "c1")
    assert set(client.renewed) == {queue(0), queue(1), queue(3)}


async def test_a_lost_lock_drops_the_queue_without_a_commit_and_it_is_retried(
    started: Start, clock: ManualClock, brokers: SimulatedBrokers, caplog: pytest.LogCaptureFixture
) -> None:
    client = started(ordered=True)
    await clock.advance(1_000)
    client.owner.busy = {queue(1)}
    brokers.locks[queue(1)] = "c2"

    await clock.advance(19_000)
    client.offsets.update(queue(1), 100)
    await client.offsets.persist_all()
    client.owner.busy.clear()
    await clock.advance(1_100)
    assert client.queue_ids == [0, 2, 3]
    assert queue(1) not in brokers.committed
    assert "queue lock lost" in caplog.text

    brokers.committed[queue(1)] = 200
    del brokers.locks[queue(1)]
    await clock.advance(1_100)
    assert client.owner.starts[queue(1)] == 200


async def test_a_lock_that_is_not_needed_is_released(
    started: Start, clock: ManualClock, brokers: SimulatedBrokers
) -> None:
    class Unreadable(SimulatedBrokers):
        async def committed_offset(self, _queue: MessageQueue, _group: str) -> int | None:
            self.down.add("broker-a")
            self._answer("committed", "broker-a")
            return None

    brokers.__class__ = Unreadable
    started("c1", ordered=True)
    await clock.advance(0)
    assert brokers.locks == dict.fromkeys(queues(4), "c1")

    brokers.__class__ = SimulatedBrokers
    brokers.down.clear()
    brokers.client_ids.append("c2")
    await clock.advance(1_100)

    assert brokers.locks == dict.fromkeys(queues(2), "c1")


async def test_a_stop_gives_up_all_queues_commits_them_and_unlocks(
    started: Start, clock: ManualClock, brokers: SimulatedBrokers
) -> None:
    client = started(ordered=True)
    await clock.advance(0)
    client.offsets.update(queue(0), 100)

    await client.rebalancing.stop()
    await client.rebalancing.stop()

    assert client.queue_ids == []
    assert brokers.committed[queue(0)] == 100
    assert brokers.locks == {}
    with pytest.raises(StateError, match="stopped"):
        client.rebalancing.start()


async def test_a_stop_waits_for_listeners_and_then_continues_at_once(
    started: Start, clock: ManualClock, brokers: SimulatedBrokers
) -> None:
    client = started(ordered=True)
    await clock.advance(0)
    client.owner.busy = {queue(0)}

    stopping = asyncio.create_task(client.rebalancing.stop(timeout_ms=10_000))
    await clock.advance(9_000)
    assert not stopping.done()
    assert brokers.locks == {queue(0): "c1"}

    client.owner.busy.clear()
    client.rebalancing.run_soon()
    await stopping

    assert brokers.locks == {}


async def test_a_stop_does_not_wait_forever_and_keeps_the_locks_of_running_listeners(
    started: Start, clock: ManualClock, brokers: SimulatedBrokers, caplog: pytest.LogCaptureFixture
) -> None:
    client = started(ordered=True)
    await clock.advance(0)
    client.owner.busy = {queue(0)}

    stopping = asyncio.create_task(client.rebalancing.stop(timeout_ms=10_000))
    await clock.advance(10_000)
    await stopping

    assert brokers.locks == {queue(0): "c1"}
    assert "stopped before listeners ended group=shippers queues=1 timeout_ms=10000" in caplog.text


async def test_a_stop_without_time_to_wait_still_commits(
    started: Start, clock: ManualClock, brokers: SimulatedBrokers
) -> None:
    client = started(ordered=True)
    await clock.advance(0)
    client.owner.busy = {queue(1)}
    client.offsets.update(queue(0), 100)
    client.offsets.update(queue(1), 101)

    await client.rebalancing.stop(timeout_ms=0)

    assert client.queue_ids == [1]
    assert brokers.committed.items() >= {queue(0): 100, queue(1): 101}.items()
    assert brokers.locks == {queue(1): "c1"}


EVENTS = st.one_of(
    st.tuples(st.sampled_from(["join", "leave", "hear"]), st.sampled_from(["c1", "c2", "c3"])),
    st.tuples(
        st.sampled_from(["busy", "free", "notice", "away", "back", "expire"]), st.integers(0, 5)
    ),
    st.tuples(st.just("wait"), st.integers(1, 25_000)),
)


class Group:
    """Members of a group, to which anything may happen."""

    def __init__(self, *, ordered: bool) -> None:
        self.clock = ManualClock()
        self.brokers = SimulatedBrokers(orders=[*queues(4), *queues(2, broker_name="broker-b")])
        self.brokers.client_ids = []
        self.ordered = ordered
        self.members: dict[str, Client] = {}

    async def happen(self, event: str, subject: str | int) -> None:
        if isinstance(subject, str):
            await self.concern(event, subject)
        elif event == "wait":
            await self.clock.advance(subject)
        else:
            self.befall(event, subject)
        await self.clock.advance(0)

    async def concern(self, event: str, client_id: str) -> None:
        client = self.members.get(client_id)
        if event == "join" and client is None:
            self.brokers.client_ids.append(client_id)
            client = Client(self.brokers, self.clock, client_id, ordered=self.ordered)
            self.members[client_id] = client
            client.rebalancing.start()
        elif event == "leave" and client is not None:
            del self.members[client_id]
            client.owner.busy.clear()
            await client.rebalancing.stop(timeout_ms=0)
            self.brokers.client_ids.remove(client_id)
        elif client is not None:
            client.rebalancing.run_soon()

    def befall(self, event: str, number: int) -> None:
        one = self.brokers.topics["orders"][number]
        for client in self.members.values():
            if event == "busy":
                client.owner.busy |= client.owner.starts.keys()
            elif event == "free":
                client.owner.busy.clear()
            elif event == "notice":
                client.rebalancing.run_soon()
        if event == "away":
            self.brokers.down.add(["broker-a", "broker-b", "name server"][number % 3])
        elif event == "back":
            self.brokers.down.clear()
        elif event == "expire":
            self.brokers.locks.pop(one, None)

    async def live_on(self) -> None:
        """Long enough for locks that nobody renews to expire, and for two rounds after that."""
        self.brokers.expire_locks()
        await self.clock.advance(65_000)
        self.brokers.expire_locks()
        await self.clock.advance(45_000)

    def owners(self) -> list[MessageQueue]:
        return [one for client in self.members.values() for one in client.owner.starts]


@settings(max_examples=60, deadline=None)
@given(ordered=st.booleans(), events=st.lists(EVENTS, max_size=25))
@example(
    ordered=True,
    events=[("busy", 0), ("join", "c2"), ("wait", 5_000), ("notice", 0), ("wait", 5_000)],
)
@example(ordered=True, events=[("join", "c2"), ("away", 1), ("wait", 1_100)])
def test_whatever_happened_each_queue_has_one_owner_in_the_end(
    ordered: bool,  # noqa: FBT001 - by name
    events: list[tuple[str, str | int]],
) -> None:
    async def live() -> None:
        group = Group(ordered=ordered)
        await group.happen("join", "c1")
        for event, subject in events:
            await group.happen(event, subject)
            is_exclusive = ordered and not any(name == "expire" for name, _ in events)
            assert not is_exclusive or len(group.owners()) == len(set(group.owners()))
        for event in ("free", "back"):
            await group.happen(event, 0)
        if not group.members:
            await group.happen("join", "c1")

        await group.live_on()

        assert sorted(group.owners()) == sorted(group.brokers.topics["orders"])
        if ordered:
            assert all(
                set(client.owner.starts)
                == {one for one, holder in group.brokers.locks.items() if holder == client_id}
                for client_id, client in group.members.items()
            )
        for client in group.members.values():
            await client.rebalancing.stop(timeout_ms=0)
        assert group.brokers.locks == {}

    asyncio.run(live())
