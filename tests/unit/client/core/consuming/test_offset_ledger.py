"""The offset ledger, by example and together with windows against a plain model."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orbitmq.client.core.consuming.inflight_window import InflightWindow
from orbitmq.client.core.consuming.offset_ledger import OffsetLedger
from orbitmq.clock import ManualClock
from orbitmq.model.queues import MessageQueue

FIRST = MessageQueue(topic="orders", broker_name="broker-a", queue_id=0)
SECOND = MessageQueue(topic="returns", broker_name="broker-a", queue_id=0)


@dataclass(frozen=True)
class Pulled:
    queue_offset: int
    size: int = 1


@pytest.fixture
def ledger() -> OffsetLedger:
    return OffsetLedger()


def test_an_unknown_queue_has_no_offset(ledger: OffsetLedger) -> None:
    assert ledger.read(FIRST) is None
    assert FIRST not in ledger
    assert ledger.dirty() == {}


def test_an_offset_only_increases(ledger: OffsetLedger) -> None:
    ledger.update(FIRST, 5)
    ledger.update(FIRST, 3)
    assert ledger.read(FIRST) == 5

    ledger.update(FIRST, 8)
    assert ledger.read(FIRST) == 8


def test_an_offset_decreases_on_request(ledger: OffsetLedger) -> None:
    ledger.update(FIRST, 5)

    ledger.update(FIRST, 3, increase_only=False)

    assert ledger.read(FIRST) == 3


def test_what_the_store_has_is_not_dirty(ledger: OffsetLedger) -> None:
    ledger.load(FIRST, 5)
    ledger.update(SECOND, 7)

    assert ledger.dirty() == {SECOND: 7}
    assert ledger.dirty([FIRST]) == {}


def test_an_offset_is_dirty_until_the_store_has_just_that(ledger: OffsetLedger) -> None:
    ledger.update(FIRST, 5)
    sent = ledger.dirty()[FIRST]
    ledger.update(FIRST, 6)

    ledger.mark_stored(FIRST, sent)
    assert ledger.dirty() == {FIRST: 6}

    ledger.mark_stored(FIRST, 6)
    assert ledger.dirty() == {}


def test_everything_is_dirty_when_the_store_may_have_lost_it(ledger: OffsetLedger) -> None:
    ledger.load(FIRST, 5)

    ledger.mark_all_dirty()

    assert ledger.dirty() == {FIRST: 5}


def test_a_reset_holds_against_what_the_old_window_finishes(ledger: OffsetLedger) -> None:
    window: InflightWindow[Pulled] = InflightWindow(5, ManualClock())
    window.add([Pulled(5)])
    ledger.load(FIRST, 5)

    ledger.reset(FIRST, 2)
    window.finish([Pulled(5)])
    ledger.record(FIRST, window)
    ledger.update(FIRST, 9, increase_only=False)

    assert ledger.dirty() == {FIRST: 2}


def test_a_reset_of_an_unknown_queue_is_dirty(ledger: OffsetLedger) -> None:
    ledger.reset(FIRST, 2)

    assert ledger.dirty() == {FIRST: 2}


def test_a_queue_moves_again_after_it_was_removed(ledger: OffsetLedger) -> None:
    ledger.reset(FIRST, 2)

    ledger.remove(FIRST)
    ledger.load(FIRST, 2)
    ledger.update(FIRST, 3)

    assert ledger.read(FIRST) == 3


def test_a_dropped_window_is_ignored(ledger: OffsetLedger) -> None:
    window: InflightWindow[Pulled] = InflightWindow(5, ManualClock())
    window.drop()

    ledger.record(FIRST, window)

    assert FIRST not in ledger


def test_the_offset_of_a_disowned_queue_is_fixed_until_it_comes_back(ledger: OffsetLedger) -> None:
    ledger.update(FIRST, 5)

    ledger.disown(FIRST)
    ledger.update(FIRST, 6)
    ledger.reset(FIRST, 1)
    ledger.mark_all_dirty()
    assert ledger.dirty() == ledger.offsets() == {}

    ledger.load(FIRST, 9)
    ledger.update(FIRST, 10)
    assert ledger.dirty() == {FIRST: 10}

    ledger.disown(FIRST)
    ledger.remove(FIRST)
    ledger.update(FIRST, 3)
    assert ledger.dirty() == {FIRST: 3}


def test_removed_queues_are_forgotten(ledger: OffsetLedger) -> None:
    ledger.update(FIRST, 5)

    ledger.remove(FIRST)
    ledger.remove(FIRST)
    ledger.mark_stored(FIRST, 5)

    assert ledger.offsets() == {}


def test_offsets_are_returned_by_topic(ledger: OffsetLedger) -> None:
    ledger.update(FIRST, 5)
    ledger.update(SECOND, 7)

    assert ledger.offsets("orders") == {FIRST: 5}
    assert ledger.offsets() == {FIRST: 5, SECOND: 7}


class LedgerAndWindow(RuleBasedStateMachine):
    """One queue that is consumed, persisted, lost, found again and reset, in any mix."""

    @initialize(start=st.integers(0, 20))
    def begin(self, start: int) -> None:
        self.ledger = OffsetLedger()
        self.stored = start
        self.listeners: list[tuple[InflightWindow[Pulled], Pulled]] = []
        self.finished_in_generation: set[int] = set()
        self.gain()

    def gain(self) -> None:
        self.ledger.load(FIRST, self.stored)
        self.window: InflightWindow[Pulled] = InflightWindow(self.stored, ManualClock())
        self.start = self.stored
        self.finished_in_generation = set()

    @rule(count=st.integers(1, 5))
    def pull(self, count: int) -> None:
        first = self.window.next_offset
        added = self.window.add([Pulled(first + number) for number in range(count)])
        self.listeners += [(self.window, one) for one in added]

    @rule(choice=st.data())
    def a_listener_ends(self, choice: st.DataObject) -> None:
        if self.listeners:
            position = choice.draw(st.integers(0, len(self.listeners) - 1))
            window, message = self.listeners.pop(position)
            window.finish([message])
            self.ledger.record(FIRST, window)
            if window is self.window:
                self.finished_in_generation.add(message.queue_offset)

    @rule()
    def persist(self) -> None:
        for queue, offset in self.ledger.dirty().items():
            assert queue == FIRST
            self.stored = offset
            self.ledger.mark_stored(queue, offset)

    @rule()
    def lose_and_gain_the_queue(self) -> None:
        self.persist()
        self.window.drop()
        self.ledger.remove(FIRST)
        self.gain()

    @rule(offset=st.integers(0, 40))
    def reset(self, offset: int) -> None:
        self.ledger.reset(FIRST, offset)
        self.lose_and_gain_the_queue()
        assert self.stored == offset

    @invariant()
    def nothing_unfinished_is_passed(self) -> None:
        offset = self.ledger.read(FIRST)
        assert offset is not None
        done = self.start
        while done in self.finished_in_generation:
            done += 1
        assert offset == done
        assert self.start <= self.stored <= done


TestLedgerAndWindow = LedgerAndWindow.TestCase
TestLedgerAndWindow.settings = settings(max_examples=60, stateful_step_count=40)
