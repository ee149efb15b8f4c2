"""The entries of one queue that are on disk, opened read-only.

The file size is taken from the files themselves. Entries are written in order, so a binary search
finds where they end in a file.

Threads: any. Crash: nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from orbitmq.errors import StoreDamagedError, StoreFormatError
from orbitmq.model.queues import QueueOffset
from orbitmq.store.files.file_names import file_name, offset_of
from orbitmq.store.files.open_files import OpenFiles
from orbitmq.store.index.consume_queue import ENTRY, ENTRY_BYTES
from orbitmq.store.index.entry_search import end_where, start_where

# The record size in a filler: an entry before the first real one of its queue.
FILLER_RECORD_BYTES: Final = 0x7FFFFFFF
# Entries per read.
_READ_ENTRIES: Final = 32_768

Entry = tuple[int, int, int]


class ReadOnlyQueue:
    """One queue as of opening."""

    def __init__(self, folder: Path, open_files: OpenFiles) -> None:
        self.folder = folder
        self._open_files = open_files
        # Perf: planning a scan reads thousands of single entries; a path costs more than a read.
        self._paths: dict[int, Path] = {}
        self.strange_files: list[Path] = []
        self.file_bytes = 0
        self.file_offsets = self._list_files()
        self.first = QueueOffset(self.file_offsets[0] // ENTRY_BYTES if self.file_offsets else 0)
        self.end = self._find_end()

    def _list_files(self) -> list[int]:
        sizes: dict[int, int] = {}
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            offset = offset_of(path)
            if offset is None or path.is_dir():
                self.strange_files.append(path)
                continue
            try:
                sizes[offset] = path.stat().st_size
                self._paths[offset] = path
            except FileNotFoundError:
                # Deleted by retention since the listing.
                continue
        offsets = sorted(offset for offset, size in sizes.items() if size)
        if not offsets:
            return []
        self.file_bytes = sizes[offsets[0]]
        for offset in offsets:
            size = sizes[offset]
            if size != self.file_bytes or size % ENTRY_BYTES or offset % self.file_bytes:
                raise StoreFormatError(
                    f"{self.folder / file_name(offset)} has {size} bytes and does not fit a queue "
                    f"with files of {self.file_bytes} bytes",
                    hint="all files of a queue have one size, a multiple of 20; to rebuild queues "
                    "from the log, run: orbitmq store rebuild",
                )
        return offsets

    def _find_end(self) -> QueueOffset:
        for offset in reversed(self.file_offsets):
            first = offset // ENTRY_BYTES
            if self.is_written(first):
                end = first + self.file_bytes // ENTRY_BYTES
                return QueueOffset(end_where(self._pread, any, first, end))
        return self.first

    def is_written(self, number: int) -> bool:
        """Whether an entry was ever written there; fillers count."""
        return any(self._pread(number, 1))

    def entry(self, number: int) -> Entry:
        """One entry: physical offset, record bytes, tag hash."""
        content = self._pread(number, 1)
        if len(content) < ENTRY_BYTES:
            raise self._missing(number)
        physical_offset, record_bytes, tag_hash = ENTRY.unpack(content)
        return physical_offset, record_bytes, tag_hash

    def entries(self, first: int, count: int) -> bytes:
        """Entries from `first` on, at most `count` and not beyond the end of a file."""
        count = min(count, self.end - first, _READ_ENTRIES)
        if count <= 0:
            return b""
        content = self._pread(first, count)
        if not content:
            raise self._missing(first)
        return content[: len(content) // ENTRY_BYTES * ENTRY_BYTES]

    def first_from(self, physical_offset: int) -> QueueOffset:
        """The number of the first entry whose record starts at or after a physical offset."""
        return QueueOffset(
            start_where(
                self.entries,
                lambda entry: (
                    entry[1] != FILLER_RECORD_BYTES and not 0 <= entry[0] < physical_offset
                ),
                self.first,
                self.end,
            )
        )

    def _pread(self, number: int, count: int) -> bytes:
        return read_entries(self._open_files, self._paths.get, self.file_bytes, number, count)

    def _missing(self, number: int) -> StoreDamagedError:
        at = number * ENTRY_BYTES // self.file_bytes * self.file_bytes if self.file_bytes else 0
        return StoreDamagedError(
            f"cannot read entry {number} of {self.folder}: {file_name(at)} is missing or short",
            hint="if a broker runs, its retention may have deleted the file: try again; else run: "
            "orbitmq store rebuild",
        )


def read_entries(
    open_files: OpenFiles,
    path_of: Callable[[int], Path | None],
    file_bytes: int,
    first: int,
    count: int,
) -> bytes:
    """Read entries of a queue, not beyond the end of a file; empty if the file does not exist.

    `path_of` returns the path of the file that starts at a byte of the queue.
    """
    if not file_bytes:
        return b""
    at = first * ENTRY_BYTES
    in_file = at % file_bytes
    path = path_of(at - in_file)
    if path is None:
        return b""
    return open_files.pread(path, min(count * ENTRY_BYTES, file_bytes - in_file), in_file)


def begins_at(entry: Entry) -> int:
    """Where the record of an entry starts; -1 for a filler."""
    return -1 if entry[1] == FILLER_RECORD_BYTES else entry[0]


def ends_at(entry: Entry) -> int:
    """Where the record of an entry ends; -1 for a filler."""
    return -1 if begins_at(entry) < 0 else entry[0] + entry[1]


def first_where(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Binary search: the first number where `holds` is true; it stays true up to `high`."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
