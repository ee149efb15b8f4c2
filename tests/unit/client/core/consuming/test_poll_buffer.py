from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orbitmq.client.core.consuming.poll_buffer import NextPull, PollBuffer
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.errors import StateError
from orbitmq.model.queues import MessageQueue

FIRST, SECOND, OTHER = (
    MessageQueue(broker_name="broker-a", queue_id=number, topic="orders") for number in range(3)
)
SIZE = 100


def messages(queue: MessageQueue, *offsets: int) -> list[ReceivedMessage]:
    return [ReceivedMessage(b"", 0, SIZE, queue, offset) for offset in offsets]


def buffer(
    *, queue_count_max: int = 100, queue_bytes_max: int = 100_000, count_max: int = 1000
) -> PollBuffer:
    made = PollBuffer(
        queue_count_max=queue_count_max, queue_bytes_max=queue_bytes_max, count_max=count_max
    )
    for queue in (FIRST, SECOND):
        made.add(queue)
        made.start_at(queue, generation(made, queue), 10)
    return made


def generation(polled: PollBuffer, queue: MessageQueue) -> int:
    wanted = polled.next_pull(queue, 1)
    assert wanted is not None
    return wanted.generation


def pull(polled: PollBuffer, queue: MessageQueue, *offsets: int, next_offset: int) -> None:
    found = messages(queue, *offsets)
    assert polled.add_pulled(queue, generation(polled, queue), found, next_offset)


def taken(polled: PollBuffer, count: int) -> list[tuple[int, int]]:
    return [(message.queue_id, message.queue_offset) for message in polled.take(count)]


# --- polling ------------------------------------------------------------------------------------


def test_messages_of_a_queue_are_handed_out_in_their_order() -> None:
    polled = buffer()
    pull(polled, FIRST, 10, 11, 12, next_offset=13)

    assert taken(polled, 2) == [(0, 10), (0, 11)]
    assert taken(polled, 2) == [(0, 12)]
    assert taken(polled, 2) == []
    assert not polled.is_ready


def test_queues_take_turns() -> None:
    polled = buffer()
    pull(polled, FIRST, 10, 11, 12, next_offset=13)
    pull(polled, SECOND, 10, next_offset=11)

    assert taken(polled, 1) == [(0, 10)]
    assert taken(polled, 2) == [(1, 10), (0, 11)]


def test_a_poll_fills_up_from_other_queues() -> None:
    polled = buffer()
    pull(polled, FIRST, 10, 11, next_offset=12)
    pull(polled, SECOND, 10, 11, next_offset=12)

    assert taken(polled, 3) == [(0, 10), (0, 11), (1, 10)]


# --- what may be committed ----------------------------------------------------------------------


def test_what_was_handed_out_may_be_committed_once_it_is_done() -> None:
    polled = buffer()
    pull(polled, FIRST, 10, 11, 12, next_offset=13)
    polled.take(2)

    assert polled.committable() == {FIRST: 10, SECOND: 10}
    polled.finish()
    assert polled.committable() == {FIRST: 12, SECOND: 10}


def test_messages_that_a_filter_left_out_count_as_done() -> None:
    polled = buffer()

    pull(polled, FIRST, next_offset=900)

    assert polled.committable()[FIRST] == 900


def test_messages_that_a_filter_left_out_wait_for_those_handed_out_before() -> None:
    polled = buffer()
    pull(polled, FIRST, 10, next_offset=11)
    polled.take(1)

    pull(polled, FIRST, next_offset=900)

    assert polled.committable()[FIRST] == 10
    polled.finish()
    assert polled.committable()[FIRST] == 900


def test_nothing_is_committed_of_a_queue_whose_start_is_unknown() -> None:
    polled = PollBuffer(queue_count_max=1, queue_bytes_max=1, count_max=1)
    polled.add(FIRST)

    assert polled.committable() == {}
    assert polled.position(FIRST) is None


def test_a_queue_that_ends_earlier_than_before_is_committed_where_it_ends() -> None:
    polled = buffer()
    pull(polled, FIRST, 10, 11, next_offset=12)
    polled.take(1)
    polled.finish()
    polled.take(1)

    pull(polled, FIRST, next_offset=5)

    assert polled.committable()[FIRST] == 5


# --- bounds -------------------------------------------------------------------------------------


def test_a_pull_asks_for_what_there_is_room_for() -> None:
    polled = buffer(queue_count_max=3)
    pull(polled, FIRST, 10, 11, next_offset=12)

    wanted = polled.next_pull(FIRST, 32)

    assert wanted == NextPull(generation(polled, FIRST), 12, 1)


def test_a_full_queue_is_not_pulled_until_messages_are_taken() -> None:
    polled = buffer(queue_count_max=2)
    pull(polled, FIRST, 10, 11, next_offset=12)

    assert polled.next_pull(FIRST, 32) is None
    assert polled.next_pull(SECOND, 32) is not None
    polled.take(1)
    assert polled.next_pull(FIRST, 32) is not None


def test_a_queue_with_too_many_bytes_is_not_pulled_until_messages_are_taken() -> None:
    polled = buffer(queue_bytes_max=2 * SIZE)
    pull(polled, FIRST, 10, 11, next_offset=12)

    assert polled.next_pull(FIRST, 32) is None
    polled.take(1)
    assert polled.next_pull(FIRST, 32) is not None


def test_all_queues_wait_when_they_hold_too_much_together() -> None:
    polled = buffer(count_max=2)
    pull(polled, FIRST, 10, 11, next_offset=12)

    assert polled.next_pull(SECOND, 32) is None
    polled.take(1)
    assert polled.next_pull(SECOND, 32) == NextPull(generation(polled, SECOND), 10, 1)


# --- seeking, pausing, adding and removing --------------------------------------------------------


def test_a_seek_drops_buffered_messages_and_pulls_in_flight() -> None:
    polled = buffer()
    pull(polled, FIRST, 10, 11, next_offset=12)
    before = generation(polled, FIRST)

    polled.seek(FIRST, 50)

    assert taken(polled, 10) == []
    assert not polled.add_pulled(FIRST, before, messages(FIRST, 12), 13)
    assert taken(polled, 10) == []
    assert polled.committable()[FIRST] == 50
    assert polled.count == 0
    wanted = polled.next_pull(FIRST, 1)
    assert wanted is not None
    assert wanted.offset == 50


def test_a_seek_forgets_what_was_handed_out_before() -> None:
    polled = buffer()
    pull(polled, FIRST, 10, 11, next_offset=12)
    polled.take(1)

    polled.seek(FIRST, 3)
    polled.finish()

    assert polled.committable()[FIRST] == 3


def test_a_seek_wins_over_the_offset_that_the_group_starts_at() -> None:
    polled = PollBuffer(queue_count_max=1, queue_bytes_max=1, count_max=1)
    polled.add(FIRST)
    before = generation(polled, FIRST)

    polled.seek(FIRST, 7)
    polled.start_at(FIRST, before, 100)

    assert polled.position(FIRST) == 7


def test_a_queue_starts_once() -> None:
    polled = buffer()

    polled.start_at(FIRST, generation(polled, FIRST), 99)

    assert polled.position(FIRST) == 10


def test_a_paused_queue_is_neither_pulled_nor_handed_out() -> None:
    polled = buffer()
    pull(polled, FIRST, 10, next_offset=11)
    before = generation(polled, FIRST)

    polled.pause([FIRST])

    assert polled.next_pull(FIRST, 1) is None
    assert taken(polled, 1) == []
    assert polled.add_pulled(FIRST, before, messages(FIRST, 11), 12)
    assert taken(polled, 1) == []
    polled.resume([FIRST])
    assert polled.next_pull(FIRST, 1) is not None
    assert taken(polled, 5) == [(0, 10), (0, 11)]


def test_a_removed_queue_leaves_nothing_in_the_buffer() -> None:
    polled = buffer()
    pull(polled, FIRST, 10, 11, next_offset=12)
    before = generation(polled, FIRST)
    polled.take(1)

    polled.remove(FIRST)

    assert FIRST not in polled
    assert polled.queues == [SECOND]
    assert taken(polled, 5) == []
    assert polled.count == 0
    assert polled.next_pull(FIRST, 1) is None
    assert not polled.add_pulled(FIRST, before, messages(FIRST, 12), 13)
    assert polled.committable() == {SECOND: 10}


def test_a_queue_that_comes_back_does_not_take_what_was_pulled_before() -> None:
    polled = buffer()
    before = generation(polled, FIRST)
    polled.remove(FIRST)
    polled.add(FIRST)

    assert not polled.add_pulled(FIRST, before, messages(FIRST, 10), 11)


def test_adding_a_queue_again_changes_nothing() -> None:
    polled = buffer()
    pull(polled, FIRST, 10, next_offset=11)

    polled.add(FIRST)

    assert taken(polled, 1) == [(0, 10)]


def test_a_queue_that_is_not_read_is_refused_before_anything_changes() -> None:
    polled = buffer()

    with pytest.raises(StateError, match="queue 2 of topic 'orders' at broker-a is not read"):
        polled.pause([FIRST, OTHER])
    with pytest.raises(StateError):
        polled.seek(OTHER, 0)
    with pytest.raises(StateError):
        polled.position(OTHER)

    assert polled.next_pull(FIRST, 1) is not None


def test_buffered_messages_can_be_inspected() -> None:
    polled = buffer()
    pull(polled, FIRST, 10, 11, next_offset=12)

    assert [message.queue_offset for message in polled.buffered(FIRST)] == [10, 11]


# --- any order of events --------------------------------------------------------------------------


class BufferMachine(RuleBasedStateMachine):
    """Pulls, polls, seeks and moves of queues in any order, against a simple model."""

    def __init__(self) -> None:
        super().__init__()
        self.polled = PollBuffer(queue_count_max=6, queue_bytes_max=6 * SIZE, count_max=9)
        self.on_the_way: list[tuple[MessageQueue, NextPull]] = []
        # For each queue: the first offset that is not certainly done.
        self.unfinished: dict[MessageQueue, int] = {}
        self.expected: dict[MessageQueue, int] = {}

    @rule(queue=st.sampled_from([FIRST, SECOND]), offset=st.integers(0, 50))
    def add(self, queue: MessageQueue, offset: int) -> None:
        if queue not in self.polled:
            self.polled.add(queue)
            self.polled.start_at(queue, generation_or_none(self.polled, queue), offset)
            position = self.polled.position(queue)
            if position is not None:
                self.expected[queue] = self.unfinished[queue] = position

    @rule(queue=st.sampled_from([FIRST, SECOND]))
    def remove(self, queue: MessageQueue) -> None:
        self.polled.remove(queue)
        self.unfinished.pop(queue, None)
        self.expected.pop(queue, None)

    @rule(queue=st.sampled_from([FIRST, SECOND]))
    def begin_pull(self, queue: MessageQueue) -> None:
        wanted = self.polled.next_pull(queue, 4)
        if wanted is not None and wanted.offset is not None:
            self.on_the_way.append((queue, wanted))

    @precondition(lambda self: self.on_the_way)
    @rule(found=st.integers(0, 4))
    def end_pull(self, found: int) -> None:
        queue, wanted = self.on_the_way.pop(0)
        # Each generation of a queue has one pull in flight.
        self.on_the_way = [other for other in self.on_the_way if other != (queue, wanted)]
        assert wanted.offset is not None
        offsets = range(wanted.offset, wanted.offset + min(found, wanted.messages_max))
        self.polled.add_pulled(
            queue, wanted.generation, messages(queue, *offsets), wanted.offset + len(offsets)
        )

    @rule(count=st.integers(1, 5))
    def poll(self, count: int) -> None:
        self.polled.finish()
        self.unfinished.update(self.expected)
        for message in self.polled.take(count):
            assert message.queue_offset == self.expected[message.queue]
            self.expected[message.queue] += 1

    @rule(queue=st.sampled_from([FIRST, SECOND]), offset=st.integers(0, 50))
    def seek(self, queue: MessageQueue, offset: int) -> None:
        if queue in self.polled:
            self.polled.seek(queue, offset)
            self.expected[queue] = self.unfinished[queue] = offset

    @rule(queue=st.sampled_from([FIRST, SECOND]), paused=st.booleans())
    def pause(self, queue: MessageQueue, *, paused: bool) -> None:
        if queue in self.polled:
            (self.polled.pause if paused else self.polled.resume)([queue])

    @invariant()
    def commits_are_exact(self) -> None:
        assert self.polled.committable() == self.unfinished

    @invariant()
    def counts_add_up_and_keep_their_bounds(self) -> None:
        lengths = [len(self.polled.buffered(queue)) for queue in self.polled.queues]
        assert self.polled.count == sum(lengths)


def generation_or_none(polled: PollBuffer, queue: MessageQueue) -> int:
    wanted = polled.next_pull(queue, 1)
    return -1 if wanted is None else wanted.generation


TestBuffer = BufferMachine.TestCase
TestBuffer.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
