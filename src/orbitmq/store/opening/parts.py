"""Opening a store directory: loads, recovers and connects every part.

Threads: one; no other thread uses the directory yet.
Crash: everything is read and judged before anything is changed. The first change is the file
`abort`, on disk before the next one, so that a crash during recovery counts as a crash.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from orbitmq.errors import DiskFullError, SettingsError, StoreFormatError
from orbitmq.model.queues import PhysicalOffset, QueueOffset
from orbitmq.store.config import FlushMode
from orbitmq.store.delay_levels import parse_delay_levels
from orbitmq.store.files.descriptor import write_failure
from orbitmq.store.files.file_names import file_name
from orbitmq.store.index.consume_queues import ConsumeQueues
from orbitmq.store.index.deleted_topics import DeletedTopics
from orbitmq.store.index.dispatcher import Dispatcher
from orbitmq.store.index.key_indexes import KeyIndexes
from orbitmq.store.index.watermark import Watermark, read_watermark
from orbitmq.store.log.commit_log import CommitLog
from orbitmq.store.opening.abort_file import AbortFile
from orbitmq.store.opening.checkpoint import Checkpoint
from orbitmq.store.opening.cut_intent import (
    cut_folder,
    forget_intent,
    read_intent,
    saved_cut,
    write_intent,
)
from orbitmq.store.opening.directory_lock import DirectoryLock
from orbitmq.store.opening.doubts import Doubts
from orbitmq.store.opening.log_cut import LogCut
from orbitmq.store.opening.log_scans import ends_after
from orbitmq.store.opening.progress import ProgressFile, ProgressSaver, SavedProgress
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
    from orbitmq.disk import FileModes
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.opening.cut_intent import Cut, CutIntent

log = logging.getLogger(__name__)

OWN_FOLDER: Final = "orbitmq"
CHECKPOINT_NAME: Final = "checkpoint"


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


def _read_checkpoint(path: Path, saved: SavedProgress, clock: Clock) -> Checkpoint:
    found = Checkpoint.read(path)
    checkpoint = saved.repaired(found)
    if checkpoint is not found:
        log.warning("checkpoint repaired file=%s reason=a bit of it was flipped", path)
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
    # What was cut from the log, until `forget_intent`.
    cut: Cut | None = None


def open_parts(
    config: StoreConfig, clock: Clock, *, held: bool = False, copied_until: int = 0
) -> Parts:
    """Open a store; on failure everything is released again.

    With `held`, no more is visible than before; otherwise the whole log is. Below `copied_until`, the
    log was copied from a master, or will be.
    """
    root = config.root.expanduser()
    with ExitStack() as resources:
        resources.callback(DirectoryLock(root, config.modes).release)
        try:
            refuse_misplaced(root)
            refuse_foreign_kinds(root)
            intent = read_intent(root)
            cut = None
            if intent is not None and not intent.saved:
                cut = _cut(root, intent, config, clock)
            parts = _Opening(root, config, clock, resources, copied_until=copied_until).run(
                held=held
            )
            if intent is not None:
                parts.cut = _settle(root, intent, cut, config.modes)
        except OSError as error:
            path = Path(error.filename) if error.filename else root
            raise write_failure(path, error, what="something") from error
        parts.resources = resources.pop_all()
        return parts


def _cut(root: Path, intent: CutIntent, config: StoreConfig, clock: Clock) -> Cut | None:
    """Cut the log as asked; None if there was nothing to cut."""
    progress_file = ProgressFile(root / OWN_FOLDER, config.modes)
    commit_log = _commit_log(root, config)
    checkpoint_path = root / CHECKPOINT_NAME
    try:
        return LogCut(
            root=root,
            intent=intent,
            commit_log=commit_log,
            progress_file=progress_file,
            checkpoint=_read_checkpoint(checkpoint_path, progress_file.saved, clock),
            checkpoint_path=checkpoint_path,
            index_slots=config.index_slots,
            index_entries=config.index_entries,
            modes=config.modes,
        ).run()
    finally:
        commit_log.close()
        progress_file.close()


def _settle(root: Path, intent: CutIntent, cut: Cut | None, modes: FileModes) -> Cut | None:
    """Note that the log is cut, and queues and index with it; returns what was cut."""
    if intent.saved:
        # Cut by an earlier opening, and something else is still to be lowered.
        return saved_cut(cut_folder(root) / intent.saved)
    if cut is None:
        forget_intent(root)
    else:
        write_intent(root, replace(intent, saved=cut.saved_path.name), modes)
    return cut


class _Opening:
    """One opening."""

    def __init__(
        self,
        root: Path,
        config: StoreConfig,
        clock: Clock,
        resources: ExitStack,
        *,
        copied_until: int,
    ) -> None:
        self._root = root
        self._modes = modes = config.modes
        self._resources = resources
        self._abort_file = AbortFile(root, modes)
        self._clean = self._abort_file.was_clean
        self._progress_file = ProgressFile(root / OWN_FOLDER, modes)
        self._checkpoint = _read_checkpoint(
            root / CHECKPOINT_NAME, self._progress_file.saved, clock
        )
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
            copied_until=copied_until,
        )
        self._ours = self._progress_file.is_present and self._progress_file.saved.knows(
            self._checkpoint
        )

    def run(self, *, held: bool) -> Parts:
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
            resumed_at = self._dispatcher.position = self._doubts().resolve(known)
        except StoreFormatError:
            # Opened with other sizes than it was written with: it stays as clean as it was.
            if self._clean:
                self._abort_file.remove()
            raise
        shown = self._shown_before(recovered.end) if held else recovered.end
        rebuilt = bool(self._queues.ends_before)
        if rebuilt:
            if unmarked is not None:
                raise unmarked
            trouble = _unless_full(self._note_rebuild) or trouble
            self._queues.delete_dropped()
        try:
            self._feed(shown)
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
        visible = min(self._dispatcher.position, shown) if trouble else shown
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

    def _shown_before(self, end: PhysicalOffset) -> PhysicalOffset:
        """How far the log was visible when the store was last open."""
        before = read_watermark(self._root / OWN_FOLDER) if self._ours else None
        if before is None:
            return end
        # A crash of the machine may have lost the newest value; what is in a queue was visible.
        return min(max(before, self._dispatcher.position), end)

    def _flushed(self, known: Known, recovered: Recovered) -> PhysicalOffset:
        """How far the log is certainly on disk."""
        if self._ours:
            return known.flushed
        # Another broker that stopped cleanly flushed everything.
        return recovered.end if self._clean else known.walk_from

    def _doubts(self) -> Doubts:
        return Doubts(
            commit_log=self._log,
            queues=self._queues,
            indexes=self._indexes,
            saved=self._progress_file.saved,
            checkpoint=self._checkpoint,
            ours=self._ours,
            clean=self._clean,
            interrupted=self._rebuild_note.ends,
        )

    def _note_rebuild(self) -> None:
        self._rebuild_note.write(self._queues.ends_before)

    def _feed(self, end: PhysicalOffset) -> None:
        """Dispatch one file at a time, so that a long log does not fill the memory with entries."""
        while self._dispatcher.position < end:
            self._queues.write()
            position = self._dispatcher.position
            file_end = (position // self._log.file_bytes + 1) * self._log.file_bytes
            self._dispatcher.advance(PhysicalOffset(min(file_end, end)))
        self._queues.keep_ends(self._log.start)
