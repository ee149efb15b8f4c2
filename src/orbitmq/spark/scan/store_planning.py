"""Cuts a store into tasks; its only input is the entries that it samples.

A task is a range of the log, and for each wanted queue the entries whose records are in it. So
tasks that together read all topics read the log once, in parallel, and tasks for a few queues touch
only the bytes of those. The log is cut where a record of a wanted queue starts. Where to cut is
found by sampling the offsets and record sizes of some entries of each queue.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from orbitmq.store.readonly.queue_files import Entry, begins_at, first_where

# Below this many rows, another task costs more than it saves.
_ROWS_MIN: Final = 100_000
# A larger task would delay the end of the query, and take long to retry.
_PART_BYTES_MAX: Final = 512 * 1024 * 1024
# Entries sampled from all queues together; at least two from each.
_SAMPLES_MAX: Final = 512


class EntryRange(NamedTuple):
    """Entries `first` to `end` of a queue, given by its index among the planned queues."""

    queue: int
    first: int
    end: int


class Sample(NamedTuple):
    """Where an entry's record is, and the bytes of the records up to the next sample."""

    physical_offset: int
    weight: int


# Returns an entry of a queue, by the queue's index and the entry's number.
EntryOf = Callable[[int, int], Entry]


def part_count(
    rows: int, row_bytes: int, *, parallelism: int, min_partitions: int | None = None
) -> int:
    """How many tasks to make for this many rows and bytes."""
    wanted = max(
        min(parallelism, math.ceil(rows / _ROWS_MIN)),
        math.ceil(row_bytes / _PART_BYTES_MAX),
        min_partitions or 1,
    )
    return max(1, min(wanted, rows))


def shares(weights: Sequence[int], parts: int) -> list[int]:
    """Divide parts in proportion to weights: at least one for each positive weight."""
    total = sum(weights)
    return [max(1, round(parts * weight / total)) if weight else 0 for weight in weights]


def sample(ranges: Sequence[EntryRange], entry_of: EntryOf) -> list[Sample]:
    """Sample the offsets and record sizes of some entries of each range."""
    samples: list[Sample] = []
    per_queue = max(2, _SAMPLES_MAX // max(1, len(ranges)))
    for queue, first, end in ranges:
        taken = min(per_queue, end - first)
        numbers = [first + step * (end - first) // taken for step in range(taken)]
        for number, following in itertools.pairwise([*numbers, end]):
            physical_offset, record_bytes, _ = entry_of(queue, number)
            samples.append(Sample(physical_offset, record_bytes * (following - number)))
    return sorted(samples)


def total_bytes(samples: Iterable[Sample]) -> int:
    """The bytes of the records that samples represent."""
    return sum(one.weight for one in samples)


def cuts(samples: Sequence[Sample], parts: int) -> list[int]:
    """Where to cut the log into parts of about equal weight; there may be fewer parts."""
    if not samples:
        return []
    before = list(itertools.accumulate((one.weight for one in samples), initial=0))
    found: set[int] = set()
    for number in range(1, parts):
        at = bisect.bisect_left(before, before[-1] * number / parts, hi=len(samples) - 1)
        found.add(samples[at].physical_offset)
    # Nothing is before the first.
    found.discard(samples[0].physical_offset)
    return sorted(found)


def cut_ranges(
    ranges: Sequence[EntryRange], cut_offsets: Sequence[int], entry_of: EntryOf
) -> list[list[EntryRange]]:
    """Cut ranges where the log is cut; parts without entries are dropped."""
    parts: list[list[EntryRange]] = [[] for _ in range(len(cut_offsets) + 1)]
    for queue, first, end in ranges:
        low = first
        for part, cut_offset in enumerate(cut_offsets):
            high = _first_from(cut_offset, queue, low, end, entry_of)
            if high > low:
                parts[part].append(EntryRange(queue, low, high))
            low = high
        if end > low:
            parts[-1].append(EntryRange(queue, low, end))
    return [part for part in parts if part]


def split(
    ranges: Sequence[EntryRange],
    entry_of: EntryOf,
    *,
    parts: int,
    records_max: int | None = None,
    samples: Sequence[Sample] | None = None,
) -> list[list[EntryRange]]:
    """Split ranges into about this many parts, and into more where one would have too many rows.

    `samples` are those of the ranges, if already taken.
    """
    cut_offsets = cuts(sample(ranges, entry_of) if samples is None else samples, parts)
    whole = cut_ranges(ranges, cut_offsets, entry_of)
    if records_max is None:
        return whole
    small: list[list[EntryRange]] = []
    for part in whole:
        rows = row_count(part)
        # Records at one offset of the log stay together.
        if rows <= records_max or (parts > 1 and len(whole) == 1):
            small.append(part)
        else:
            needed = max(2, math.ceil(rows / records_max))
            small += split(part, entry_of, parts=needed, records_max=records_max)
    return small


def row_count(ranges: Iterable[EntryRange]) -> int:
    """The number of entries in ranges."""
    return sum(one.end - one.first for one in ranges)


def _first_from(offset: int, queue: int, low: int, high: int, entry_of: EntryOf) -> int:
    return first_where(low, high, lambda number: begins_at(entry_of(queue, number)) >= offset)
