"""Progress on disk: how far the log is flushed, and queues and index are built.

File layout of `<root>/orbitmq/marks`, big-endian, two slots of 512 bytes used in turn:
    8  sequence            8  flushed offset      8  dispatched offset
    8  name of the newest index file, 0 for none  8  number of its next entry
    8  queues with entries
    4  fingerprint of the checkpoint before       4  of the checkpoint about to be written
    4  CRC-32 of these
The valid slot with the higher sequence counts.

Threads: `ProgressFile` any, each write under a lock; `ProgressSaver` one at a time: the upkeep
thread, or the thread that opens or closes the store.
Crash: saved progress may lag behind the truth and never leads it. Each step of a save is on disk
before the next: queues and index, then the progress that covers them, then the checkpoint. A slot
torn by a crash fails its checksum, and the other one counts. A checkpoint that the saved progress
does not know was written by another broker, whose log the progress does not describe.
"""

from __future__ import annotations

import os
import struct
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orbitmq.disk import PRIVATE, FileModes, make_folder, sync_folder
from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.files.descriptor import Descriptor, write_failure
from orbitmq.store.index.consume_queues import QueueTotals

if TYPE_CHECKING:
    from orbitmq.store.index.consume_queues import ConsumeQueues
    from orbitmq.store.index.dispatcher import Dispatched, Dispatcher
    from orbitmq.store.index.key_indexes import KeyIndexes
    from orbitmq.store.opening.checkpoint import Checkpoint
    from orbitmq.store.opening.rebuild_note import RebuildNote

FILE_NAME: Final = "marks"
_FIELDS: Final = struct.Struct(">qqqqqqII")
_CRC: Final = struct.Struct(">I")
# After these, with a checksum of their own: versions that do not know them leave them as they are,
# and the sequence tells.
_TOTALS: Final = struct.Struct(">qqqq")
_SLOT_BYTES: Final = 512
_SLOTS: Final = 2
_ZERO: Final = PhysicalOffset(0)
_UNKNOWN: Final = QueueTotals(starts=-1, ends=-1, log_start=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedProgress:
    """What was known to be on disk when it was saved."""

    # Everything below is on disk in the log.
    flushed: PhysicalOffset = _ZERO
    # Every record below is on disk in its queue and in the index; never above `flushed`.
    dispatched: PhysicalOffset = _ZERO
    index_name: int = 0
    index_next: int = 0
    queue_count: int = 0
    checkpoint_before: int = 0
    checkpoint_after: int = 0
    # None if an older version saved it.
    queue_totals: QueueTotals | None = None

    def knows(self, checkpoint: Checkpoint) -> bool:
        """Whether no other broker wrote the checkpoint since; a missing one proves nothing."""
        return not checkpoint.is_present or checkpoint.fingerprint in (
            self.checkpoint_before,
            self.checkpoint_after,
        )


class ProgressFile:
    """The progress file of one store."""

    def __init__(self, folder: Path, modes: FileModes = PRIVATE) -> None:
        self._modes = modes
        path = folder / FILE_NAME
        found = read_slots(path)
        self._sequence, self.saved = found or (0, SavedProgress())
        # Whether the file held valid progress.
        self.is_present = found is not None
        self._lock = threading.Lock()
        self._path = path
        self._descriptor: Descriptor | None = None

    def write(self, progress: SavedProgress) -> None:
        """Replace the saved progress and return once it is on disk."""
        with self._lock:
            self._put(progress).sync()

    def raise_flushed(self, flushed: PhysicalOffset) -> None:
        """Save how far the log is on disk; without a sync, since older progress is true as well."""
        with self._lock:
            if flushed > self.saved.flushed:
                self._put(replace(self.saved, flushed=flushed))

    def close(self) -> None:
        """Close the file."""
        self._descriptor = None

    def _put(self, progress: SavedProgress) -> Descriptor:
        sequence = self._sequence + 1
        fields = _FIELDS.pack(
            sequence,
            progress.flushed,
            progress.dispatched,
            progress.index_name,
            progress.index_next,
            progress.queue_count,
            progress.checkpoint_before,
            progress.checkpoint_after,
        )
        at = sequence % _SLOTS * _SLOT_BYTES
        totals = progress.queue_totals or _UNKNOWN
        more = _TOTALS.pack(sequence, totals.starts, totals.ends, totals.log_start)
        try:
            descriptor = self._descriptor = self._descriptor or self._open()
            descriptor.pwrite(_with_crc(fields) + _with_crc(more), at)
        except OSError as error:
            raise write_failure(self._path, error, what=f"{_SLOT_BYTES} bytes") from error
        # Invariant: a failed write is repeated in the same slot, since the other one is good.
        self._sequence = sequence
        self.saved = progress
        return descriptor

    def _open(self) -> Descriptor:
        folder = self._path.parent
        make_folder(folder, self._modes)
        descriptor = Descriptor(self._path, os.O_RDWR | os.O_CREAT, self._modes)
        sync_folder(folder)
        return descriptor


@dataclass(slots=True, eq=False, kw_only=True)
class ProgressSaver:
    """Saves how far queues and index are on disk."""

    dispatcher: Dispatcher
    queues: ConsumeQueues
    indexes: KeyIndexes | None
    file: ProgressFile
    rebuild_note: RebuildNote
    checkpoint: Checkpoint
    checkpoint_path: Path
    modes: FileModes = PRIVATE
    _saved: Dispatched | None = field(default=None, init=False)

    def save(self, flush_log: Callable[[PhysicalOffset], PhysicalOffset]) -> None:
        """Save; `flush_log` puts the log on disk up to an offset and returns how far it is."""
        dispatched = self.dispatcher.snapshot()
        if dispatched == self._saved and not self.queues.unsynced_count:
            return
        # Invariant: saved progress never covers queues or an index beyond the log on disk.
        flushed = flush_log(dispatched.position)
        self.queues.sync()
        if self.indexes is not None:
            self.indexes.sync()
        before = self.checkpoint.fingerprint
        self._advance_checkpoint(dispatched)
        self.file.write(
            SavedProgress(
                flushed=max(flushed, self.file.saved.flushed) if self._saved else flushed,
                dispatched=dispatched.position,
                index_name=dispatched.index_name,
                index_next=dispatched.index_next,
                queue_count=dispatched.queue_count,
                checkpoint_before=before,
                checkpoint_after=self.checkpoint.fingerprint,
                queue_totals=dispatched.queue_totals,
            )
        )
        self.checkpoint.write(self.checkpoint_path, self.modes)
        self.rebuild_note.clear()
        self._saved = dispatched

    def _advance_checkpoint(self, dispatched: Dispatched) -> None:
        checkpoint = self.checkpoint
        checkpoint.log_ms = max(checkpoint.log_ms, dispatched.last_store_ms)
        checkpoint.queues_ms = max(checkpoint.queues_ms, dispatched.last_store_ms)
        if self.indexes is not None:
            checkpoint.index_ms = max(checkpoint.index_ms, self.indexes.full_until_ms)


def read_progress(folder: Path) -> SavedProgress | None:
    """Read the progress saved in a store's own folder; None if there is no valid one."""
    found = read_slots(folder / FILE_NAME)
    return found[1] if found else None


def read_slots(path: Path) -> tuple[int, SavedProgress] | None:
    """Read the valid slot with the higher sequence, and that sequence."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    best: tuple[int, ...] = (0,)
    best_at = 0
    for at in range(0, _SLOT_BYTES * _SLOTS, _SLOT_BYTES):
        values = _checked(_FIELDS, content, at)
        if values is not None and values > best:
            best, best_at = values, at
    if not best[0]:
        return None
    return best[0], SavedProgress(
        flushed=PhysicalOffset(best[1]),
        dispatched=PhysicalOffset(best[2]),
        index_name=best[3],
        index_next=best[4],
        queue_count=best[5],
        checkpoint_before=best[6],
        checkpoint_after=best[7],
        queue_totals=_read_totals(content, best_at, best[0]),
    )


def _read_totals(content: bytes, slot_at: int, sequence: int) -> QueueTotals | None:
    """Read the totals of a slot; None if an older version wrote it, or they are not known."""
    values = _checked(_TOTALS, content, slot_at + _FIELDS.size + _CRC.size)
    if values is None or values[0] != sequence or values[2] < 0:
        return None
    return QueueTotals(starts=values[1], ends=values[2], log_start=values[3])


def _with_crc(fields: bytes) -> bytes:
    return fields + _CRC.pack(zlib.crc32(fields))


def _checked(layout: struct.Struct, content: bytes, at: int) -> tuple[int, ...] | None:
    """Unpack fields; None unless their checksum is right."""
    fields = content[at : at + layout.size]
    if content[at : at + layout.size + _CRC.size] != _with_crc(fields) or not fields:
        return None
    return layout.unpack(fields)
