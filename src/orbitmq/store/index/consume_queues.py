"""All consume queues of a store, by topic and queue id.

Threads: two locks. `lock` protects changes in memory, mostly by the dispatcher, and is never held
while waiting for the disk; the disk lock protects writing, syncing and deleting files, and is taken
first. Readers take neither.
Crash: see `consume_queue`; names of new and deleted files are synced with the files.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orbitmq.disk import PRIVATE, FileModes, sync_folder
from orbitmq.errors import StoreFormatError
from orbitmq.model.queues import QueueOffset
from orbitmq.store.files.open_files import OpenFiles
from orbitmq.store.index.consume_queue import ENTRY, ENTRY_BYTES, ConsumeQueue

if TYPE_CHECKING:
    from orbitmq.model.queues import PhysicalOffset
    from orbitmq.record.scan import EntryRun

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTotals:
    """Sums over all queues: saved with the progress, they tell whether entries were lost since."""

    starts: int
    ends: int
    # The start of the log that the queues' starts account for; -1 while they are being raised.
    log_start: int

    def doubt(self, found: QueueTotals) -> str:
        """Why queues that were found with other totals are doubtful; empty if they are not."""
        if found.ends != self.ends:
            return f"they end at {found.ends} in total and not at {self.ends}"
        if found.starts != self.starts and found.log_start == self.log_start:
            return f"they begin at {found.starts} in total and not at {self.starts}"
        return ""


class ConsumeQueues:
    """The queues, created when first needed."""

    def __init__(
        self,
        folder: Path,
        file_bytes: int,
        *,
        open_files_max: int = 512,
        writable: bool = True,
        modes: FileModes = PRIVATE,
    ) -> None:
        self._folder = folder
        self._file_bytes = -(-file_bytes // ENTRY_BYTES) * ENTRY_BYTES
        self._files = OpenFiles(open_files_max, writable=writable, modes=modes)
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._unwritten: set[ConsumeQueue] = set()
        self._unsynced: set[ConsumeQueue] = set()
        self._unsynced_folders: set[Path] = set()
        self._log_start = -1
        # The ends that queues had when they were dropped to be rebuilt.
        self._ends_before: dict[ConsumeQueue, QueueOffset] = {}
        self._disk_lock = threading.RLock()
        self.lock = threading.RLock()

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(list(self._queues.values()))

    def __len__(self) -> int:
        return len(self._queues)

    def load(
        self,
        good_until: PhysicalOffset | None = None,
        *,
        all_written: bool = False,
        names_synced: bool = True,
        is_consistent: Callable[[ConsumeQueue], bool] = lambda _: True,
        log_start: PhysicalOffset | None = None,
    ) -> int:
        """Open the queues that are on disk; returns how many were doubtful and dropped.

        With `good_until`, entries of records above it are cut off, to be rebuilt; `all_written`
        is for `ConsumeQueue.load`. The names of files that have entries below it are on disk,
        unless `names_synced` says otherwise; the next sync takes care of all others, since a
        killed process may not have synced them. A queue is also doubtful if `is_consistent` says
        that it disagrees with the log. With `log_start`, all starts are raised as by
        `raise_starts`.
        """
        # Perf: all of it at once for each queue, while its file is open: opening files three times
        # takes a third longer (benchmarks/broker_start.py).
        doubtful = 0
        self._unsynced_folders.update((self._folder, self._folder.parent))
        for queue in self._found():
            doubt = queue.load(good_until, all_written=all_written)
            if not names_synced or queue.start == queue.end:
                queue.request_name_sync()
            if not doubt and queue.end > queue.start and not is_consistent(queue):
                doubt = "its newest entry points to no record of it"
            if doubt:
                doubtful += 1
                self._drop(queue, doubt)
                continue
            if log_start is not None:
                queue.raise_start(log_start)
            if queue.needs_sync:
                self._unsynced.add(queue)
        if log_start is not None:
            self._log_start = log_start
        return doubtful

    def _found(self) -> Iterator[ConsumeQueue]:
        """Find the folders of queues."""
        for topic in _listed(self._folder) if self._folder.is_dir() else ():
            if not topic.is_dir():
                raise StoreFormatError(
                    f"{topic.path} is a file among the folders of consume queues",
                    hint="move it away",
                )
            for folder in _listed(topic.path):
                name = folder.name
                if not (name.isascii() and name.isdigit() and folder.is_dir()):
                    raise StoreFormatError(
                        f"{folder.path} does not have a queue id as its name", hint="move it away"
                    )
                yield self.queue(topic.name, int(name))

    def drop_all(self) -> None:
        """Drop every queue, to rebuild it; it stays known, with the end it had."""
        for queue in self:
            self._drop(queue)

    def drop_cut(self) -> None:
        """Drop queues without records whose newest entries loading has cut off."""
        for queue in self:
            if queue.start == queue.end < queue.cut_until:
                self._drop(queue)
                self._ends_before[queue] = queue.cut_until

    def drop_again(self, ends: Mapping[tuple[str, int], QueueOffset]) -> None:
        """Drop queues whose rebuild was interrupted; `ends` are those they had before it."""
        for (topic, queue_id), end in ends.items():
            queue = self.queue(topic, queue_id)
            self._ends_before[queue] = max(end, self._ends_before.get(queue, end))
            self._drop(queue)

    @property
    def ends_before(self) -> Mapping[tuple[str, int], QueueOffset]:
        """The ends that queues had when they were dropped."""
        return {(queue.topic, queue.queue_id): end for queue, end in self._ends_before.items()}

    def delete_dropped(self) -> None:
        """Delete the files of queues that were dropped."""
        for queue in self._ends_before:
            queue.delete()
            self._unsynced.add(queue)

    def keep_ends(self, log_start: PhysicalOffset) -> None:
        """Let queues that were rebuilt, and have no record left in the log, go on at their end.

        Opening a store ends with this: the ends are those of before its first new message.
        """
        for queue, end in self._ends_before.items():
            if queue.end == 0 and end > 0 and log_start > 0:
                with self.lock:
                    queue.append(QueueOffset(end - 1), ENTRY.pack(log_start - 1, 1, 0))
                    self._unwritten.add(queue)
                with self._disk_lock:
                    queue.raise_start(log_start)
        self._ends_before.clear()
        for queue in self:
            queue.opened_end = queue.end

    def _drop(self, queue: ConsumeQueue, doubt: str = "") -> None:
        if doubt:
            log.warning(
                "rebuilding queue topic=%s queue=%d reason=%s", queue.topic, queue.queue_id, doubt
            )
        self._ends_before[queue] = max(queue.end, self._ends_before.get(queue, queue.end))
        queue.drop()

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Find a queue; None if it never had entries."""
        return self._queues.get((topic, queue_id))

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Find a queue, or create it."""
        key = (topic, queue_id)
        queue = self._queues.get(key)
        if queue is None:
            with self.lock:
                queue = self._queues.setdefault(key, self._empty(topic, queue_id))
        return queue

    def _empty(self, topic: str, queue_id: int) -> ConsumeQueue:
        folder = self._folder / topic / str(queue_id)
        return ConsumeQueue(topic, queue_id, folder, self._file_bytes, self._files, self.lock)

    def append(
        self, topic: str, queue_id: int, first: QueueOffset, entries: bytes | bytearray
    ) -> ConsumeQueue | None:
        """Add entries to a queue, in memory; the caller holds the lock. None if none was new."""
        queue = self._queues.get((topic, queue_id)) or self.queue(topic, queue_id)
        if not queue.append(first, entries):
            return None
        self._unwritten.add(queue)
        return queue

    @property
    def count(self) -> int:
        """How many queues have or had entries."""
        return sum(1 for queue in self if queue.end > 0)

    def totals(self) -> QueueTotals:
        """Sum up the queues; the caller keeps them from growing."""
        starts = ends = 0
        log_start = self._log_start
        for queue in self:
            starts += queue.start
            ends += queue.end
        is_raised = log_start == self._log_start
        return QueueTotals(starts=starts, ends=ends, log_start=log_start if is_raised else -1)

    @property
    def unsynced_count(self) -> int:
        """How many queues need a sync."""
        return len(self._unsynced | self._unwritten)

    def write(self) -> None:
        """Write all entries in memory to the files; those that cannot be written stay in memory."""
        with self._disk_lock:
            with self.lock:
                unwritten, self._unwritten = self._unwritten, set()
            try:
                while unwritten:
                    queue = next(iter(unwritten))
                    queue.write()
                    self._unsynced.add(queue)
                    unwritten.discard(queue)
            finally:
                with self.lock:
                    self._unwritten |= unwritten

    def sync(self) -> None:
        """Write every entry, and return once all are on disk."""
        with self._disk_lock:
            self.write()
            while self._unsynced:
                queue = next(iter(self._unsynced))
                if queue.sync():
                    folders = (queue.folder, queue.folder.parent, self._folder)
                    self._unsynced_folders.update((*folders, self._folder.parent))
                self._unsynced.discard(queue)
            for folder in sorted(self._unsynced_folders, reverse=True):
                if folder.is_dir():
                    sync_folder(folder)
            self._unsynced_folders.clear()

    def raise_starts(self, log_start: PhysicalOffset) -> None:
        """Move the start of every queue past records that were deleted."""
        self._log_start = -1
        for queue in self:
            with self._disk_lock:
                queue.raise_start(log_start)
                if queue.needs_sync:
                    self._unsynced.add(queue)
        self._log_start = log_start

    def rewrite(
        self, queue: ConsumeQueue, first: QueueOffset, entries: bytes, *, is_start: bool
    ) -> None:
        """Replace damaged entries on disk; with `is_start`, those before them were deleted.

        What has been deleted meanwhile stays deleted.
        """
        with self._disk_lock:
            if self.find(queue.topic, queue.queue_id) is not queue:
                return
            deleted = max(0, queue.start - first)
            queue.rewrite(
                QueueOffset(first + deleted), entries[deleted * ENTRY_BYTES :], is_start=is_start
            )
            self._unsynced.add(queue)

    def delete_topic(self, topic: str, *, before: PhysicalOffset | None = None) -> None:
        """Delete every queue of a topic; its records age out with the log.

        With `before`, those that begin at that offset of the log or above stay.
        """
        with self._disk_lock, self.lock:
            for key in [key for key in self._queues if key[0] == topic]:
                if before is not None and self._queues[key].physical_start >= before:
                    continue
                self._delete(self._queues.pop(key))
            topic_folder = self._folder / topic
            if topic_folder.is_dir() and not any(topic_folder.iterdir()):
                topic_folder.rmdir()
                self._unsynced_folders.add(self._folder)

    def replace_topic(self, topic: str, runs: Iterable[tuple[int, EntryRun]]) -> None:
        """Replace all queues of a topic by others; no reader sees the topic without them."""
        with self._disk_lock, self.lock:
            replaced = [queue for queue in self if queue.topic == topic]
            filled: dict[tuple[str, int], ConsumeQueue] = {}
            for queue_id, run in runs:
                queue = filled.get((topic, queue_id))
                if queue is None:
                    queue = filled[topic, queue_id] = self._empty(topic, queue_id)
                queue.append(QueueOffset(run.first), run.entries)
            others = {key: queue for key, queue in self._queues.items() if key[0] != topic}
            self._queues = others | filled
            # Invariant: the new entries are in memory as yet, and all files are of the old queues.
            for queue in replaced:
                self._delete(queue)
            self._unwritten.update(filled.values())

    def _delete(self, queue: ConsumeQueue) -> None:
        """Delete a queue that is not known any more."""
        self._unwritten.discard(queue)
        self._unsynced.discard(queue)
        queue.delete()
        # Files that are not ours stay, as in the topic's folder.
        if queue.folder.is_dir() and not any(queue.folder.iterdir()):
            queue.folder.rmdir()

    def delete_all(self) -> None:
        """Delete every queue, to rebuild them from the log."""
        for topic in {topic for topic, _ in self._queues}:
            self.delete_topic(topic)

    def close(self) -> None:
        """Close the files."""
        self._files.close()


def _listed(folder: Path | str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)
