"""Merges the entries of several queues into the order of the log.

Each queue's entries are in that order already, so a window of each is enough to know which come
next. Entries that a tag filter rules out are dropped here, before their records are touched.

Threads: one. Memory: the entries of a window, whatever the queues hold.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.errors import StoreDamagedError
from orbitmq.model.names import SCHEDULE_TOPIC
from orbitmq.record.layout import FIXED_BYTES
from orbitmq.spark.scan.store_partitions import QueueSlice

log = logging.getLogger(__name__)

# Perf: entries of all queues in memory at a time; 2.6 MB, so that sorting stays in the
# processor's cache (benchmarks/spark_store_scan.py, decoding alone).
WINDOW_ENTRIES: Final = 128 * 1024
_CHUNK_ENTRIES_MIN: Final = 64
_INT_LOW: Final = -(2**31)
_INT_HIGH: Final = 2**31 - 1

_ENTRY: Final = np.dtype([("physical_offset", ">i8"), ("record_bytes", ">i4"), ("tag_hash", ">i8")])

Offsets = npt.NDArray[np.int64]

# Reads entries `first` to `end` of a slice, or some of them; returns the number of the first one
# read, or where to resume if earlier ones are gone.
ReadEntries = Callable[[QueueSlice, int, int], tuple[int, bytes]]


class EntryWindow(NamedTuple):
    """Entries in the order of the log: their records' places, and whose entries they are."""

    physical_offsets: Offsets
    record_bytes: Offsets
    # The number of each entry in its queue, and which of the slices it is from.
    numbers: Offsets
    slice_of: Offsets

    def select(self, chosen: slice | npt.NDArray[np.bool_] | Offsets) -> EntryWindow:
        """Some of the entries."""
        return EntryWindow._make(values[chosen] for values in self)


class _Cursor:
    """Reads the entries of one slice, a chunk at a time."""

    def __init__(self, one: QueueSlice, at: int, read: ReadEntries, chunk_entries: int) -> None:
        self._slice = one
        self._at = at
        self._read = read
        self._chunk_entries = chunk_entries
        self._next = one.first
        self._last_offset = -1
        self.physical_offsets: Offsets = np.empty(0, np.int64)
        self._record_bytes: Offsets = self.physical_offsets
        self._numbers: Offsets = self.physical_offsets
        self._tag_hashes: Offsets = self.physical_offsets

    @property
    def has_more(self) -> bool:
        """Whether entries remain to be read."""
        return self._next < self._slice.end

    def fill(self) -> None:
        """Read more once little is left of the last chunk."""
        while self.physical_offsets.size <= self._chunk_entries // 2 and self.has_more:
            end = min(self._next + self._chunk_entries, self._slice.end)
            self._next, content = self._read(self._slice, self._next, end)
            entries = np.frombuffer(content, _ENTRY)
            offsets = entries["physical_offset"].astype(np.int64)
            record_bytes = entries["record_bytes"].astype(np.int64)
            self._check(offsets, record_bytes)
            tag_hashes = entries["tag_hash"].astype(np.int64)
            self.physical_offsets = np.concatenate((self.physical_offsets, offsets))
            self._record_bytes = np.concatenate((self._record_bytes, record_bytes))
            numbers = np.arange(self._next, self._next + offsets.size, dtype=np.int64)
            self._numbers = np.concatenate((self._numbers, numbers))
            self._tag_hashes = np.concatenate((self._tag_hashes, tag_hashes))
            self._next += offsets.size

    def _check(self, offsets: Offsets, record_bytes: Offsets) -> None:
        """Refuse entries that point to no record, or backwards in the log."""
        before = np.concatenate(([self._last_offset], offsets[:-1]))
        wrong = np.flatnonzero((record_bytes < FIXED_BYTES) | (offsets <= before))
        if wrong.size:
            raise StoreDamagedError(
                f"entry {self._next + int(wrong[0])} of queue {self._slice.queue_id} of topic "
                f"{self._slice.topic!r} points to no record: offset {int(offsets[wrong[0]])}, "
                f"{int(record_bytes[wrong[0]])} bytes",
                hint="run: orbitmq store verify; orbitmq store rebuild rebuilds the queues",
            )
        if offsets.size:
            self._last_offset = int(offsets[-1])

    def take(self, until: int | None, tag_hashes: Sequence[int] | None) -> EntryWindow:
        """Take the entries up to a physical offset, or all of them."""
        offsets = self.physical_offsets
        count = offsets.size if until is None else int(np.searchsorted(offsets, until, "right"))
        taken = EntryWindow(
            offsets[:count],
            self._record_bytes[:count],
            self._numbers[:count],
            np.full(count, self._at, np.int64),
        )
        if tag_hashes is not None and self._slice.topic != SCHEDULE_TOPIC:
            wanted = _may_have(self._tag_hashes[:count], tag_hashes)
            if not wanted.all():
                taken = taken.select(wanted)
        self.physical_offsets = offsets[count:]
        self._record_bytes = self._record_bytes[count:]
        self._numbers = self._numbers[count:]
        self._tag_hashes = self._tag_hashes[count:]
        return taken


def _may_have(found: Offsets, tag_hashes: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Which entries may have a wanted tag; those without a hash may."""
    # Compat: with consume queue extensions the field holds an address, below every hash.
    may = (found < _INT_LOW) | (found > _INT_HIGH)
    for tag_hash in tag_hashes:
        may |= found == tag_hash
    return may


def merged(
    slices: Sequence[QueueSlice],
    read: ReadEntries,
    *,
    tag_hashes: Sequence[int] | None = None,
    window_entries: int = WINDOW_ENTRIES,
) -> Iterator[EntryWindow]:
    """Yield the entries of all slices in the order of the log, a window at a time."""
    total = sum(one.count for one in slices)
    cursors = [
        # In proportion, so that all queues are used up at about the same time.
        _Cursor(one, at, read, max(_CHUNK_ENTRIES_MIN, window_entries * one.count // max(1, total)))
        for at, one in enumerate(slices)
    ]
    while cursors:
        for cursor in cursors:
            cursor.fill()
        cursors = [cursor for cursor in cursors if cursor.physical_offsets.size]
        # Invariant: unread entries of a queue point after those already read.
        ends = [int(cursor.physical_offsets[-1]) for cursor in cursors if cursor.has_more]
        until = min(ends) if ends else None
        taken = [cursor.take(until, tag_hashes) for cursor in cursors]
        window = _in_order([one for one in taken if one.physical_offsets.size])
        if window.physical_offsets.size:
            yield window


def _in_order(parts: Sequence[EntryWindow]) -> EntryWindow:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return EntryWindow._make(np.empty(0, np.int64) for _ in EntryWindow._fields)
    together = EntryWindow._make(np.concatenate(values) for values in zip(*parts, strict=True))
    # Perf: a stable sort merges runs that are in order already.
    return together.select(np.argsort(together.physical_offsets, kind="stable"))
