"""Cuts the tail of a log that another log replaces, before the store is opened.

Steps, each on disk before the next: the tail is saved (`cut_tail`), the file `abort` is written, what
points above the cut is lowered or deleted, the log is cut. Then the opening recovers queues and index
as after a crash, and the intent is marked as carried out (`cut_intent`).

    commitlog/                    cut; later files are deleted
    consumequeue/, index/         cut by recovery, at the lowered progress; queues keep the numbers
                                  of what is left
    checkpoint                    times and offsets are lowered
    abort                         written
    lock                          held
    timerwheel, timerlog/, config/timercheck, config/timermetrics
                                  deleted: a master makes them again from the log, where copies tell
                                  what is delivered
    config/consumerOffset.json, config/delayOffset.json, config/archives.json
                                  lowered by the broker, see `broker.replication.after_cut`
    other files of config/        kept; a slave copies them from its master
    orbitmq/marks                 lowered
    orbitmq/watermark             lowered
    orbitmq/deleted_topics        deletions above the cut are forgotten, and queues filled again
    orbitmq/rebuild_note          ends of queues are lowered
    orbitmq/timers, mastertimers  deleted, as the timer wheel is
    orbitmq/transactions          deleted: the next start of a master searches all open transactions
    orbitmq/shape                 kept: the start of the log stays
    orbitmq/reserved_offsets      kept: messages in memory are not in the log
    orbitmq/queue_locks, archives, epoch
                                  kept: they say nothing about messages, or the broker keeps them
    orbitmq/lost/, rebuild/       kept

Threads: one; the directory's lock is held.
Crash: every step can be repeated, and the next opening does so. Until the tail is saved nothing is
changed.
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orbitmq.disk import FileModes, sync_folder
from orbitmq.errors import StoreError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.record.codec import walk
from orbitmq.record.decode import Found, locate
from orbitmq.store.files.record_checks import HEAD_BYTES, store_ms_of
from orbitmq.store.index.deleted_topics import DeletedTopics
from orbitmq.store.index.dispatcher import NO_INDEX
from orbitmq.store.index.key_indexes import entries_below
from orbitmq.store.index.watermark import Watermark, read_watermark
from orbitmq.store.opening.abort_file import AbortFile
from orbitmq.store.opening.cut_intent import cut_folder, saved_cut, saved_name
from orbitmq.store.opening.cut_tail import is_saved, save_tail
from orbitmq.store.opening.log_scans import firsts_after
from orbitmq.store.opening.progress import SavedProgress
from orbitmq.store.opening.rebuild_note import RebuildNote
from orbitmq.store.opening.recovery import (
    Known,
    find_end,
    known_by_checkpoint,
    known_by_progress,
)

if TYPE_CHECKING:
    from orbitmq.store.log.commit_log import CommitLog
    from orbitmq.store.opening.checkpoint import Checkpoint
    from orbitmq.store.opening.cut_intent import Cut, CutIntent
    from orbitmq.store.opening.progress import ProgressFile

log = logging.getLogger(__name__)

# Made again from the log, or not needed; see above.
_DELETED: Final = (
    "orbitmq/timers",
    "orbitmq/mastertimers",
    "orbitmq/mastertimers.bak",
    "orbitmq/transactions",
    "config/timercheck",
    "config/timermetrics",
    "config/timermetrics.bak",
    "timerwheel",
)
_DELETED_FOLDER: Final = "timerlog"
# Tails that were cut at the same place for the same epoch.
_SAVED_MAX: Final = 1000


@dataclass(slots=True, eq=False, kw_only=True)
class LogCut:
    """One cut; the store is not open."""

    root: Path
    intent: CutIntent
    commit_log: CommitLog
    progress_file: ProgressFile
    checkpoint: Checkpoint
    checkpoint_path: Path
    index_slots: int
    index_entries: int
    modes: FileModes

    def run(self) -> Cut | None:
        """Cut the log; None if it ends there, and was not cut before."""
        commit_log, at = self.commit_log, PhysicalOffset(self.intent.at)
        commit_log.load()
        abort_file = AbortFile(self.root, self.modes)
        known = self._known(clean=abort_file.was_clean)
        end = find_end(commit_log, known).end if commit_log.files else commit_log.end
        kept_ms = self._check(end)
        cut = self._save(end, kept_ms)
        if cut is None:
            return None
        abort_file.write()
        # Invariant: saved progress is lowered before the log is, or the next opening would miss it.
        flushed = PhysicalOffset(min(self._flushed(known, clean=abort_file.was_clean), at))
        self._lower_progress(flushed, kept_ms)
        self._lower_others(end)
        commit_log.cut(at, flushed=flushed)
        log.warning(
            "log cut at=%d end=%d epoch=%d saved=%s hint=the master of that epoch has another log "
            "from there on; orbitmq cut resend sends again what was cut",
            at, cut.end, cut.epoch, cut.saved_path,
        )  # fmt: skip
        return cut

    @property
    def _ours(self) -> bool:
        return self.progress_file.is_present and self.progress_file.saved.knows(self.checkpoint)

    def _known(self, *, clean: bool) -> Known:
        if self._ours:
            return known_by_progress(self.commit_log, self.progress_file.saved, clean=clean)
        if not self.commit_log.files:
            return Known(walk_from=PhysicalOffset(0))
        return known_by_checkpoint(self.commit_log, self.checkpoint, clean=clean)

    def _flushed(self, known: Known, *, clean: bool) -> PhysicalOffset:
        """How far the log is certainly on disk."""
        if self._ours:
            return known.flushed
        # Another broker that stopped cleanly flushed everything.
        return self.commit_log.end if clean else known.walk_from

    # --- judging ------------------------------------------------------------------------------

    def _check(self, end: PhysicalOffset) -> int:
        """Raise StoreError unless the log can be cut there.

        Returns a store time that what is kept reached, and that nothing of the tail is older than.
        """
        at, start = self.intent.at, self.commit_log.start
        if not start <= at <= end:
            raise self._refusal(f"it begins at {start} and ends at {end}")
        file = self.commit_log.file_at(at - 1) if at > start else None
        if file is None:
            return 0
        if at == file.end_offset:
            first = locate(file.view, 0, file.file_bytes, check_body=False)
            return 0 if isinstance(first, Found) else store_ms_of(bytes(file.view[:HEAD_BYTES]))
        found = walk(
            file.view,
            0,
            at - file.first_offset,
            file.first_offset,
            check_body=False,
            delay_levels_ms=(),
            with_keys=False,
            check_places=True,
        )
        if file.first_offset + found.position != at:
            raise self._refusal(
                f"that is no place between two records: the last one below begins or ends at "
                f"{file.first_offset + found.position}"
            )
        return found.last_store_ms

    def _refusal(self, reason: str) -> StoreError:
        at, epoch = self.intent.at, self.intent.epoch
        return StoreError(
            f"the log of {self.root} is to be cut at {at} for epoch {epoch}, but {reason}",
            hint=f"if this folder was restored or copied since, move "
            f"{cut_folder(self.root) / 'intent'} away: a slave then compares its log with the "
            "master's again. Nothing was changed",
        )

    # --- saving -------------------------------------------------------------------------------

    def _save(self, end: PhysicalOffset, kept_ms: int) -> Cut | None:
        """Save the tail, unless an interrupted cut has done so."""
        at, folder = self.intent.at, cut_folder(self.root)
        saved: Cut | None = None
        for number in range(1, _SAVED_MAX + 1):
            path = folder / saved_name(self.intent, number)
            if not path.exists():
                if at == end:
                    return saved
                save_tail(self.commit_log, at, end, path, store_ms=kept_ms, modes=self.modes)
                return saved_cut(path)
            saved = saved_cut(path)
            if at < end and is_saved(self.commit_log, at, end, path):
                return saved
        raise self._refusal(f"{_SAVED_MAX} tails were saved there already")

    # --- lowering -----------------------------------------------------------------------------

    def _lower_progress(self, flushed: PhysicalOffset, kept_ms: int) -> None:
        """Lower the saved progress, and the checkpoint that goes with it."""
        at, saved = self.intent.at, self.progress_file.saved
        dispatched, index = PhysicalOffset(0), (NO_INDEX, 0)
        if self._ours:
            index = (saved.index_name, saved.index_next)
            if saved.dispatched > at:
                index = self._index_below()
            if not DeletedTopics(self.root / "orbitmq").has_above(at):
                dispatched = PhysicalOffset(min(saved.dispatched, at))
        checkpoint = self.checkpoint
        before = checkpoint.fingerprint
        checkpoint.log_ms = min(checkpoint.log_ms, kept_ms)
        checkpoint.queues_ms = min(checkpoint.queues_ms, kept_ms)
        checkpoint.index_ms = min(checkpoint.index_ms, kept_ms)
        checkpoint.master_flushed_offset = min(checkpoint.master_flushed_offset, at)
        checkpoint.confirmed_offset = min(checkpoint.confirmed_offset, at)
        # Sums and number of queues are not known: some of them lose entries.
        self.progress_file.write(
            SavedProgress(
                flushed=flushed,
                dispatched=dispatched,
                index_name=index[0],
                index_next=index[1],
                checkpoint_before=before,
                checkpoint_after=checkpoint.fingerprint,
            )
        )
        if checkpoint.is_present:
            checkpoint.write(self.checkpoint_path, self.modes)

    def _index_below(self) -> tuple[int, int]:
        """Where the key index ends that has only what is kept: the file, and its next entry."""
        saved = self.progress_file.saved
        found = entries_below(
            self.root / "index",
            PhysicalOffset(self.intent.at),
            slots=self.index_slots,
            entries_max=self.index_entries,
            newest=(saved.index_name, saved.index_next),
        )
        return found if found is not None else (NO_INDEX, 0)

    def _lower_others(self, end: PhysicalOffset) -> None:
        """Lower or delete everything else that points above the cut."""
        at, own = PhysicalOffset(self.intent.at), self.root / "orbitmq"
        shown = read_watermark(own)
        if shown is not None:
            Watermark(own, min(shown, at), self.modes).close()
        DeletedTopics(own, self.modes).forget_above(at)
        note = RebuildNote(own, self.modes)
        if note.ends:
            firsts = firsts_after(self.commit_log, at, end)
            note.write({queue: min(e, firsts.get(queue, e)) for queue, e in note.ends.items()})
        for name in _DELETED:
            (self.root / name).unlink(missing_ok=True)
        folder = self.root / _DELETED_FOLDER
        if folder.is_dir():
            shutil.rmtree(folder)
        for folder in (self.root, own, self.root / "config"):
            if folder.is_dir():
                sync_folder(folder)
