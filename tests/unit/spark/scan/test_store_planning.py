from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.spark.scan.store_planning import (
    EntryRange,
    Sample,
    cut_ranges,
    cuts,
    part_count,
    row_count,
    sample,
    shares,
    split,
    total_bytes,
)
from orbitmq.store.readonly.queue_files import Entry

Queues = list[list[Entry]]


def a_log(sizes: list[int], queues: int, seed: int = 0) -> Queues:
    """Queues of a log whose records have these sizes, each in a random queue."""
    chance = random.Random(seed)
    found: Queues = [[] for _ in range(queues)]
    at = 0
    for size in sizes:
        found[chance.randrange(queues)].append((at, size, 0))
        at += size
    return found


def ranges_of(queues: Queues) -> list[EntryRange]:
    return [EntryRange(number, 0, len(queue)) for number, queue in enumerate(queues) if queue]


def entry_of(queues: Queues):  # type: ignore[no-untyped-def]
    return lambda queue, number: queues[queue][number]


@pytest.mark.parametrize(
    ("rows", "row_bytes", "min_partitions", "expected"),
    [
        (0, 0, None, 1),
        (10, 1_000, None, 1),
        (150_000, 10**7, None, 2),
        (10**6, 10**8, None, 4),  # no more than processors
        (10**6, 10 * 2**30, None, 20),  # tasks of 512 MiB
        (10**6, 10**8, 7, 7),
        (3, 300, 7, 3),  # a task has a row at least
    ],
)
def test_the_number_of_tasks_follows_rows_and_bytes(
    rows: int, row_bytes: int, min_partitions: int | None, expected: int
) -> None:
    assert part_count(rows, row_bytes, parallelism=4, min_partitions=min_partitions) == expected


def test_stores_share_tasks_by_their_bytes() -> None:
    assert shares([100, 300, 0], 8) == [2, 6, 0]
    assert shares([1, 1_000], 4) == [1, 4]


def test_samples_represent_all_bytes_of_records_of_one_size() -> None:
    queues = a_log([100] * 10_000, 3)

    found = sample(ranges_of(queues), entry_of(queues))

    assert total_bytes(found) == 100 * 10_000
    assert len(found) == 512 // 3 * 3
    assert found == sorted(found)


def test_the_log_is_cut_into_parts_of_about_the_same_bytes() -> None:
    queues = a_log([100] * 20_000 + [1_000] * 2_000, 5)

    parts = split(ranges_of(queues), entry_of(queues), parts=4)

    sizes = [sum(queues[q][n][1] for q, a, b in part for n in range(a, b)) for part in parts]
    assert len(parts) == 4
    assert max(sizes) < 1.1 * min(sizes)


def test_parts_follow_one_another_in_the_log() -> None:
    queues = a_log([100] * 5_000, 4)

    parts = split(ranges_of(queues), entry_of(queues), parts=3)

    ends = 0
    for part in parts:
        offsets = [queues[q][n][0] for q, a, b in part for n in range(a, b)]
        assert min(offsets) == ends
        ends = max(offsets) + 100
    assert ends == 5_000 * 100


def test_nothing_is_cut_before_the_first_record() -> None:
    assert cuts([Sample(70, 1)], 5) == []
    assert cuts([], 5) == []
    assert cuts([Sample(0, 1), Sample(10, 1)], 2) == [10]


def test_parts_without_entries_are_dropped() -> None:
    queues: Queues = [[(0, 100, 0), (500, 100, 0)]]

    parts = cut_ranges([EntryRange(0, 0, 2)], [100, 200, 300], entry_of(queues))

    assert parts == [[EntryRange(0, 0, 1)], [EntryRange(0, 1, 2)]]


@given(
    st.lists(st.integers(91, 5_000), min_size=1, max_size=300),
    st.integers(1, 8),
    st.integers(1, 9),
    st.one_of(st.none(), st.integers(1, 50)),
)
def test_every_entry_is_in_one_part(
    sizes: list[int], queue_count: int, parts: int, records_max: int | None
) -> None:
    queues = a_log(sizes, queue_count)

    found = split(ranges_of(queues), entry_of(queues), parts=parts, records_max=records_max)

    seen = sorted((q, n) for part in found for q, a, b in part for n in range(a, b))
    assert seen == [(q, n) for q, queue in enumerate(queues) for n in range(len(queue))]
    if records_max is not None:
        assert max(map(row_count, found)) <= records_max


def test_entries_of_one_record_stay_together() -> None:
    queues: Queues = [[(0, 100, 0)], [(0, 100, 0)], [(0, 100, 0)]]

    assert len(split(ranges_of(queues), entry_of(queues), parts=2, records_max=1)) == 1
