"""Limits and packing."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.model.queues import MessageQueue
from orbitmq.spark.reading.offsets import Offsets
from orbitmq.spark.reading.partitions import QueuePartition, QueueRange
from orbitmq.spark.reading.planning import (
    SPLIT_ROWS,
    TASK_ROWS,
    TriggerGate,
    lags,
    pack,
    rows_within,
    share,
)

THOUSAND = 1000


def queue(number: int) -> MessageQueue:
    return MessageQueue(topic="orders", broker_name="broker-a", queue_id=number)


def ranges_of(*rows: int) -> list[QueueRange]:
    return [QueueRange(queue(n), 10 * n, 10 * n + count) for n, count in enumerate(rows)]


def offsets_of(*numbers: int) -> Offsets:
    return {queue(n): number for n, number in enumerate(numbers)}


def sizes(partitions: list[QueuePartition]) -> list[int]:
    return sorted(partition.rows for partition in partitions)


def joined(partitions: list[QueuePartition]) -> list[QueueRange]:
    """The ranges of all partitions, pieces that touch put together again."""
    whole: list[QueueRange] = []
    pieces = [piece for partition in partitions for piece in partition.ranges]
    for piece in sorted(pieces, key=lambda piece: (piece.queue, piece.start)):
        assert piece.rows > 0
        if whole and whole[-1].queue == piece.queue:
            assert whole[-1].end == piece.start
            piece = QueueRange(piece.queue, whole.pop().start, piece.end)  # noqa: PLW2901
        whole.append(piece)
    return whole


packed_rows = st.lists(st.integers(0, 5 * SPLIT_ROWS) | st.integers(0, 20), max_size=12)


@given(
    packed_rows,
    st.integers(1, 8),
    st.none() | st.integers(1, 50),
    st.none() | st.integers(20_000, 10**6),
)
def test_partitions_have_every_message_once_and_keep_both_bounds(
    rows: list[int], parallelism: int, min_partitions: int | None, max_records: int | None
) -> None:
    ranges = ranges_of(*rows)

    partitions = pack(
        ranges, parallelism=parallelism, min_partitions=min_partitions, max_records=max_records
    )

    assert joined(partitions) == [part for part in ranges if part.rows]
    assert all(partition.rows > 0 for partition in partitions)
    if min_partitions:
        assert len(partitions) >= min(min_partitions, sum(rows))
    if max_records:
        assert max(sizes(partitions), default=0) <= max_records


@given(packed_rows, st.integers(1, 8))
def test_without_bounds_small_queues_stay_whole_and_tasks_are_as_many_as_run_at_a_time(
    rows: list[int], parallelism: int
) -> None:
    ranges = ranges_of(*rows)

    partitions = pack(ranges, parallelism=parallelism)

    assert len(partitions) <= parallelism
    whole = [piece for partition in partitions for piece in partition.ranges]
    assert all(part in whole for part in ranges if 0 < part.rows <= SPLIT_ROWS)


def test_many_small_queues_share_the_tasks_evenly() -> None:
    partitions = pack(ranges_of(500, 400, 300, 300, 300, 200), parallelism=2)

    assert sizes(partitions) == [1000, 1000]


def test_a_few_messages_are_left_to_one_task() -> None:
    few = pack(ranges_of(*[TASK_ROWS // 4] * 4), parallelism=4)
    more = pack(ranges_of(*[TASK_ROWS // 4] * 5), parallelism=4)

    assert sizes(few) == [TASK_ROWS]
    assert len(more) == 2


def test_a_large_queue_is_split_where_a_task_would_be_alone_with_it() -> None:
    partitions = pack(ranges_of(4 * SPLIT_ROWS, 10), parallelism=2)

    assert sizes(partitions) == [2 * SPLIT_ROWS, 2 * SPLIT_ROWS + 10]


def test_large_queues_that_keep_every_task_busy_are_not_split() -> None:
    partitions = pack(ranges_of(2 * SPLIT_ROWS, 2 * SPLIT_ROWS), parallelism=2)

    assert [len(partition.ranges) for partition in partitions] == [1, 1]


def test_a_minimum_of_partitions_may_split_small_queues_too() -> None:
    partitions = pack(ranges_of(9), parallelism=2, min_partitions=4)

    assert sizes(partitions) == [2, 2, 2, 3]


def test_more_partitions_than_messages_are_not_made() -> None:
    assert sizes(pack(ranges_of(2, 1), parallelism=2, min_partitions=10)) == [1, 1, 1]


def test_a_partition_of_several_queues_has_at_most_the_records_allowed() -> None:
    partitions = pack(ranges_of(4, 4, 4), parallelism=1, max_records=5)

    assert sizes(partitions) == [4, 4, 4]


def test_nothing_to_read_takes_no_task() -> None:
    assert pack(ranges_of(0, 0), parallelism=2, min_partitions=5) == []
    assert pack([QueueRange(queue(0), 5, 3)], parallelism=2) == []


def test_the_same_ranges_give_the_same_partitions_in_any_order() -> None:
    ranges = ranges_of(3, 3, 3, 250_000, 1)

    assert pack(ranges, parallelism=3) == pack(ranges[::-1], parallelism=3)


positions = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 50) | st.integers(0, 10**7)),
    min_size=1,
    max_size=10,
)


@given(positions, st.integers(1, 40) | st.integers(1, 10**6))
def test_a_share_is_within_the_limit_and_uses_all_of_it(
    places: list[tuple[int, int]], rows_max: int
) -> None:
    start = offsets_of(*(place for place, _ in places))
    end = offsets_of(*(place + lag for place, lag in places))

    shared = share(start, end, rows_max)

    given_rows = lags(start, shared)
    assert shared.keys() == end.keys()
    assert all(start[q] <= shared[q] <= end[q] for q in end)
    assert sum(given_rows.values()) == min(rows_max, sum(lags(start, end).values()))


@given(
    st.lists(st.integers(1, 30) | st.integers(1, 10**5), min_size=1, max_size=10),
    st.integers(1, 12),
    st.integers(0, 100),
)
def test_every_queue_has_its_turn_while_others_grow_without_end(
    waiting: list[int], rows_max: int, first: int
) -> None:
    start = offsets_of(*(first for _ in waiting))
    served: Counter[MessageQueue] = Counter()
    rounds = -(-len(waiting) // rows_max)

    for _ in range(rounds):
        end = {q: offset + waiting[q.queue_id] for q, offset in start.items()}
        shared = share(start, end, rows_max)
        served.update(lags(start, shared))
        start = shared

    assert all(served[q] > 0 for q in start)


def test_a_share_is_in_proportion_to_lag() -> None:
    shared = share(offsets_of(0, 100), offsets_of(3000, 1100), 400)

    assert shared == offsets_of(300, 200)


def test_all_messages_are_taken_if_within_the_limit() -> None:
    assert share(offsets_of(5, 5), offsets_of(8, 9), 7) == offsets_of(8, 9)


def test_an_end_below_its_start_stays_and_takes_nothing_from_others() -> None:
    assert share(offsets_of(50, 0), offsets_of(20, 10), 4) == offsets_of(20, 4)


def test_a_limit_of_bytes_becomes_one_of_messages_by_their_average() -> None:
    start, end = offsets_of(0, 0), offsets_of(1000, 3000)
    row_bytes = {queue(0): 700.0, queue(1): 100.0}

    rows = rows_within(100 * THOUSAND, start, end, row_bytes)

    assert rows == 400
    shared = lags(start, share(start, end, rows))
    shared_bytes = sum(row_bytes[q] * count for q, count in shared.items())
    assert abs(shared_bytes - 100 * THOUSAND) < 700, "off by less than a message"


def test_a_message_larger_than_the_limit_of_bytes_is_read_all_the_same() -> None:
    assert rows_within(10, offsets_of(0), offsets_of(5), {queue(0): 4096.0}) == 1


def test_a_limit_of_bytes_above_the_lag_limits_nothing() -> None:
    assert rows_within(10**9, offsets_of(0), offsets_of(5), {queue(0): 4096.0}) == 5


def test_a_small_batch_waits_for_more_or_for_its_time() -> None:
    gate = TriggerGate(rows_min=100, delay_max_ms=5000)

    assert gate.opens(1, now_ms=0), "the first batch never waits"
    assert not gate.opens(99, now_ms=4999)
    assert gate.opens(99, now_ms=5000)
    assert not gate.opens(99, now_ms=6000)
    assert gate.opens(100, now_ms=6001)


def test_a_wait_without_messages_does_not_restart_the_delay() -> None:
    gate = TriggerGate(rows_min=100, delay_max_ms=5000)
    assert gate.opens(1, now_ms=0)

    assert not gate.opens(0, now_ms=9000)
    assert gate.opens(1, now_ms=9001)
