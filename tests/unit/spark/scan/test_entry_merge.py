from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import StoreDamagedError
from orbitmq.spark.scan.entry_merge import EntryWindow, merged
from orbitmq.spark.scan.store_partitions import QueueSlice
from orbitmq.store.index.consume_queue import ENTRY, ENTRY_BYTES


def a_slice(number: int, count: int, topic: str = "orders", first: int = 0) -> QueueSlice:
    return QueueSlice(topic, number, first, count, count, 6_000_000)


class Queues:
    """Entries of queues, read some at a time."""

    def __init__(self, entries: list[list[tuple[int, int, int]]], at_once: int = 10**9) -> None:
        self.content = [b"".join(ENTRY.pack(*entry) for entry in queue) for queue in entries]
        self.slices = [a_slice(number, len(queue)) for number, queue in enumerate(entries)]
        self._at_once = at_once

    def read(self, one: QueueSlice, first: int, end: int) -> tuple[int, bytes]:
        end = min(end, first + self._at_once)
        return first, self.content[one.queue_id][first * ENTRY_BYTES : end * ENTRY_BYTES]


def all_of(windows: list[EntryWindow]) -> list[tuple[int, int]]:
    return [
        (int(offset), int(size))
        for window in windows
        for offset, size in zip(window.physical_offsets, window.record_bytes, strict=True)
    ]


@given(
    st.lists(st.integers(0, 5), min_size=0, max_size=400),
    st.integers(1, 40),
    st.integers(1, 200),
)
def test_entries_of_all_queues_come_in_the_order_of_the_log(
    queue_of: list[int], at_once: int, window_entries: int
) -> None:
    entries: list[list[tuple[int, int, int]]] = [[] for _ in range(6)]
    for number, queue in enumerate(queue_of):
        entries[queue].append((number * 200, 100 + queue, 0))
    queues = Queues(entries, at_once)

    found = list(merged(queues.slices, queues.read, window_entries=window_entries))

    assert all_of(found) == [(n * 200, 100 + queue) for n, queue in enumerate(queue_of)]


def test_a_window_is_small_whatever_the_queues_hold() -> None:
    entries = [[(n * 400 + q * 100, 100, 0) for n in range(5_000)] for q in range(4)]
    queues = Queues(entries)

    found = list(merged(queues.slices, queues.read, window_entries=1_000))

    # Half of a window may be left when the next one is read.
    assert max(window.physical_offsets.size for window in found) <= 1_500
    assert len(all_of(found)) == 20_000


def test_entries_of_other_tags_are_dropped() -> None:
    chance = random.Random(1)
    entries = [(n * 100, 100, chance.choice([7, 8, -9])) for n in range(1_000)]
    queues = Queues([entries])

    found = list(merged(queues.slices, queues.read, tag_hashes=[7, -9]))

    assert [offset for offset, _ in all_of(found)] == [o for o, _, tag in entries if tag != 8]


def test_entries_without_a_tag_hash_stay() -> None:
    queues = Queues([[(0, 100, -(2**63) + 5), (100, 100, 8)]])

    assert all_of(list(merged(queues.slices, queues.read, tag_hashes=[7]))) == [(0, 100)]


def test_entries_of_delayed_messages_hold_a_time_and_stay() -> None:
    queues = Queues([[(0, 100, 1_700_000_000), (100, 100, 1_700_000_001)]])
    slices = [a_slice(0, 2, topic="SCHEDULE_TOPIC_XXXX")]

    assert len(all_of(list(merged(slices, queues.read, tag_hashes=[7])))) == 2


@pytest.mark.parametrize(
    "entry", [(100, 0, 0), (0, 100, 0), (50, 100, 0), (-5, 100, 0), (200, 90, 0)]
)
def test_an_entry_that_points_to_no_record_is_damage(entry: tuple[int, int, int]) -> None:
    queues = Queues([[(0, 100, 0), (100, 100, 0), entry]])

    with pytest.raises(
        StoreDamagedError, match="entry 2 of queue 0 of topic 'orders' points to no"
    ):
        list(merged(queues.slices, queues.read))


def test_reading_resumes_after_deleted_entries() -> None:
    queues = Queues([[(n * 100, 100, 0) for n in range(10)]])

    def read(one: QueueSlice, first: int, end: int) -> tuple[int, bytes]:
        return (5, b"") if first < 5 else queues.read(one, first, end)

    assert len(all_of(list(merged(queues.slices, read)))) == 5
