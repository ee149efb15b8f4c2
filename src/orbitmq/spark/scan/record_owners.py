"""Whether records belong to the queue entries that lead to them, by the batch.

Entries have no checksum. A flipped bit may lead to another record of the same size, which would be
a row too many, while the right one is missing. A record must have the topic and the queue of its
entry. Its number may differ, since after a loss queues have their entries without gaps; but then
entries still lead forward in the log, which `entry_merge` checks within a slice.

Threads: one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.errors import StoreDamagedError
from orbitmq.record.layout import (
    BORN_HOST_V6,
    FIXED_BYTES,
    HOST_BYTES_V4,
    HOST_BYTES_V6,
    MAGIC_V2,
    STORE_HOST_V6,
)
from orbitmq.store.index.consume_queue import ENTRY
from orbitmq.store.readonly.readonly_store import SHARED_RECORDS

if TYPE_CHECKING:
    import numpy.typing as npt

    from orbitmq.spark.scan.entry_merge import EntryWindow, Offsets
    from orbitmq.spark.scan.store_partitions import QueueSlice, StorePartition

    Flags = npt.NDArray[np.bool_]

# The start of a record, as far as it is compared with its entry.
_HEAD: Final = np.dtype(
    [
        ("record_bytes", ">i4"),
        ("magic", ">u4"),
        ("checksum", "V4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("system_flag", ">i4"),
    ]
)
# Where the size of the body is, with IPv4 hosts: before it, and after body and topic, are sizes of
# 4, 1 and 2 bytes.
_BODY_BYTES_AT: Final = FIXED_BYTES - 7
_V6_MORE: Final = HOST_BYTES_V6 - HOST_BYTES_V4


class Owners:
    """The queues of a task's slices, whose entries lead to the records."""

    def __init__(
        self,
        slices: Sequence[QueueSlice],
        neighbour: Callable[[QueueSlice, int], bytes],
        *,
        check_topics: bool,
    ) -> None:
        """`neighbour` reads an entry next to a slice; empty if there is none.

        Without `check_topics`, topics are compared only if two entries lead to one record.
        """
        self._slices = slices
        self._check_topics = check_topics
        self._neighbour = neighbour
        self._firsts = np.array([one.first for one in slices], np.int64)
        self._ends = np.array([one.end for one in slices], np.int64)
        self._queue_ids = np.array([one.queue_id for one in slices], np.int64)
        self._topics = sorted({one.topic for one in slices})
        self._topic_of = np.array([self._topics.index(one.topic) for one in slices], np.int64)
        self._is_shared = np.array([_is_shared(one.topic) for one in slices], np.bool_)

    def describe(self, batch: EntryWindow, at: int) -> str:
        """Which entry it is."""
        one = self._slices[int(batch.slice_of[at])]
        return f"entry {int(batch.numbers[at])} of queue {one.queue_id} of topic {one.topic!r}"

    def strange(
        self,
        content: npt.NDArray[np.uint8],
        positions: Offsets,
        heads: npt.NDArray[np.void],
        batch: EntryWindow,
    ) -> Flags:
        """Which records are not those of their entries."""
        strange: Flags = heads["queue_id"] != self._queue_ids[batch.slice_of]
        # Perf: comparing topics takes 70 ns a record, a fifth of what decoding it takes; the column
        # of topics is compared in 5 (`TopicCheck`).
        if self._check_topics or not np.diff(batch.physical_offsets).all():
            strange |= self._have_other_topic(content, positions, heads, batch)
        if self._is_shared.any():
            strange &= ~self._is_shared[batch.slice_of]
        moved = heads["queue_offset"] != batch.numbers
        if moved.any():
            first, end = self._firsts[batch.slice_of], self._ends[batch.slice_of]
            moved &= (batch.numbers == first) | (batch.numbers == end - 1)
            for at in np.flatnonzero(moved & ~strange):
                strange[at] = self._leads_back(batch, int(at))
        return strange

    def _have_other_topic(
        self,
        content: npt.NDArray[np.uint8],
        positions: Offsets,
        heads: npt.NDArray[np.void],
        batch: EntryWindow,
    ) -> Flags:
        at = positions + _BODY_BYTES_AT
        flags = heads["system_flag"]
        if (flags & (BORN_HOST_V6 | STORE_HOST_V6)).any():
            at += _V6_MORE * ((flags & BORN_HOST_V6 > 0) + (flags & STORE_HOST_V6 > 0))
        body_bytes = _each(content, at, ">i4").astype(np.int64)
        # Damaged sizes lead to the start of a record, which is no topic.
        fits = (body_bytes >= 0) & (body_bytes <= batch.record_bytes - FIXED_BYTES)
        at = np.where(fits, at + 4 + body_bytes, positions)
        is_v2 = heads["magic"] == MAGIC_V2
        if is_v2.any():
            at += is_v2
        topic_of = self._topic_of[batch.slice_of]
        if len(self._topics) == 1 or (topic_of == topic_of[0]).all():
            return _differ(content, at, self._topics[int(topic_of[0])])
        differ = np.zeros(at.size, np.bool_)
        order = np.argsort(topic_of, kind="stable")
        for chosen in np.split(order, np.flatnonzero(np.diff(topic_of[order])) + 1):
            differ[chosen] = _differ(content, at[chosen], self._topics[int(topic_of[chosen[0]])])
        return differ

    def _leads_back(self, batch: EntryWindow, at: int) -> bool:
        """Whether the first or last entry of a slice is not between its neighbours."""
        one, number = self._slices[int(batch.slice_of[at])], int(batch.numbers[at])
        start = int(batch.physical_offsets[at])
        end = start + int(batch.record_bytes[at])
        if number == one.first > 0 and (before := self._neighbour(one, number - 1)):
            offset, record_bytes, _ = ENTRY.unpack(before)
            # A filler has no record.
            if offset > 0 and offset + record_bytes > start:
                return True
        if number == one.end - 1 and one.end < one.disk_end:
            after = self._neighbour(one, number + 1)
            return bool(after) and ENTRY.unpack(after)[0] < end
        return False


class TopicCheck:
    """Compares the topics of decoded rows with those of a task's slices."""

    def __init__(self, partition: StorePartition, column: int, *, fail: bool) -> None:
        """`column` has the topics; without `fail`, rows of other topics are dropped."""
        self._column = column
        topics = sorted({one.topic for one in partition.slices})
        self._partition = partition
        self._topics = None if any(map(_is_shared, topics)) else pa.array(topics, pa.string())
        self._fail = fail

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that may be the task's; raises StoreDamagedError at another one."""
        topics = self._topics
        if topics is None or not batch.num_rows:
            return batch
        found = batch.column(self._column)
        if len(topics) == 1:
            right = pc.equal(found, topics[0])
        else:
            right = pc.is_in(found, value_set=topics)
        if pc.all(right).as_py() is not False:
            return batch
        # Rows of unreadable records may have no topic.
        right = pc.fill_null(right, fill_value=True)
        if self._fail:
            other = found.filter(pc.invert(right))[0].as_py()
            raise StoreDamagedError(
                f"a queue entry of topic {topics[0].as_py()!r} of broker "
                f"{self._partition.location.broker_name!r} leads to a record of topic {other!r}",
                hint="run: orbitmq store verify; onUnreadable=skip reads the others",
            )
        return batch.filter(right)


def heads_at(content: npt.NDArray[np.uint8], positions: Offsets) -> npt.NDArray[np.void]:
    """The heads of the records at the positions."""
    return _each(content, positions, f"V{_HEAD.itemsize}").view(_HEAD)


def _each(content: npt.NDArray[np.uint8], positions: Offsets, kind: str) -> npt.NDArray[np.void]:
    """The values of a type at the positions."""
    # Perf: indexing an array of all possible starts takes 9 ns per record; a sliding_window_view,
    # which has a row of bytes per start, takes 22 (timeit).
    count = max(len(content) - np.dtype(kind).itemsize + 1, 0)
    everywhere: npt.NDArray[np.void] = np.ndarray((count,), kind, content, 0, (1,))
    return everywhere[positions]


def _differ(content: npt.NDArray[np.uint8], positions: Offsets, topic: str) -> Flags:
    """At which positions another topic is, its size in one byte before it."""
    wanted = topic.encode()
    wanted = bytes([len(wanted)]) + wanted
    # At the end of the content there is no room for it.
    room = len(content) - len(wanted)
    fits = positions <= room
    found = _each(content, np.minimum(positions, max(room, 0)), f"S{len(wanted)}")
    differ: Flags = (found != wanted) | ~fits
    return differ


def _is_shared(topic: str) -> bool:
    return topic.startswith(SHARED_RECORDS)
