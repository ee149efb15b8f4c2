"""Opening a store directory: loads, recovers and connects every part.

Threads: one; no other thread uses the directory yet.
Crash: everything is read and judged before anything is changed. The first change is the file
`abort`, on disk before the next one, so that a crash during recovery counts as a crash.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orbitmq.errors import DiskFullError, SettingsError, StoreFormatError
from orbitmq.model.queues import PhysicalOffset, QueueOffset
from orbitmq.store.config import FlushMode
from orbitmq.store.delay_levels import parse_delay_levels
from orbitmq.store.files.descriptor import write_failure
from orbitmq.store.files.file_names import file_name
from orbitmq.store.files.record_checks import (
    HEAD_BYTES,
    damage_of,
    physical_offset_of,
    queue_offset_of,
    store_ms_of,
)
from orbitmq.store.index.consume_queues import ConsumeQueues
from orbitmq.store.index.deleted_topics import DeletedTopics
from orbitmq.store.index.dispatcher import Dispatcher
from orbitmq.store.index.key_indexes import KeyIndexes
from orbitmq.store.index.watermark import Watermark
from orbitmq.store.log.commit_log import CommitLog
from orbitmq.store.opening.abort_file import AbortFile
from orbitmq.store.opening.checkpoint import Checkpoint
from orbitmq.store.opening.directory_lock import DirectoryLock
from orbitmq.store.opening.log_scans import ends_after, has_keys
from orbitmq.store.opening.progress import ProgressFile, ProgressSaver
from orbitmq.store.opening.rebuild_note import RebuildNote
from orbitmq.store.opening.recovery import (
    Known,
    Recovered,
    find_end,
    known_by_checkpoint,
    known_by_progress,
)
from orbitmq.store.opening.refusals import (
    refuse_foreign_kinds,
    refuse_misplaced,
    refuse_other_sizes,
)
from orbitmq.store.opening.shape import FileSizes, Shape, ShapeFile
from orbitmq.store.reading.reserved_offsets import ReservedOffsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.clock import Clock
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.index.consume_queue import ConsumeQueue
    from orbitmq.store.index.consume_queues import QueueTotals

log = logging.getLogger(__name__)

OWN_FOLDER: Final = "orbitmq"
CHECKPOINT_NAME: Final = "checkpoint"
# Compat: entries of these queues point to records of other topics.
_SHARED_RECORDS: Final = "%LMQ%"


def log_folders(root: Path, log_path: str) -> list[Path]:
    """The folders of the commit log."""
    return _folders(log_path) or [root / "commitlog"]


def _folders(paths: str) -> list[Path]:
    parts = filter(None, (part.strip() for part in paths.split(",")))
    # Compat: Java sorts the texts, and the order decides the folder of a new file.
    return sorted({Path(part).expanduser() for part in parts}, key=str)


def _commit_log(root: Path, config: StoreConfig) -> CommitLog:
    folders, read_only = log_folders(root, config.log_path), _folders(config.read_only_log_path)
    if not set(folders) - set(read_only):
        raise SettingsError(
            f"readOnlyCommitLogStorePaths {config.read_only_log_path!r} leaves no folder for new "
            "files of the log",
            hint="name another folder in storePathCommitLog",
        )
    return CommitLog(
        folders,
        config.log_file_bytes,
        read_only_folders=read_only,
        synced_often=config.flush_mode is FlushMode.SYNC,
        modes=config.modes,
    )


def _unless_full(save: Callable[[], None]) -> DiskFullError | None:
    """Save something that can wait until the disk has room; returns why it has to."""
    try:
        save()
    except DiskFullError as error:
        return error
    return None


def _read_checkpoint(path: Path, clock: Clock) -> Checkpoint:
    checkpoint = Checkpoint.read(path)
    damage = checkpoint.damage(clock.now_ms())
    if not damage:
        return checkpoint
    log.warning("checkpoint ignored file=%s reason=%s", path, damage)
    return Checkpoint()


@dataclass(slots=True, kw_only=True)
class Parts:
    """The parts of an open store, recovered and in line with one another."""

    root: Path
    abort_file: AbortFile
    log: CommitLog
    queues: ConsumeQueues
    indexes: KeyIndexes | None
    deleted_topics: DeletedTopics
    reserved_offsets: ReservedOffsets
    dispatcher: Dispatcher
    progress_file: ProgressFile
    progress_saver: ProgressSaver
    shape_file: ShapeFile
    watermark: Watermark
    last_store_ms: int
    # What had no room, so that queues and index may not follow the whole log yet; None if all had.
    trouble: DiskFullError | None
    # The next numbers of queues whose newest records they do not follow yet.
    later_ends: dict[tuple[str, int], QueueOffset]
    # Releases everything, the lock last.
    resources: ExitStack


def open_parts(config: StoreConfig, clock: Clock) -> Parts:
    """Open a store; on failure everything is released again."""
    root = config.root.expanduser()
    with ExitStack() as resources:
        resources.callback(DirectoryLock(root, config.modes).release)
        try:
            refuse_misplaced(root)
            refuse_foreign_kinds(root)
            parts = _Opening(root, config, clock, resources).run()
        except OSError as error:
            path = Path(error.filename) if error.filename else root
            raise write_failure(path, error, what="something") from error
        parts.resources = resources.pop_all()
        return parts


class _Opening:
    """One opening."""

    def __init__(self, root: Path, config: StoreConfig, clock: Clock, resources: ExitStack) -> None:
        self._root = root
        self._modes = modes = config.modes
        self._resources = resources
        self._abort_file = AbortFile(root, modes)
        self._clean = self._abort_file.was_clean
        self._checkpoint = _read_checkpoint(root / CHECKPOINT_NAME, clock)
        self._progress_file = ProgressFile(root / OWN_FOLDER, modes)
        resources.callback(self._progress_file.close)
        self._shape_file = ShapeFile(root / OWN_FOLDER, modes)
        self._rebuild_note = RebuildNote(root / OWN_FOLDER, modes)
        self._sizes = FileSizes(
            log_file_bytes=config.log_file_bytes,
            queue_file_bytes=config.queue_file_bytes,
            index_slots=config.index_slots,
            index_entries=config.index_entries,
        )
        self._check_bodies = config.check_bodies
        self._log = _commit_log(root, config)
        resources.callback(self._log.close)
        self._queues = ConsumeQueues(
            root / "consumequeue",
            config.queue_file_bytes,
            open_files_max=config.open_files_max,
            modes=modes,
        )
        resources.callback(self._queues.close)
        self._indexes: KeyIndexes | None = None
        if config.index_enable:
            self._indexes = KeyIndexes(
                root / "index",
                slots=config.index_slots,
                entries_max=config.index_entries,
                modes=modes,
            )
            resources.callback(self._indexes.close)
        self._deleted_topics = DeletedTopics(root / OWN_FOLDER, modes)
        self._reserved_offsets = ReservedOffsets(root / OWN_FOLDER, modes)
        self._dispatcher = Dispatcher(
            self._log,
            self._queues,
            self._indexes,
            deleted_topics=self._deleted_topics,
            delay_levels_ms=parse_delay_levels(config.delay_levels),
            clock=clock,
        )
        self._ours = self._progress_file.is_present and self._progress_file.saved.knows(
            self._checkpoint
        )

    def run(self) -> Parts:
        shape = self._shape_file.saved
        if shape is None or shape.sizes != self._sizes:
            refuse_other_sizes(self._root, self._sizes)
        self._log.load()
        if shape is not None and self._ours:
            self._check_log_start(shape.log_start)
        known = self._known()
        recovered = self._find_end(known)
        trouble = unmarked = _unless_full(self._abort_file.write)
        if unmarked is not None and recovered.torn_reason:
            # Invariant: nothing that a crash could leave half done is changed without that file.
            raise unmarked
        self._log.cut(recovered.end, flushed=self._flushed(known, recovered))
        self._dispatcher.last_store_ms = max(self._checkpoint.log_ms, recovered.last_store_ms)
        trouble = trouble or _unless_full(self._log.allocate_newest)
        try:
            resumed_at = self._dispatcher.position = self._dispatch_from(known)
        except StoreFormatError:
            # Opened with other sizes than it was written with: it stays as clean as it was.
            if self._clean:
                self._abort_file.remove()
            raise
        rebuilt = bool(self._queues.ends_before)
        if rebuilt:
            if unmarked is not None:
                raise unmarked
            trouble = _unless_full(self._note_rebuild) or trouble
            self._queues.delete_dropped()
        try:
            self._feed(recovered.end)
        except DiskFullError as error:
            trouble = trouble or error
        saver = ProgressSaver(
            dispatcher=self._dispatcher,
            queues=self._queues,
            indexes=self._indexes,
            file=self._progress_file,
            rebuild_note=self._rebuild_note,
            checkpoint=self._checkpoint,
            checkpoint_path=self._root / CHECKPOINT_NAME,
            modes=self._modes,
        )
        is_as_saved = self._ours and not rebuilt and resumed_at == known.queued_until
        if trouble is None and (self._clean or not is_as_saved):
            trouble = _unless_full(lambda: saver.save(lambda _: recovered.end))
        else:
            # What was saved before the crash is still true, and covers less. Syncing every queue
            # that changed since can take a minute; the first save of upkeep does it.
            trouble = trouble or _unless_full(
                lambda: self._progress_file.raise_flushed(recovered.end)
            )
        trouble = trouble or _unless_full(
            lambda: self._shape_file.write(Shape(self._log.start, self._sizes))
        )
        visible = min(self._dispatcher.position, recovered.end) if trouble else recovered.end
        watermark = Watermark(self._root / OWN_FOLDER, visible, self._modes)
        self._resources.callback(watermark.close)
        return Parts(
            root=self._root,
            abort_file=self._abort_file,
            log=self._log,
            queues=self._queues,
            indexes=self._indexes,
            deleted_topics=self._deleted_topics,
            reserved_offsets=self._reserved_offsets,
            dispatcher=self._dispatcher,
            progress_file=self._progress_file,
            progress_saver=saver,
            shape_file=self._shape_file,
            watermark=watermark,
            last_store_ms=self._dispatcher.last_store_ms,
            trouble=trouble,
            later_ends=ends_after(
                self._log, self._dispatcher.position, recovered.end, self._deleted_topics
            ),
            resources=self._resources,
        )

    def _check_log_start(self, saved_start: int) -> None:
        """Say so if files below the start of the log were not deleted by our retention."""
        if self._log.start > saved_start:
            log.error(
                "log files are missing first=%s start=%d saved_start=%d hint=messages in them are "
                "lost; to bring them back, stop the broker, restore the files and run orbitmq "
                "store rebuild",
                file_name(saved_start),
                self._log.start,
                saved_start,
            )

    def _known(self) -> Known:
        if self._ours:
            return known_by_progress(self._log, self._progress_file.saved, clean=self._clean)
        if not self._log.files:
            return Known(walk_from=PhysicalOffset(0))
        return known_by_checkpoint(self._log, self._checkpoint, clean=self._clean)

    def _find_end(self, known: Known) -> Recovered:
        if not self._log.files:
            return Recovered(end=PhysicalOffset(0), records=0, last_store_ms=0, torn_reason="")
        recovered = find_end(self._log, known, check_bodies=self._check_bodies)
        if not self._clean or recovered.torn_reason:
            log.info(
                "log recovered end=%d walked=%d tail=%s",
                recovered.end,
                recovered.records,
                recovered.torn_reason or "whole",
            )
        return recovered

    def _flushed(self, known: Known, recovered: Recovered) -> PhysicalOffset:
        """How far the log is certainly on disk."""
        if self._ours:
            return known.flushed
        # Another broker that stopped cleanly flushed everything.
        return recovered.end if self._clean else known.walk_from

    # --- queues and index ---------------------------------------------------------------------

    def _dispatch_from(self, known: Known) -> PhysicalOffset:
        """Bring queues and index to a known state; returns where to resume dispatching.

        Dispatching a record twice does no harm, so in doubt it restarts at the beginning.
        """
        start, end = self._log.start, self._log.end
        saved = self._progress_file.saved
        good_until = end if known.queued_until is None else min(known.queued_until, end)
        doubtful = self._queues.load(
            good_until,
            # Whoever stopped cleanly left zero bytes after the newest entry.
            all_written=self._clean and (not self._ours or saved.dispatched == end),
            names_synced=self._ours,
        )
        doubtful += self._queues.drop_inconsistent(self._is_consistent)
        if self._rebuild_note.ends is not None:
            log.warning("rebuilding queues reason=an earlier rebuild was interrupted")
            self._queues.drop_again(self._rebuild_note.ends)
            doubtful += 1
        if self._ours and not doubtful and self._queues.count < saved.queue_count:
            log.warning(
                "rebuilding missing queues found=%d expected=%d",
                self._queues.count,
                saved.queue_count,
            )
            doubtful += 1
        if known.queued_until is None:
            # Another broker stopped cleanly: its queues follow the log up to their newest entry.
            good_until = max((queue.max_physical_end for queue in self._queues), default=start)
        self._queues.raise_starts(start)
        if self._ours and not doubtful and saved.queue_totals is not None:
            doubtful += self._compare_totals(saved.queue_totals)
        if doubtful or not self._queues.count:
            good_until = start
        return max(start, min(good_until, self._index_until()))

    def _note_rebuild(self) -> None:
        self._rebuild_note.write(self._queues.ends_before)

    def _compare_totals(self, saved: QueueTotals) -> bool:
        """Whether queues lost entries since they were saved, so that the log must fill them."""
        found = self._queues.totals()
        doubt = saved.doubt(found)
        if not doubt:
            return False
        log.warning("rebuilding queues reason=%s", doubt)
        if found.ends < saved.ends:
            # The log fills up what is missing, unless it was deleted there.
            self._queues.drop_cut()
        else:
            self._queues.drop_all()
        return True

    def _index_until(self) -> PhysicalOffset:
        """Open the index and drop doubtful files; returns how far it follows the log."""
        indexes, end = self._indexes, self._log.end
        if indexes is None:
            return end
        doubt = indexes.load() or indexes.missing_part(
            self._log.start, partial(has_keys, self._log)
        )
        saved = self._progress_file.saved
        newest = indexes.newest
        until = end
        if doubt:
            trusted = False
        elif self._ours and self._clean:
            found = (newest.name, newest.next) if newest is not None else (0, 0)
            trusted = found == (saved.index_name, saved.index_next)
        elif self._ours:
            trusted = (
                indexes.restore(saved.index_name, saved.index_next, self._store_ms_at)
                and indexes.end_offset <= saved.dispatched
            )
        elif self._clean:
            trusted = newest is not None
        else:
            indexes.keep_full(self._checkpoint.index_ms)
            trusted, until = True, min(indexes.end_offset, end)
        if trusted:
            doubt = indexes.disagreement(self._log.start, self._store_ms_at)
            if not doubt:
                return until
        if newest is not None or doubt:
            log.warning(
                "rebuilding the key index newest=%s reason=%s",
                newest.path if newest is not None else "none",
                doubt or "it is not where the saved progress left it",
            )
        indexes.delete_all()
        return PhysicalOffset(0)

    def _feed(self, end: PhysicalOffset) -> None:
        """Dispatch one file at a time, so that a long log does not fill the memory with entries."""
        while self._dispatcher.position < end:
            self._queues.write()
            position = self._dispatcher.position
            file_end = (position // self._log.file_bytes + 1) * self._log.file_bytes
            self._dispatcher.advance(PhysicalOffset(min(file_end, end)))
        self._queues.keep_ends(self._log.start)

    def _is_consistent(self, queue: ConsumeQueue) -> bool:
        """Whether the newest entry of a queue points to a record that agrees."""
        entry = queue.entry(type(queue.end)(queue.end - 1))
        if entry is None:
            return False
        physical_offset, record_bytes, _ = entry
        if physical_offset < self._log.start:
            older = queue.entry(type(queue.end)(queue.end - 2))
            is_behind = older is None or older[0] < physical_offset
            return is_behind and 0 < record_bytes <= self._log.start - physical_offset
        if queue.topic.startswith(_SHARED_RECORDS):
            return True
        record = self._log.pread(physical_offset, record_bytes)
        if record is None or self._damage(queue, physical_offset, record, named=False):
            return False
        named = not self._damage(queue, physical_offset, record, named=True)
        numbered = queue_offset_of(record) == queue.end - 1
        if self._ours:
            # Entries and records that our saved progress covers agreed once. A record with the
            # right number and another name is damaged, and reading it reports that. Rebuilding
            # the queue would trust the record, and end before it.
            return named or numbered
        # Java leaves stale entries after a cut, which may point to records of the same queue.
        return named and numbered

    def _damage(
        self, queue: ConsumeQueue, physical_offset: int, record: bytes, *, named: bool
    ) -> str:
        return damage_of(
            record,
            physical_offset,
            topic=queue.topic.encode() if named else None,
            queue_id=queue.queue_id,
            check_body=False,
        )

    def _store_ms_at(self, physical_offset: int) -> int | None:
        head = self._log.pread(physical_offset, HEAD_BYTES)
        if head is None or physical_offset_of(head) != physical_offset:
            return None
        return store_ms_of(head)
