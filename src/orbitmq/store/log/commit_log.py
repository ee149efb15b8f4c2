"""The commit log: all messages of all topics, one after the other.

Files of one size, named by the offset of their first byte. A record never crosses files; a blank
record fills the unused end of a file. Only files in use are open and mapped, so that a log of any
length needs few descriptors and mappings.

Threads: one at a time calls `room`, writes there and moves `end` (`Appender`, under its lock);
readers read below `end` at any time; `sync` from one thread; `prepare_next_file`, `touch_ahead` and
`delete_first` from any.
Crash: recovery finds the true end; everything after it is zero bytes once the log is open.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orbitmq.disk import PRIVATE, FileModes, make_folder, sync_folder
from orbitmq.errors import MessageError, StateError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.record.encode import encode_blank
from orbitmq.record.layout import BLANK_BYTES_MIN
from orbitmq.store.files.file_names import file_name, list_files, unfinished_file
from orbitmq.store.files.mapped_file import MappedFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.store.files.descriptor import Descriptor

# Another thread loads pages into memory this far ahead of the writer.
TOUCH_AHEAD_BYTES: Final = 16 * 1024 * 1024
# Files kept open and mapped: those being written, and the most recently read.
_OPEN_FILES_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class LogStretch:
    """Bytes of the log within one file."""

    descriptor: Descriptor
    # Where they are in the file, and how many.
    at: int
    size: int

    def after(self, count: int) -> LogStretch | None:
        """The rest without the first `count` bytes; None if nothing is left."""
        if count >= self.size:
            return None
        return LogStretch(self.descriptor, self.at + count, self.size - count)


class CommitLog:
    """The files of the log, and where it ends."""

    def __init__(
        self,
        folders: list[Path],
        file_bytes: int,
        *,
        read_only_folders: Sequence[Path] = (),
        synced_often: bool = False,
        modes: FileModes = PRIVATE,
    ) -> None:
        self._modes = modes
        self._writable_folders = [folder for folder in folders if folder not in read_only_folders]
        self._folders = sorted({*folders, *read_only_folders})
        # Writable folders that get new files only when all are full.
        self.full_folders: frozenset[Path] = frozenset()
        self.file_bytes = file_bytes
        # Perf: a sync after every message wrote 2 MiB to the disk each time, and 5 KiB with pages
        # loaded singly (benchmarks/broker_send.py, 1 sync producer).
        self._loads_single_pages = synced_often
        # Replaced as a whole, so that readers in other threads never see a gap.
        self._files: tuple[MappedFile, ...] = ()
        # The open files, least recently used first.
        self._recent: OrderedDict[MappedFile, None] = OrderedDict()
        self._recent_lock = threading.Lock()
        self._next_file: MappedFile | None = None
        # Held while the list of files changes, or a file is being created.
        self._files_lock = threading.Lock()
        self._touched = 0
        # The end of the file that is being deleted, and still in the list.
        self._deleting_until = 0
        self._closed = False
        # Whether the newest file that was there when the log was opened has room on the disk.
        self._is_allocated = False
        # Invariant: flushed <= end, and both only grow once the log is recovered.
        self.end = PhysicalOffset(0)
        self.flushed = PhysicalOffset(0)

    # --- opening ------------------------------------------------------------------------------

    def load(self) -> None:
        """List the files on disk; until recovery, `end` counts them all as full."""
        self._files = tuple(
            MappedFile(path, first_offset, self.file_bytes)
            for first_offset, path in list_files(self._folders, self.file_bytes)
        )
        if self._files:
            self.end = PhysicalOffset(self._files[-1].end_offset)
        self.flushed = self.end

    def close(self) -> None:
        """Close the files; a file created ahead is deleted."""
        self._closed = True
        self.drop_next_file()
        for file in self._files:
            file.close()
        self._files = ()

    @property
    def start(self) -> PhysicalOffset:
        """The offset of the oldest byte."""
        files = self._files
        return PhysicalOffset(files[0].first_offset if files else self.end)

    def deleted_until(self, offset: int, since: int) -> int:
        """Up to where retention deleted a record at or after `since`; 0 if it did not."""
        start = max(self.start, self._deleting_until)
        return start if since <= offset < start else 0

    @property
    def files(self) -> list[MappedFile]:
        """The files, oldest first."""
        return list(self._files)

    # --- writing ------------------------------------------------------------------------------

    def room(self, size: int) -> MappedFile:
        """Find the file that has room for `size` bytes at `end`; creates one if needed.

        The caller writes there and then moves `end`; until then nothing is added.
        """
        if size + BLANK_BYTES_MIN > self.file_bytes:
            raise MessageError(
                f"{size} bytes do not fit a log file of {self.file_bytes}",
                hint="send smaller messages or batches, or use larger log files",
            )
        if self._closed:
            raise StateError("the log is closed")
        return self._file_with_room(size)

    @property
    def needs_upkeep(self) -> bool:
        """Whether to create the next file, or to load pages ahead of the writer."""
        if not self._files:
            return False
        file = self._files[-1]
        at = self.end - file.first_offset
        return (self._next_file is None and at * 2 >= self.file_bytes) or (
            self._touched < min(self.end + TOUCH_AHEAD_BYTES // 2, file.end_offset)
        )

    def prepare_next_file(self) -> None:
        """Create the next file before it is needed; for a thread that may wait for the disk."""
        with self._files_lock:
            if self._closed or not self._files or self._next_file is not None:
                return
            file = self._files[-1]
            if (self.end - file.first_offset) * 2 >= self.file_bytes:
                next_file = self._create(file.end_offset)
                next_file.touch(0, TOUCH_AHEAD_BYTES)
                self._next_file = next_file

    def touch_ahead(self) -> None:
        """Load the pages to be written next into memory; for a thread that may wait."""
        if not self._files:
            return
        file = self._files[-1]
        start = max(self._touched, self.end, file.first_offset)
        end = min(self.end + TOUCH_AHEAD_BYTES, file.end_offset)
        if start < end:
            file.touch(start - file.first_offset, end - file.first_offset)
            self._touched = end

    def drop_next_file(self) -> None:
        """Delete the file created ahead."""
        with self._files_lock:
            next_file, self._next_file = self._next_file, None
            if next_file is not None:
                next_file.delete()

    def _file_with_room(self, size: int) -> MappedFile:
        if not self._files:
            with self._files_lock:
                self._files = (self._create(self.end),)
            return self._files[-1]
        file = self._files[-1]
        left = file.end_offset - self.end
        if size + BLANK_BYTES_MIN <= left:
            return file
        with self._files_lock:
            next_file, self._next_file = self._next_file, None
            if next_file is None:
                next_file = self._create(file.end_offset)
            assert next_file.first_offset == file.end_offset
            if left >= BLANK_BYTES_MIN:
                encode_blank(file.view, self.end - file.first_offset, left)
            self._files = (*self._files, next_file)
            self.end = PhysicalOffset(file.end_offset)
        self._keep_open(file)
        return next_file

    def begin_at(self, start: PhysicalOffset) -> None:
        """Let a log without files begin at `start`; its first file is created there."""
        assert not self._files
        self.end = self.flushed = start

    def file_for_copy(self, offset: PhysicalOffset) -> MappedFile:
        """Find the file of the byte after everything received so far; creates one if needed.

        For a copy of another log, whose files need no blank record from us.
        """
        if self._closed:
            raise StateError("the log is closed")
        with self._files_lock:
            if self._files and offset < self._files[-1].end_offset:
                return self._files[-1]
            next_file, self._next_file = self._next_file, None
            if next_file is None:
                next_file = self._create(offset)
            assert next_file.first_offset == offset
            before = self._files[-1:]
            self._files = (*self._files, next_file)
        for file in before:
            self._keep_open(file)
        return next_file

    def _create(self, first_offset: int) -> MappedFile:
        # Compat: with several folders, Java places file i in folder i modulo their number.
        folders = [f for f in self._writable_folders if f not in self.full_folders]
        folders = folders or self._writable_folders
        folder = folders[first_offset // self.file_bytes % len(folders)]
        make_folder(folder, self._modes)
        file = MappedFile.create(
            folder / file_name(first_offset), first_offset, self.file_bytes, self._modes
        )
        if self._loads_single_pages:
            file.load_pages_singly(0)
        return file

    # --- reading ------------------------------------------------------------------------------

    def file_at(self, offset: int) -> MappedFile | None:
        """Find the file that holds an offset; None if it was deleted or is not written yet."""
        files = self._files
        index = (offset - files[0].first_offset) // self.file_bytes if files else -1
        if not 0 <= index < len(files):
            return None
        file = files[index]
        if index < len(files) - 1:
            self._keep_open(file)
        return file

    def newest_view(self) -> tuple[memoryview | None, int]:
        """The bytes of the newest file, if it is mapped, and its first offset.

        For reads near the end: they wait for no page and need no system call.
        """
        file = self._files[-1] if self._files else None
        if file is None or not file.is_mapped:
            return None, 0
        return file.view, file.first_offset

    def pread(self, offset: int, size: int) -> bytes | None:
        """Read bytes without the mapping; None if the log does not have them."""
        file = self._file_holding(offset, size)
        if file is None:
            return None
        content = file.pread(offset - file.first_offset, size)
        return content if len(content) == size else None

    def stretch_at(self, offset: int, end: int, size_max: int) -> LogStretch | None:
        """Bytes from `offset` on, in one file and below `end`; None if the log has none there."""
        file = self.file_at(offset) if offset < end else None
        if file is None:
            return None
        size = min(end, file.end_offset) - offset
        try:
            return LogStretch(file.opened(), offset - file.first_offset, min(size, size_max))
        except (FileNotFoundError, StateError):
            # Retention has deleted it meanwhile.
            return None

    def pread_nowait(self, offset: int, size: int) -> bytearray | None:
        """Read bytes as `pread` does; BlockingIOError if it would wait for the disk."""
        file = self._file_holding(offset, size)
        return file.pread_nowait(offset - file.first_offset, size) if file is not None else None

    def _file_holding(self, offset: int, size: int) -> MappedFile | None:
        if size <= 0 or offset + size > self.end:
            return None
        file = self.file_at(offset)
        return file if file is not None and offset + size <= file.end_offset else None

    def _keep_open(self, file: MappedFile) -> None:
        """Note that a file is in use, and release the least recently used one."""
        with self._recent_lock:
            self._recent[file] = None
            self._recent.move_to_end(file)
            for other in list(self._recent)[: max(0, len(self._recent) - _OPEN_FILES_MAX)]:
                # A file with bytes not yet on disk keeps its descriptor, which reports failures.
                if other.end_offset <= self.flushed:
                    del self._recent[other]
                    other.release()

    # --- durability ---------------------------------------------------------------------------

    def sync(self) -> PhysicalOffset:
        """Put everything appended before this call on disk; return the flushed offset."""
        end = self.end
        if end > self.flushed:
            for file in self._files_between(self.flushed, end):
                file.sync()
            self.flushed = end
        return self.flushed

    def _files_between(self, low: int, high: int) -> list[MappedFile]:
        return [file for file in self._files if file.end_offset > low and file.first_offset < high]

    # --- recovery and retention ---------------------------------------------------------------

    def cut(self, end: PhysicalOffset, *, flushed: PhysicalOffset) -> None:
        """Cut the log at `end`: zero the rest of its file, sync, and delete later files.

        A stale record has a valid checksum at its old position; if it stayed, it could line up
        with what is appended next and reappear after another crash. Bytes above `flushed` are
        written again first, since the system may wrongly count them as written.
        """
        kept, dropped = list(self._files), list[MappedFile]()
        # A file that begins at the end is empty: a killed broker had created it ahead.
        while len(kept) > 1 and kept[-1].first_offset >= end:
            dropped.append(kept.pop())
        if kept:
            kept[-1].clear(end - kept[-1].first_offset)
            if self._loads_single_pages:
                kept[-1].load_pages_singly(end - kept[-1].first_offset)
        for file in kept:
            if file.end_offset > flushed:
                first = file.first_offset
                file.rewrite(max(flushed - first, 0), min(end - first, self.file_bytes))
                file.sync()
        unfinished = unfinished_file(self._folders, self.file_bytes)
        for file in dropped:
            file.delete()
        if unfinished is not None:
            unfinished.unlink()
        # A killed process may not have synced the name of a file it created.
        for folder in self._folders:
            if folder.is_dir():
                sync_folder(folder)
                sync_folder(folder.parent)
        self._files = tuple(kept)
        self.end = self.flushed = end

    def allocate_newest(self) -> None:
        """Give the file being written its room on the disk; Java leaves it sparse.

        Nothing may be appended before: without room, writing to the mapping kills the process.
        """
        if self._files and not self._is_allocated:
            self._files[-1].allocate()
        self._is_allocated = True

    def delete_first(self) -> PhysicalOffset:
        """Delete the oldest file, but never the only one; returns the new start of the log."""
        with self._files_lock:
            if len(self._files) < 2:
                raise StateError("cannot delete the only file of the log")
            file, *others = self._files
            # Invariant: files are deleted in order, on disk too, and none after one that cannot be
            # deleted: a gap would look like a lost file.
            self._deleting_until = file.end_offset
            try:
                file.delete()
                sync_folder(file.path.parent)
            except OSError:
                self._deleting_until = 0
                raise
            self._files = tuple(others)
        with self._recent_lock:
            self._recent.pop(file, None)
        return self.start
