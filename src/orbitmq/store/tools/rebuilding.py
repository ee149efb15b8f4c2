"""Rebuilding: makes consume queues and key index from the log.

Under the directory's lock, everything is built in `<root>/orbitmq/rebuild`, synced to disk, and
swapped with the old folders, so an interrupted rebuild leaves either the old files or the new ones.
The log is only read.

Numbers come from the records. A queue whose records were all deleted keeps its last entry, so that
its numbers continue; a topic that was deleted and created again gets only the newer records.

Crash: the progress that covers the index is saved last; without it, opening rebuilds the index.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from orbitmq.clock import Clock, SystemClock
from orbitmq.disk import make_folder, modes_like, sync_folder
from orbitmq.errors import StoreError, StoreFormatError
from orbitmq.model.queues import PhysicalOffset, QueueOffset
from orbitmq.record.scan import KEY, EntryRun
from orbitmq.store.config import StoreConfig
from orbitmq.store.delay_levels import parse_delay_levels
from orbitmq.store.index.consume_queue import ENTRY, ENTRY_BYTES
from orbitmq.store.index.consume_queues import ConsumeQueues
from orbitmq.store.index.dispatcher import NO_INDEX
from orbitmq.store.index.key_indexes import KeyIndexes
from orbitmq.store.index.key_table import ENTRY_BYTES as INDEX_ENTRY_BYTES
from orbitmq.store.index.key_table import HEADER_BYTES, SLOT_BYTES
from orbitmq.store.opening.directory_lock import DirectoryLock
from orbitmq.store.opening.parts import OWN_FOLDER
from orbitmq.store.opening.progress import ProgressFile
from orbitmq.store.readonly.index_files import ReadOnlyIndexFile, list_index_files
from orbitmq.store.readonly.queue_files import ReadOnlyQueue, begins_at
from orbitmq.store.readonly.readonly_store import SHARED_RECORDS, ReadOnlyStore
from orbitmq.store.readonly.visible_end import Writer

_QUEUES: Final = "consumequeue"
_INDEX: Final = "index"
_FOLDER: Final = "rebuild"
_OLD: Final = "old-"
# Entries collected in memory are written once per this many bytes of the log.
_WRITE_EVERY_BYTES: Final = 64 * 1024 * 1024
_OPEN_FILES_MAX: Final = 256
_NOTES_MAX: Final = 100

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildOptions:
    """How to build; None means like the existing files."""

    log_path: str = ""
    queue_file_bytes: int | None = None
    with_index: bool | None = None
    index_slots: int | None = None
    index_entries: int | None = None
    delay_levels: str | None = None


@dataclass(kw_only=True)
class Rebuilt:
    """The result of a rebuild."""

    start: int
    end: int
    records: int = 0
    queues: int = 0
    entries: int = 0
    keys: int = 0
    has_index: bool = False
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Add something worth knowing."""
        if len(self.notes) < _NOTES_MAX:
            self.notes.append(text)


def rebuild(
    root: Path,
    options: RebuildOptions | None = None,
    *,
    clock: Clock | None = None,
    on_progress: OnProgress = lambda _done, _total: None,
) -> Rebuilt:
    """Rebuild queues and index of a store from its log."""
    root = root.expanduser()
    options = options or RebuildOptions()
    if not root.is_dir():
        raise StoreError(f"{root} is not a folder", hint="name the storePathRootDir of a broker")
    lock = DirectoryLock(root)
    try:
        _undo_interrupted(root)
        with ReadOnlyStore(root, log_path=options.log_path) as store:
            return _Rebuild(store, options, clock or SystemClock(), on_progress).run()
    finally:
        lock.release()


class _Rebuild:
    """One rebuild; the lock is held."""

    def __init__(
        self, store: ReadOnlyStore, options: RebuildOptions, clock: Clock, on_progress: OnProgress
    ) -> None:
        self._store = store
        self._options = options
        self._clock = clock
        self._on_progress = on_progress
        self._folder = store.root / OWN_FOLDER / _FOLDER
        progress = store.state.progress if store.written_by is Writer.ORBITMQ else None
        # After a crash, records beyond the flushed end are left to recovery.
        end = (
            store.end
            if store.state.is_clean or progress is None
            else min(store.end, progress.flushed)
        )
        self._progress = progress
        self._result = Rebuilt(start=store.start, end=end)
        self._index_files = list_index_files(store.root / _INDEX)[0]
        self._delay_levels_ms = parse_delay_levels(
            options.delay_levels if options.delay_levels is not None else StoreConfig().delay_levels
        )

    def run(self) -> Rebuilt:
        for topic, _ in self._store.folder_keys():
            if topic.startswith(SHARED_RECORDS):
                raise StoreFormatError(
                    f"queues of {topic!r} point to records of other topics",
                    hint="OrbitMQ cannot build such queues; keep the store on a RocketMQ broker",
                )
        make_folder(self._folder)
        try:
            self._build()
            self._swap()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        if not self._store.state.is_clean:
            self._result.note(
                "the store was not stopped cleanly; opening it recovers records after offset "
                f"{self._result.end}"
            )
        return self._result

    # --- building -----------------------------------------------------------------------------

    def _build(self) -> None:
        queues = ConsumeQueues(
            self._folder / _QUEUES,
            self._queue_file_bytes(),
            open_files_max=_OPEN_FILES_MAX,
            modes=modes_like(self._store.root / _QUEUES),
        )
        indexes = self._new_indexes()
        try:
            self._feed(queues, indexes)
            self._keep_ends(queues)
            queues.sync()
            self._result.queues = queues.count
            if indexes is not None:
                indexes.sync()
                newest = indexes.newest
                self._set_mark_index(newest.name if newest else 0, newest.next if newest else 0)
                self._result.has_index = newest is not None
        finally:
            queues.close()
            if indexes is not None:
                indexes.close()

    def _feed(self, queues: ConsumeQueues, indexes: KeyIndexes | None) -> None:
        result = self._result
        unwritten_bytes = 0
        for chunk in self._store.log.walk(
            result.start,
            result.end,
            with_keys=indexes is not None,
            delay_levels_ms=self._delay_levels_ms,
        ):
            found = chunk.found
            result.records += found.records
            for (topic, queue_id), runs in found.runs.items():
                for run in runs:
                    self._append(queues, topic.decode(), queue_id, run)
            if indexes is not None:
                indexes.put(found.keys, now_ms=self._clock.now_ms)
                result.keys += len(found.keys) // KEY.size
            unwritten_bytes += found.position
            if unwritten_bytes >= _WRITE_EVERY_BYTES:
                queues.write()
                unwritten_bytes = 0
            self._on_progress(
                chunk.offset + found.position - result.start, result.end - result.start
            )

    def _append(self, queues: ConsumeQueues, topic: str, queue_id: int, run: EntryRun) -> None:
        queue = queues.queue(topic, queue_id)
        if run.first < queue.end:
            self._result.note(
                f"queue {queue_id} of topic {topic!r} starts over at {run.first}: its earlier "
                "records belong to a topic that was deleted"
            )
            queue.delete()
        elif run.first > queue.end > 0:
            self._result.note(
                f"queue {queue_id} of topic {topic!r} jumps from {queue.end} to {run.first}; its "
                "entries continue without a gap, as in RocketMQ"
            )
        with queues.lock:
            queues.append(topic, queue_id, QueueOffset(run.first), run.entries)
        self._result.entries += len(run.entries) // ENTRY_BYTES

    def _keep_ends(self, queues: ConsumeQueues) -> None:
        """Keep the last entry of queues whose records were all deleted."""
        for topic, queue_id in self._store.folder_keys():
            known = queues.find(topic, queue_id)
            if known is not None and known.end > 0:
                continue
            try:
                old = self._store.on_disk(topic, queue_id)
            except StoreFormatError as error:
                self._result.note(f"queue {queue_id} of topic {topic!r} is lost: {error}")
                continue
            self._keep_end(queues, topic, queue_id, old)

    def _keep_end(
        self, queues: ConsumeQueues, topic: str, queue_id: int, old: ReadOnlyQueue
    ) -> None:
        number = old.first_from(self._store.start) - 1
        if number < old.first or begins_at(old.entry(number)) < 0:
            return
        with queues.lock:
            queues.append(topic, queue_id, QueueOffset(number), ENTRY.pack(*old.entry(number)))

    def _queue_file_bytes(self) -> int:
        if self._options.queue_file_bytes is not None:
            return self._options.queue_file_bytes
        for topic, queue_id in self._store.folder_keys():
            try:
                file_bytes = self._store.on_disk(topic, queue_id).file_bytes
            except StoreFormatError:
                continue
            if file_bytes:
                return file_bytes
        file_bytes = StoreConfig().queue_file_bytes
        self._result.note(f"no existing queue to take the file size from; using {file_bytes} bytes")
        return file_bytes

    def _new_indexes(self) -> KeyIndexes | None:
        wanted = self._options.with_index
        if wanted is None:
            has_saved_index = self._progress is not None and self._progress.index_name > 0
            wanted = bool(self._index_files) or has_saved_index
        if not wanted:
            self._set_mark_index(NO_INDEX, 0)
            return None
        slots, entries = self._index_shape()
        return KeyIndexes(
            self._folder / _INDEX,
            slots=slots,
            entries_max=entries,
            modes=modes_like(self._store.root / _INDEX),
        )

    def _index_shape(self) -> tuple[int, int]:
        """Slots and entries of an index file: from options, existing files or defaults."""
        slots, entries = self._options.index_slots, self._options.index_entries
        if slots and entries:
            return slots, entries
        for path in self._index_files:
            try:
                file = ReadOnlyIndexFile.open(path)
                found = file.slot_count(slots)
            except StoreFormatError as error:
                self._result.note(str(error))
                continue
            room = file.file_bytes - HEADER_BYTES - found * SLOT_BYTES
            return found, room // INDEX_ENTRY_BYTES
        if self._index_files:
            raise StoreFormatError(
                f"no file of the key index shows its layout: {self._result.notes[0]}",
                hint="set --index-slots and --index-entries, or skip the index with --no-index",
            )
        defaults = StoreConfig()
        return slots or defaults.index_slots, entries or defaults.index_entries

    def _set_mark_index(self, name: int, next_number: int) -> None:
        if self._progress is not None:
            self._progress = replace(self._progress, index_name=name, index_next=next_number)

    # --- swapping -----------------------------------------------------------------------------

    def _swap(self) -> None:
        root = self._store.root
        for name in (_QUEUES, _INDEX):
            new = self._folder / name
            if (root / name).is_dir():
                make_folder(new, modes_like(root / name))
            if new.is_dir():
                _exchange(new, root / name, self._folder / (_OLD + name))
        sync_folder(self._folder)
        sync_folder(root)
        if self._progress is not None:
            progress_file = ProgressFile(root / OWN_FOLDER)
            progress_file.write(
                replace(
                    self._progress,
                    dispatched=PhysicalOffset(min(self._result.end, self._progress.flushed)),
                    queue_count=self._result.queues,
                    queue_totals=None,
                )
            )
            progress_file.close()


def _exchange(new: Path, target: Path, aside: Path) -> None:
    """Swap a new folder with the old one, atomically where the system supports it."""
    if not target.exists():
        new.rename(target)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    rename = getattr(libc, "renameat2", None)
    here, exchange = -100, 2
    if rename is not None:
        if rename(here, os.fsencode(new), here, os.fsencode(target), exchange) == 0:
            return
        failure = ctypes.get_errno()
        if failure not in (errno.ENOSYS, errno.EINVAL):
            raise StoreError(
                f"cannot swap {new} and {target}: {os.strerror(failure)}",
                hint="both must be on one disk; nothing was changed",
            )
    target.rename(aside)
    try:
        new.rename(target)
    except OSError:
        aside.rename(target)
        raise


def _undo_interrupted(root: Path) -> None:
    """Delete the leftovers of an interrupted rebuild; restore folders that it had set aside."""
    folder = root / OWN_FOLDER / _FOLDER
    for name in (_QUEUES, _INDEX):
        if (folder / (_OLD + name)).is_dir() and not (root / name).exists():
            (folder / (_OLD + name)).rename(root / name)
    shutil.rmtree(folder, ignore_errors=True)
