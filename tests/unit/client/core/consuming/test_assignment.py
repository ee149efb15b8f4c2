"""Plans of a rebalance, by example and for a whole group that sees stale lists."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orbitmq.client.core.consuming.allocation import (
    Allocation,
    averagely,
    averagely_by_circle,
    by_config,
    consistent_hash,
)
from orbitmq.client.core.consuming.assignment import GroupView, Holding, Membership, plan
from orbitmq.model.queues import MessageQueue
from orbitmq.model.subscriptions import BROADCASTING


def queue(queue_id: int, topic: str = "orders") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name="broker-a", queue_id=queue_id)


def queues(count: int, topic: str = "orders") -> list[MessageQueue]:
    return [queue(number, topic) for number in range(count)]


def member(
    client_id: str = "c1", *, allocation: Allocation = averagely, ordered: bool = False
) -> Membership:
    return Membership(group="shippers", client_id=client_id, allocation=allocation, ordered=ordered)


def view(count: int = 4, client_ids: tuple[str, ...] = ("c1", "c2")) -> GroupView:
    return GroupView(
        subscribed=["orders"],
        queues={"orders": queues(count)},
        client_ids={"orders": client_ids},
    )


def test_a_new_member_adds_its_share_in_order() -> None:
    made = plan(member(), view(), Holding())

    assert (made.drop, made.lock, made.add) == ([], [], queues(2))
    assert made.balanced
    assert made.wanted == {"orders": set(queues(2))}


def test_what_another_member_should_have_is_dropped_before_anything_is_added() -> None:
    made = plan(member("c2"), view(), Holding(held=frozenset(queues(3))))

    assert (made.drop, made.add) == (queues(2), [queue(3)])


def test_a_member_that_has_its_share_does_nothing() -> None:
    made = plan(member(), view(), Holding(held=frozenset(queues(2))))

    assert (made.drop, made.add, made.balanced) == ([], [], True)


def test_queues_of_a_topic_no_longer_subscribed_are_dropped() -> None:
    held = frozenset([queue(0, "old"), *queues(2)])

    assert plan(member(), view(), Holding(held=held)).drop == [queue(0, "old")]


def test_a_topic_that_could_not_be_queried_keeps_its_queues() -> None:
    known = GroupView(subscribed=["orders", "returns"], queues={"orders": queues(2)})
    held = frozenset([queue(7), queue(0, "returns")])

    made = plan(member(), known, Holding(held=held))

    assert (made.drop, made.add, made.wanted) == ([], [], {})
    # The members of "orders" must be fetched again soon; "returns" is not known to exist.
    assert not made.balanced


def test_a_topic_that_does_not_exist_leaves_a_member_balanced() -> None:
    assert plan(member(), GroupView(subscribed=["orders"], queues={}), Holding()).balanced


def test_a_member_that_the_broker_does_not_know_gives_up_all_and_retries() -> None:
    made = plan(member("new"), view(), Holding(held=frozenset([queue(0)])))

    assert (made.drop, made.add) == ([queue(0)], [])
    assert not made.balanced


def test_an_ordered_member_adds_only_what_it_has_locked() -> None:
    first = plan(member(ordered=True), view(), Holding())
    assert (first.lock, first.add, first.balanced) == (queues(2), [], False)

    second = plan(member(ordered=True), view(), Holding(), locked=frozenset([queue(1)]))
    assert (second.lock, second.add, second.balanced) == ([queue(0)], [queue(1)], False)

    last = plan(member(ordered=True), view(), Holding(), locked=frozenset(queues(2)))
    assert (last.lock, last.add, last.balanced) == ([], queues(2), True)


def test_a_leaving_queue_is_dropped_even_if_it_is_wanted_again() -> None:
    holding = Holding(held=frozenset(queues(2)), leaving=frozenset([queue(1)]))

    made = plan(member(), view(), holding)

    assert (made.drop, made.add) == ([queue(1)], [])
    assert not made.balanced


def test_broadcasting_takes_every_queue_and_needs_no_members_and_no_locks() -> None:
    everyone = Membership(
        group="shippers", client_id="c1", allocation=averagely, model=BROADCASTING, ordered=True
    )

    made = plan(everyone, GroupView(subscribed=["orders"], queues={"orders": queues(3)}), Holding())

    assert (made.lock, made.add, made.balanced) == ([], queues(3), True)


def test_members_and_queues_are_sorted_whatever_their_order() -> None:
    shuffled = GroupView(
        subscribed=["orders"],
        queues={"orders": list(reversed(queues(4)))},
        client_ids={"orders": ["c2", "c1"]},
    )

    assert plan(member(), shuffled, Holding()).add == queues(2)


def test_an_allocation_takes_no_queue_of_another_topic_nor_a_missing_one() -> None:
    chosen = by_config([queue(1), queue(99), queue(0, "returns")])

    assert plan(member(allocation=chosen), view(), Holding()).add == [queue(1)]


CLIENTS = [f"c{number}" for number in range(5)]


class Group(RuleBasedStateMachine):
    """Members that join, leave, and rebalance with possibly stale lists of members."""

    @initialize(
        queue_count=st.integers(1, 12),
        ordered=st.booleans(),
        allocation=st.sampled_from([averagely, averagely_by_circle, consistent_hash()]),
    )
    def begin(self, queue_count: int, ordered: bool, allocation: Allocation) -> None:  # noqa: FBT001 - by name
        self.queues = queues(queue_count)
        self.ordered = ordered
        self.allocation = allocation
        self.present: list[str] = []
        self.lists: dict[str, list[str]] = {}
        self.held: dict[str, set[MessageQueue]] = {}
        self.leaving: dict[str, set[MessageQueue]] = {}
        self.locks: dict[MessageQueue, str] = {}

    @rule(client_id=st.sampled_from(CLIENTS))
    def join(self, client_id: str) -> None:
        if client_id not in self.present:
            self.present.append(client_id)
            self.lists[client_id] = list(self.present)
            self.held[client_id] = set()
            self.leaving[client_id] = set()

    @rule(client_id=st.sampled_from(CLIENTS))
    def leave(self, client_id: str) -> None:
        if client_id in self.present:
            self.present.remove(client_id)
            for owned in self.held.pop(client_id):
                self.locks.pop(owned, None)

    @rule(client_id=st.sampled_from(CLIENTS))
    def hear(self, client_id: str) -> None:
        self.lists[client_id] = list(self.present)

    @rule(client_id=st.sampled_from(CLIENTS), busy=st.booleans())
    def rebalance(self, client_id: str, busy: bool) -> None:  # noqa: FBT001 - drawn by name
        if client_id in self.present:
            self.round(client_id, busy=busy)

    def round(self, client_id: str, *, busy: bool) -> bool:
        own = member(client_id, allocation=self.allocation, ordered=self.ordered)
        seen = GroupView(
            subscribed=["orders"],
            queues={"orders": self.queues},
            client_ids={"orders": self.lists[client_id]},
        )
        held, leaving = self.held[client_id], self.leaving[client_id]
        for given_up in plan(own, seen, Holding(held=held, leaving=leaving)).drop:
            if busy and self.ordered:
                leaving.add(given_up)
            else:
                held.discard(given_up)
                leaving.discard(given_up)
                self.locks.pop(given_up, None)
        locked = set()
        for asked in plan(own, seen, Holding(held=held, leaving=leaving)).lock:
            if self.locks.setdefault(asked, client_id) == client_id:
                locked.add(asked)
        last = plan(own, seen, Holding(held=held, leaving=leaving), locked=locked)
        held.update(last.add)
        return last.balanced

    @invariant()
    def an_ordered_queue_never_has_two_owners(self) -> None:
        if self.ordered:
            owned = [one for held in self.held.values() for one in held]
            assert len(owned) == len(set(owned))

    def teardown(self) -> None:
        """Once all members know each other, each queue has one owner after two rounds at most."""
        if not hasattr(self, "present") or not self.present:
            return
        for client_id in self.present:
            self.lists[client_id] = list(self.present)
        for client_id in self.present:
            self.round(client_id, busy=False)
        assert all(self.round(client_id, busy=False) for client_id in self.present)
        owned = [one for held in self.held.values() for one in held]
        assert sorted(owned) == sorted(self.queues)


TestGroup = Group.TestCase
TestGroup.settings = settings(max_examples=60, stateful_step_count=40)
