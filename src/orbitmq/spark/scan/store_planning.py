"""Cutting a store into tasks: pure, but for the entries it asks for.

A task is a range of the log, and of each wanted queue the entries whose records lie in it. So
tasks that together read all topics go over the log once and side by side, and tasks of few queues
touch only the bytes of those. The log is cut where a record of a wanted queue begins, at places
found by asking some entries of each queue where they lie and how large their records are.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from orbitmq.store.readonly.queue_files import Entry, begins_at, first_where

# A task more costs more than what it saves below this many rows.
_ROWS_MIN: Final = 100_000
# A larger task would keep others waiting at the end, and take long to repeat.
_PART_BYTES_MAX: Final = 512 * 1024 * 1024
# Entries asked of all queues together, though of each at least two.
_SAMPLES_MAX: Final = 512


class EntryRange(NamedTuple):
    """Entries `first` to `end` of the queue that has a number among those planned for."""

    queue: int
    first: int
    end: int


class Sample(NamedTuple):
    """Where an entry's record lies, and the bytes of the records up to the next sample."""

    physical_offset: int
    weight: int


# Asks an entry of a queue.
EntryOf = Callable[[int, int], Entry]


def part_count(
    rows: int, row_bytes: int, *, parallelism: int, min_partitions: int | None = None
) -> int:
    """How many tasks rows of so many bytes altogether are worth."""
    wanted = max(
        min(parallelism, math.ceil(rows / _ROWS_MIN)),
        math.ceil(row_bytes / _PART_BYTES_MAX),
        min_partitions or 1,
    )
    return max(1, min(wanted, rows))


def shares(weights: Sequence[int], parts: int) -> list[int]:
    """Share parts out in proportion to weights: at least one for each that weighs anything."""
    total = sum(weights)
    return [max(1, round(parts * weight / total)) if weight else 0 for weight in weights]


def sample(ranges: Sequence[EntryRange], entry_of: EntryOf) -> list[Sample]:
    """Ask some entries of each range where they lie and how large their records are."""
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
    """How large the records are that samples stand for."""
    return sum(one.weight for one in samples)


def cuts(samples: Sequence[Sample], parts: int) -> list[int]:
    """Where to cut the log so that parts weigh about the same; there may be fewer of them."""
    if not samples:
        return []
    before = list(itertools.accumulate((one.weight for one in samples), initial=0))
    found: set[int] = set()
    for number in range(1, parts):
        at = bisect.bisect_left(before, before[-1] * number / parts, hi=len(samples) - 1)
        found.add(samples[at].physical_offset)
    # Nothing lies before the first.
    found.discard(samples[0].physical_offset)
    return sorted(found)


def cut_ranges(
    ranges: Sequence[EntryRange], places: Sequence[int], entry_of: EntryOf
) -> list[list[EntryRange]]:
    """Cut ranges where the log is cut; parts without an entry are left out."""
    parts: list[list[EntryRange]] = [[] for _ in range(len(places) + 1)]
    for queue, first, end in ranges:
        low = first
        for part, place in enumerate(places):
            behind = _first_from(place, queue, low, end, entry_of)
            if behind > low:
                parts[part].append(EntryRange(queue, low, behind))
            low = behind
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
    """Split ranges into about so many parts, and into more where one would have too many rows.

    `samples` are those of the ranges, if they were taken before.
    """
    places = cuts(sample(ranges, entry_of) if samples is None else samples, parts)
    whole = cut_ranges(ranges, places, entry_of)
    if records_max is None:
        return whole
    small: list[list[EntryRange]] = []
    for part in whole:
        rows = row_count(part)
        # What lies at one place of the log stays together.
        if rows <= records_max or (parts > 1 and len(whole) == 1):
            small.append(part)
        else:
            needed = max(2, math.ceil(rows / records_max))
            small += split(part, entry_of, parts=needed, records_max=records_max)
    return small


def row_count(ranges: Iterable[EntryRange]) -> int:
    """How many entries ranges have."""
    return sum(one.end - one.first for one in ranges)


def _first_from(place: int, queue: int, low: int, high: int, entry_of: EntryOf) -> int:
    return first_where(low, high, lambda number: begins_at(entry_of(queue, number)) >= place)
