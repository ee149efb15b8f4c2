"""The in-flight window, by example and against a plain set of offsets."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from orbitmq.client.core.consuming.inflight_window import InflightWindow
from orbitmq.clock import ManualClock


@dataclass(frozen=True)
class Pulled:
    queue_offset: int
    size: int = 100


def pulled(*offsets: int) -> list[Pulled]:
    return [Pulled(offset) for offset in offsets]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def window(clock: ManualClock) -> InflightWindow[Pulled]:
    return InflightWindow(10, clock)


def test_a_new_window_may_commit_where_it_starts(window: InflightWindow[Pulled]) -> None:
    assert (window.committable, window.count, window.bytes, window.span) == (10, 0, 0, 0)


def test_the_first_unfinished_message_holds_the_commit_back(
    window: InflightWindow[Pulled],
) -> None:
    window.add(pulled(10, 11, 12))

    assert window.finish(pulled(11, 12)) == 10
    assert window.finish(pulled(10)) == 13


def test_filtered_messages_are_committed_once_all_before_is_finished(
    window: InflightWindow[Pulled],
) -> None:
    window.add(pulled(10), next_offset=20)
    assert window.committable == 10

    assert window.finish(pulled(10)) == 20
    window.add([], next_offset=30)
    assert window.committable == 30


def test_counts_follow_additions_and_removals(window: InflightWindow[Pulled]) -> None:
    window.add(pulled(10, 12, 15))
    assert (window.count, window.bytes, window.span) == (3, 300, 5)
    assert (window.first_offset, window.last_offset, window.next_offset) == (10, 15, 16)

    window.finish(pulled(15))
    assert (window.count, window.bytes, window.span) == (2, 200, 2)

    window.finish(pulled(12, 10))
    assert (window.count, window.bytes, window.span) == (0, 0, 0)
    assert (window.first_offset, window.last_offset) == (None, None)


def test_a_message_that_was_pulled_before_is_not_added_again(
    window: InflightWindow[Pulled],
) -> None:
    window.add(pulled(10, 11))
    window.finish(pulled(10))

    assert window.add(pulled(10, 11, 12)) == pulled(12)
    assert window.count == 2


def test_finishing_twice_changes_nothing(window: InflightWindow[Pulled]) -> None:
    window.add(pulled(10, 11))
    window.finish(pulled(11))

    assert window.finish(pulled(11)) == 10
    assert (window.count, window.bytes) == (1, 100)


def test_messages_are_taken_in_order_and_committed_together(
    window: InflightWindow[Pulled],
) -> None:
    window.add(pulled(10, 11, 12))

    assert window.take(2) == pulled(10, 11)
    assert (window.committable, window.count, window.taken) == (10, 3, pulled(10, 11))
    assert window.commit() == 12
    assert window.take(2) == pulled(12)
    assert window.commit() == 13
    assert window.take(2) == []


def test_taken_messages_can_be_committed_in_steps(window: InflightWindow[Pulled]) -> None:
    window.add(pulled(10, 11, 12))
    window.take(3)

    assert window.commit(1) == 11
    assert window.taken == pulled(11, 12)
    window.roll_back()
    assert window.take(5) == pulled(11, 12)


def test_what_was_rolled_back_is_taken_again_first(window: InflightWindow[Pulled]) -> None:
    window.add(pulled(10, 11, 12))
    window.take(2)

    window.roll_back()

    assert (window.taken, window.count) == ([], 3)
    assert window.take(1) == pulled(10)


def test_what_was_taken_in_order_cannot_be_finished_out_of_order(
    window: InflightWindow[Pulled],
) -> None:
    window.add(pulled(10, 11))
    window.take(1)

    with pytest.raises(AssertionError, match="in order"):
        window.finish(pulled(11))


def test_a_message_is_in_the_window_until_it_is_finished(window: InflightWindow[Pulled]) -> None:
    window.add(pulled(10))
    assert Pulled(10) in window

    window.finish(pulled(10))
    assert Pulled(10) not in window


async def test_a_lock_ends_when_it_is_not_renewed(
    window: InflightWindow[Pulled], clock: ManualClock
) -> None:
    assert not window.locked
    window.note_lock()
    await clock.advance(10_000)
    assert window.locked

    await clock.advance(1)
    assert not window.locked

    window.note_lock()
    assert window.locked
    assert window.last_lock_ms == clock.now_ms()


async def test_a_queue_that_nobody_pulls_is_noticed(
    window: InflightWindow[Pulled], clock: ManualClock
) -> None:
    await clock.advance(120_000)
    assert not window.pull_expired

    await clock.advance(1)
    assert window.pull_expired

    window.note_pull()
    assert not window.pull_expired
    assert window.last_pull_ms == clock.now_ms()


async def test_setting_the_clock_ends_no_lock(
    window: InflightWindow[Pulled], clock: ManualClock
) -> None:
    window.note_lock()

    clock.adjust(3_600_000)

    assert window.locked
    assert not window.pull_expired


async def test_times_of_consumption_are_recorded_for_tools(
    window: InflightWindow[Pulled], clock: ManualClock
) -> None:
    window.add(pulled(10))
    await clock.advance(500)

    window.finish(pulled(10))

    assert window.last_consume_ms == clock.now_ms()


def test_a_window_stays_dropped(window: InflightWindow[Pulled]) -> None:
    assert not window.dropped

    window.drop()

    assert window.dropped


class WindowAndSet(RuleBasedStateMachine):
    """Any mix of pulls, finishing, taking, commits and roll-backs."""

    @initialize(start=st.integers(0, 50))
    def begin(self, start: int) -> None:
        self.window: InflightWindow[Pulled] = InflightWindow(start, ManualClock())
        self.next_offset = start
        self.unfinished: dict[int, Pulled] = {}
        self.taken: list[int] = []
        self.committed = start

    @rule(gaps=st.lists(st.integers(0, 3), max_size=6), behind=st.integers(0, 4))
    def pull(self, gaps: list[int], behind: int) -> None:
        messages = []
        offset = self.next_offset
        for gap in gaps:
            messages.append(Pulled(offset + gap, size=gap + 1))
            offset += gap + 1

        assert self.window.add(messages, next_offset=offset + behind) == messages
        self.next_offset = offset + behind
        self.unfinished.update((one.queue_offset, one) for one in messages)

    @precondition(lambda self: not self.taken)
    @rule(choice=st.data())
    def finish(self, choice: st.DataObject) -> None:
        done = choice.draw(st.sets(st.sampled_from(sorted(self.unfinished) or [0])))
        self.window.finish([Pulled(offset) for offset in done])
        for offset in done:
            self.unfinished.pop(offset, None)

    @rule(count=st.integers(1, 4))
    def take(self, count: int) -> None:
        free = sorted(set(self.unfinished) - set(self.taken))[:count]

        assert [one.queue_offset for one in self.window.take(count)] == free
        self.taken += free

    @rule(count=st.none() | st.integers(0, 4))
    def commit(self, count: int | None) -> None:
        if count is not None:
            count = min(count, len(self.taken))
        self.window.commit(count)
        done = len(self.taken) if count is None else count
        for offset in self.taken[:done]:
            del self.unfinished[offset]
        self.taken = self.taken[done:]

    @rule()
    def roll_back(self) -> None:
        self.window.roll_back()
        self.taken = []

    @invariant()
    def agrees(self) -> None:
        expected = min(self.unfinished, default=self.next_offset)
        assert self.window.committable == expected
        assert self.window.committable >= self.committed
        self.committed = expected
        assert self.window.count == len(self.unfinished)
        assert self.window.bytes == sum(one.size for one in self.unfinished.values())
        assert self.window.next_offset == self.next_offset
        offsets = sorted(self.unfinished) or [0]
        assert self.window.span == offsets[-1] - offsets[0]
        assert [one.queue_offset for one in self.window.taken] == self.taken


TestWindowAndSet = WindowAndSet.TestCase
TestWindowAndSet.settings = settings(max_examples=60, stateful_step_count=40)
