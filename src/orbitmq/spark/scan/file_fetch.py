"""Reads records from the files of a store: the work of a store scan's task.

Queue entries say where the wanted records are. Records close together are read together, into a
buffer that every batch reuses. Files are read by `preadv`, never mapped, so that a file that a
broker deletes or cuts meanwhile is an error and not a signal.

Threads: one. Memory: a window of entries, a buffer, and the batch decoded last.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from orbitmq.errors import RecordsDeletedError, StoreDamagedError, StoreError
from orbitmq.record.layout import LOST_FLAG
from orbitmq.spark.scan.entry_merge import EntryWindow, Offsets, merged
from orbitmq.spark.scan.record_owners import Owners, heads_at
from orbitmq.store.files.file_names import file_name
from orbitmq.store.files.open_files import OpenFiles
from orbitmq.store.index.consume_queue import ENTRY_BYTES
from orbitmq.store.log.stand_ins import is_stand_in
from orbitmq.store.opening.parts import log_folders
from orbitmq.store.readonly.log_files import ReadOnlyLog
from orbitmq.store.readonly.queue_files import read_entries

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from orbitmq.spark.scan.store_partitions import QueueSlice, StoreLocation

log = logging.getLogger(__name__)

# Perf: rows and bytes of one batch; Spark handles batches of 5 to 10 thousand rows fastest
# (benchmarks/spark_store_scan.py).
BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 4 * 1024 * 1024
# Perf: reading across a gap of up to this size takes no longer than another read call.
GAP_BYTES_MAX: Final = 16 * 1024
_OPEN_QUEUE_FILES_MAX: Final = 128
# The file size used if there are no files, so that the read itself fails.
_WITHOUT_FILES: Final = 2**62


class Records(NamedTuple):
    """Records in memory: where in the buffer each starts, in order."""

    buffer: memoryview
    positions: Offsets


class FileRead(NamedTuple):
    """Bytes of one log file that are read together, and where in the buffer they go."""

    offset: int
    size: int
    at: int


@dataclass(frozen=True, slots=True)
class _ReadPlan:
    """How a batch of records is read: the reads, the read of each record, and its position."""

    reads: list[FileRead]
    read_of: Offsets
    positions: Offsets


class RecordFetch:
    """Reads the records of one task, batch by batch."""

    def __init__(
        self,
        location: StoreLocation,
        *,
        fail_on_data_loss: bool = True,
        fail_on_unreadable: bool = True,
        check_topics: bool = True,
    ) -> None:
        """Without `check_topics`, the caller compares the topics of records with the slices'."""
        self._root = Path(location.root)
        self._location = location
        if not self._root.is_dir():
            raise StoreError(
                f"{self._root} is not a folder here",
                hint="mount the store at the same path on every machine that runs Spark tasks",
            )
        self._fail_on_data_loss = fail_on_data_loss
        self._fail_on_unreadable = fail_on_unreadable
        self._log = ReadOnlyLog(log_folders(self._root, location.log_path))
        self._queue_files = OpenFiles(_OPEN_QUEUE_FILES_MAX, writable=False)
        self._room = bytearray(BATCH_BYTES)
        self._check_topics = check_topics
        self._owners = Owners((), self._neighbour, check_topics=check_topics)
        self._lost = 0
        # Entries that point to no record.
        self._dangling = 0
        self._resources = ExitStack()
        self._resources.callback(self._log.close)
        self._resources.callback(self._queue_files.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._resources.close()

    def batches(
        self, slices: Sequence[QueueSlice], *, tag_hashes: Sequence[int] | None = None
    ) -> Iterator[Records]:
        """Yield the records of slices in the order of the log; the buffer is reused."""
        self._owners = Owners(slices, self._neighbour, check_topics=self._check_topics)
        for window in merged(slices, self._entries, tag_hashes=tag_hashes):
            for batch in batch_windows(window):
                records = self._read(batch)
                if records.positions.size:
                    yield records
        if self._lost:
            log.warning(
                "store scan skipped deleted messages broker=%s store=%s count=%d",
                self._location.broker_name,
                self._root,
                self._lost,
            )
        if self._dangling:
            log.warning(
                "store scan skipped queue entries without a record broker=%s store=%s count=%d",
                self._location.broker_name,
                self._root,
                self._dangling,
            )

    # --- entries ------------------------------------------------------------------------------

    def _entries(self, one: QueueSlice, first: int, end: int) -> tuple[int, bytes]:
        if first >= one.disk_end:
            base = max(one.first, one.disk_end)
            return first, one.tail[(first - base) * ENTRY_BYTES : (end - base) * ENTRY_BYTES]
        folder = self._root / "consumequeue" / one.topic / str(one.queue_id)
        end = min(end, one.disk_end)
        content = read_entries(
            self._queue_files,
            lambda at: folder / file_name(at),
            one.file_bytes,
            first,
            end - first,
        )
        content = content[: len(content) // ENTRY_BYTES * ENTRY_BYTES]
        if not content:
            # Retention deletes a queue file once all of its records are gone.
            file_entries = one.file_bytes // ENTRY_BYTES
            end = min((first // file_entries + 1) * file_entries, one.disk_end)
            if self._fail_on_data_loss:
                raise RecordsDeletedError(
                    f"messages {first} to {end - 1} of queue {one.queue_id} of topic "
                    f"{one.topic!r} of broker {self._location.broker_name!r} were deleted after the "
                    "scan was planned",
                    start=end,
                    hint=_LOSS_HINT,
                )
            self._lost += end - first
            return end, b""
        return first, content

    def _neighbour(self, one: QueueSlice, number: int) -> bytes:
        """Read an entry next to a slice; empty if there is none on disk."""
        folder = self._root / "consumequeue" / one.topic / str(one.queue_id)
        return read_entries(
            self._queue_files, lambda at: folder / file_name(at), one.file_bytes, number, 1
        )

    # --- records ------------------------------------------------------------------------------

    def _read(self, batch: EntryWindow) -> Records:
        batch = self._within_files(batch)
        if not batch.physical_offsets.size:
            return Records(memoryview(b""), batch.physical_offsets)
        plan = plan_reads(batch, self._log.file_bytes or _WITHOUT_FILES)
        needed = plan.reads[-1].at + plan.reads[-1].size
        if needed > len(self._room):
            self._room = bytearray(needed)
        room = memoryview(self._room)
        gone: list[int] = []
        for number, read in enumerate(plan.reads):
            try:
                self._log.read_into(read.offset, room[read.at : read.at + read.size])
            except RecordsDeletedError as error:
                if self._fail_on_data_loss:
                    raise self._deleted(read, error) from error
                gone.append(number)
        positions = plan.positions
        if gone:
            there = ~np.isin(plan.read_of, gone)
            self._lost += int(positions.size - np.count_nonzero(there))
            positions = positions[there]
            batch = batch.select(there)
        buffer = room[:needed]
        return Records(buffer, self._checked(buffer, positions, batch))

    def _within_files(self, batch: EntryWindow) -> EntryWindow:
        """Refuse or drop entries whose records would cross the end of their file."""
        file_bytes = self._log.file_bytes
        if not file_bytes:
            return batch
        wrong = batch.physical_offsets % file_bytes + batch.record_bytes > file_bytes
        if not wrong.any():
            return batch
        self._refuse(batch, wrong)
        return batch.select(~wrong)

    def _refuse(self, batch: EntryWindow, wrong: npt.NDArray[np.bool_]) -> None:
        """Raise for entries that point to no record, or count them."""
        if self._fail_on_unreadable:
            raise self._no_record(batch, int(np.flatnonzero(wrong)[0]))
        self._dangling += int(np.count_nonzero(wrong))

    def _checked(self, buffer: memoryview, positions: Offsets, batch: EntryWindow) -> Offsets:
        """Compare records with their entries, and drop stand-ins for lost records."""
        if not positions.size:
            return positions
        found = np.frombuffer(buffer, np.uint8)
        heads = heads_at(found, positions)
        wrong = (heads["record_bytes"] != batch.record_bytes) | (
            heads["physical_offset"] != batch.physical_offsets
        )
        if wrong.any():
            self._refuse(batch, wrong)
            positions, heads, batch = positions[~wrong], heads[~wrong], batch.select(~wrong)
        strange = self._owners.strange(found, positions, heads, batch)
        if strange.any():
            self._refuse(batch, strange)
            positions, heads = positions[~strange], heads[~strange]
        marked = np.flatnonzero(heads["flag"] == LOST_FLAG)
        if marked.size:
            stand_ins = [at for at in marked if is_stand_in(buffer, int(positions[at]))]
            positions = np.delete(positions, stand_ins)
        return positions

    def _no_record(self, batch: EntryWindow, at: int) -> StoreDamagedError:
        return StoreDamagedError(
            f"{self._owners.describe(batch, at)} of broker {self._location.broker_name!r} points to "
            f"a record of {int(batch.record_bytes[at])} bytes "
            f"{self._log.describe_offset(int(batch.physical_offsets[at]))}, but there is none of "
            "that queue",
            hint="run: orbitmq store verify; onUnreadable=skip reads the others",
        )

    def _deleted(self, lost: FileRead, error: RecordsDeletedError) -> RecordsDeletedError:
        return RecordsDeletedError(
            f"messages of broker {self._location.broker_name!r} at offsets {lost.offset} to "
            f"{lost.offset + lost.size} of the log were deleted after the scan was planned: "
            f"the log now starts at {error.start}",
            start=error.start,
            hint=_LOSS_HINT,
        )


_LOSS_HINT: Final = "run the query again; the option failOnDataLoss=false skips deleted messages"


def batch_windows(
    window: EntryWindow, *, rows_max: int = BATCH_ROWS, bytes_max: int = BATCH_BYTES
) -> Iterator[EntryWindow]:
    """Cut a window into batches of at most this many rows and bytes, but at least one record."""
    offsets, sizes = window.physical_offsets, window.record_bytes
    gaps = np.zeros(offsets.size, np.int64)
    gaps[1:] = offsets[1:] - offsets[:-1] - sizes[:-1]
    # Bytes read for each record: its own, and the gap before it if that is read too.
    read = np.cumsum(sizes + np.where(gaps > GAP_BYTES_MAX, 0, np.maximum(gaps, 0)))
    # Batches of equal size, rather than full ones and a small remainder.
    rows_max = math.ceil(offsets.size / math.ceil(offsets.size / rows_max))
    first = 0
    while first < offsets.size:
        before = int(read[first] - sizes[first])
        end = int(np.searchsorted(read, before + bytes_max, "right"))
        end = min(max(end, first + 1), first + rows_max)
        yield window.select(slice(first, end))
        first = end


def plan_reads(batch: EntryWindow, file_bytes: int) -> _ReadPlan:
    """Plan which bytes to read for records, and where in the buffer each record will be."""
    offsets, sizes = batch.physical_offsets, batch.record_bytes
    ends = offsets + sizes
    begins = np.ones(offsets.size, np.bool_)
    begins[1:] = (offsets[1:] - ends[:-1] > GAP_BYTES_MAX) | (
        offsets[1:] // file_bytes != offsets[:-1] // file_bytes
    )
    firsts = np.flatnonzero(begins)
    read_offsets = offsets[firsts]
    lasts = np.append(firsts[1:], offsets.size) - 1
    read_bytes = ends[lasts] - read_offsets
    starts = np.cumsum(read_bytes) - read_bytes
    read_of = np.cumsum(begins) - 1
    positions = offsets + (starts - read_offsets)[read_of]
    reads = [
        FileRead(*triple)
        for triple in zip(read_offsets.tolist(), read_bytes.tolist(), starts.tolist(), strict=True)
    ]
    return _ReadPlan(reads, read_of, positions)
