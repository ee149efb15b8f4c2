"""Progress on disk: how far the log is flushed, and queues and index are built.

`<root>/orbitmq/marks` is a slot file (see `files.slot_file`) of two blocks:
    8  flushed offset      8  dispatched offset
    8  name of the newest index file, 0 for none  8  number of its next entry
    8  queues with entries
    4  fingerprint of the checkpoint before       4  of the checkpoint about to be written
and, not written by older versions, of all queues together:
    8  sum of their starts 8  of their ends       8  start of the log that the starts account for

Threads: `ProgressFile` any, each write under a lock; `ProgressSaver` one at a time: the upkeep
thread, or the thread that opens or closes the store.
Crash: saved progress may lag behind the truth and never leads it. Each step of a save is on disk
before the next: queues and index, then the progress that covers them, then the checkpoint. A
checkpoint that the saved progress does not know was written by another broker, whose log the
progress does not describe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orbitmq.disk import PRIVATE, FileModes
from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.files.slot_file import Block, SlotFile, block_layout, read_slot
from orbitmq.store.index.consume_queues import QueueTotals

if TYPE_CHECKING:
    from orbitmq.store.index.consume_queues import ConsumeQueues
    from orbitmq.store.index.dispatcher import Dispatched, Dispatcher
    from orbitmq.store.index.key_indexes import KeyIndexes
    from orbitmq.store.opening.checkpoint import Checkpoint
    from orbitmq.store.opening.rebuild_note import RebuildNote

FILE_NAME: Final = "marks"
_LAYOUTS: Final = (block_layout("qqqqqII"), block_layout("qqq"))
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
        return not checkpoint.is_present or checkpoint.fingerprint in self._checkpoints

    def repaired(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint; if only a flipped bit makes it unknown, with that bit flipped back."""
        if self.knows(checkpoint):
            return checkpoint
        return checkpoint.without_flipped_bit(self._checkpoints)

    @property
    def _checkpoints(self) -> tuple[int, int]:
        """Fingerprints of the checkpoints that may have been written with this."""
        return self.checkpoint_before, self.checkpoint_after


class ProgressFile:
    """The progress file of one store."""

    def __init__(self, folder: Path, modes: FileModes = PRIVATE) -> None:
        self._slots = SlotFile(folder / FILE_NAME, _LAYOUTS, modes)
        found = _decode(self._slots.found)
        # Whether the file held valid progress.
        self.is_present = found is not None
        self.saved = found or SavedProgress()
        self._lock = threading.Lock()

    def write(self, progress: SavedProgress) -> None:
        """Replace the saved progress and return once it is on disk."""
        with self._lock:
            self._put(progress)
            self._slots.sync()

    def raise_flushed(self, flushed: PhysicalOffset) -> None:
        """Save how far the log is on disk; without a sync, since older progress is true as well."""
        with self._lock:
            if flushed > self.saved.flushed:
                self._put(replace(self.saved, flushed=flushed))

    def close(self) -> None:
        """Close the file."""
        self._slots.close()

    def _put(self, progress: SavedProgress) -> None:
        totals = progress.queue_totals or _UNKNOWN
        self._slots.write(
            (
                progress.flushed,
                progress.dispatched,
                progress.index_name,
                progress.index_next,
                progress.queue_count,
                progress.checkpoint_before,
                progress.checkpoint_after,
            ),
            (totals.starts, totals.ends, totals.log_start),
        )
        self.saved = progress


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
    return _decode(read_slot(folder / FILE_NAME, _LAYOUTS))


def _decode(blocks: list[Block | None] | None) -> SavedProgress | None:
    fields, totals = blocks or (None, None)
    if fields is None:
        return None
    return SavedProgress(
        flushed=PhysicalOffset(fields[0]),
        dispatched=PhysicalOffset(fields[1]),
        index_name=fields[2],
        index_next=fields[3],
        queue_count=fields[4],
        checkpoint_before=fields[5],
        checkpoint_after=fields[6],
        queue_totals=_decode_totals(totals),
    )


def _decode_totals(totals: Block | None) -> QueueTotals | None:
    """Decode the totals; None if an older version wrote the slot, or they were not known."""
    if totals is None or totals[1] < 0:
        return None
    return QueueTotals(starts=totals[0], ends=totals[1], log_start=totals[2])
