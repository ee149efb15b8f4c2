"""One queue of one topic: entries that point into the commit log.

File layout, big-endian, entry n at byte n * 20 of the queue:
    8  physical offset   where the record starts in the commit log
    4  record bytes      size of the record
    8  tag hash          to filter before the record is read; a due time in delay queues

Files have one size, named by their first byte in the queue, and are created sparse at full size.

Threads: `append` by the dispatcher, under the memory lock of `ConsumeQueues`; everything that
writes to disk under its disk lock; any number of readers, without a lock.
Crash: no checksum; entries of records beyond a known point are cut on load and rebuilt.
"""

from __future__ import annotations

import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orbitmq.errors import StoreFormatError
from orbitmq.model.queues import PhysicalOffset, QueueOffset
from orbitmq.store.files.file_names import file_name, is_unfinished, offset_of, refuse_folder
from orbitmq.store.index.entry_search import (
    end_where,
    first_not,
    in_blocks,
    is_zero,
    start_where,
)

if TYPE_CHECKING:
    from threading import RLock

    from orbitmq.store.files.open_files import OpenFiles
    from orbitmq.store.index.entry_search import Entry

ENTRY: Final = struct.Struct(">qiq")
ENTRY_BYTES: Final = ENTRY.size
# Compat: fills the entries before the first real one if a queue does not begin at 0.
_FILLER_BYTES: Final = 0x7FFFFFFF
FILLER: Final = ENTRY.pack(0, _FILLER_BYTES, 0)
# Compat: queues of a Java broker may have extensions here. Then a tag hash below the limit is an
# address in them.
EXTENSION_FOLDER: Final = "consumequeue_ext"
EXTENSION_BELOW: Final = -(2**31)
# So many entries that loading cuts off are counted.
_CUT_MAX: Final = 64
# So many entries after the end, about a page, are looked at before any are cleared.
_CLEAR_MAX: Final = 256


def decode_entry(content: bytes) -> tuple[int, int, int] | None:
    """Decode an entry: physical offset, record bytes, tag hash; None if there are no bytes."""
    if not content:
        return None
    physical_offset, record_bytes, tag_hash = ENTRY.unpack(content)
    return physical_offset, record_bytes, tag_hash


def _written_count(content: bytes) -> int:
    """How many entries there are up to the last byte that is not zero."""
    return -(-len(content.rstrip(bytes(1))) // ENTRY_BYTES)


class ConsumeQueue:
    """The entries of one queue: those on disk, and the newest ones still in memory."""

    __slots__ = (
        "_file_bytes",
        "_files",
        "_filled_from",
        "_first_file",
        "_folder",
        "_last_path",
        "_lock",
        "_tail",
        "_unsynced",
        "_unsynced_names",
        "cut_until",
        "end",
        "max_physical_end",
        "min_physical_offset",
        "opened_end",
        "queue_id",
        "start",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        folder: Path,
        file_bytes: int,
        files: OpenFiles,
        lock: RLock,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self._folder = folder
        self._last_path = -1, folder
        self._file_bytes = file_bytes
        self._files = files
        self._lock = lock
        # Invariant: start <= end, and the tail ends at `end`.
        self.start = QueueOffset(0)
        self.end = QueueOffset(0)
        self.max_physical_end = PhysicalOffset(0)
        # Invariant: a sound entry from `start` on leads here or further.
        self.min_physical_offset = PhysicalOffset(0)
        # The end when the store was opened: what is stored since was not there before.
        self.opened_end = QueueOffset(0)
        # Where the entries ended that loading cut off; the queue may have ended there.
        self.cut_until = QueueOffset(0)
        # The newest entries, and the number of the first of them: replaced together, so that
        # readers in other threads always see a matching pair.
        self._tail = (0, bytearray())
        # Where unwritten fillers begin; None if there are none.
        self._filled_from: int | None = None
        self._unsynced: set[int] = set()
        self._unsynced_names = False
        self._first_file = 0

    @property
    def entries_per_file(self) -> int:
        """How many entries a file holds."""
        return self._file_bytes // ENTRY_BYTES

    # --- loading ------------------------------------------------------------------------------

    def load(self, good_until: PhysicalOffset | None = None, *, all_written: bool = False) -> str:
        """Find the last entry on disk; returns why the files are doubtful, or an empty text.

        With `good_until`, only entries of records below it count as written, and everything
        after them is cleared. With `all_written`, every entry that is not zero bytes counts.
        """
        firsts, doubt = self._file_offsets()
        if doubt or not firsts:
            return doubt
        self._first_file = firsts[0]
        low = firsts[0] // ENTRY_BYTES

        def is_good(entry: Entry) -> bool:
            physical_offset, record_bytes, _ = entry
            if all_written:
                return any(entry)
            if record_bytes <= 0 or physical_offset < 0:
                return False
            return (
                good_until is None
                or record_bytes == _FILLER_BYTES
                or physical_offset + record_bytes <= good_until
            )

        # Invariant: entries are written in order, and all that were synced are there, so the good
        # ones come first, and fillers before those.
        read = in_blocks(self._on_disk, low)
        high = self._written_until(firsts[-1])
        end = end_where(read, is_good, low, high)
        first = end_where(read, lambda entry: entry[1] == _FILLER_BYTES, low, end)
        self._set_range(first, end, decode_entry(read(end - 1, 1)) if end > first else None)
        if good_until is not None:
            self.cut_until = QueueOffset(end + _written_count(read(end, _CUT_MAX)))
            is_clear = 0 < high - end <= _CLEAR_MAX and is_zero(read(end, high - end))
            self._clear_after(end, firsts, clear_until=high if is_clear else end)
        return ""

    def _written_until(self, last_file: int) -> int:
        """An entry number after the last one that can be on disk."""
        # Perf: files are created sparse and written from their start, so that a queue with few
        # entries is found by half as many reads (benchmarks/broker_start.py).
        hole = self._files.first_hole(self._path(last_file))
        return (last_file + min(hole + ENTRY_BYTES - 1, self._file_bytes)) // ENTRY_BYTES

    def _set_range(self, start: int, end: int, last: Entry | None) -> None:
        self.start, self.end = QueueOffset(start), QueueOffset(end)
        self._tail = (end, bytearray())
        self.max_physical_end = PhysicalOffset(last[0] + last[1] if last else 0)

    def _file_offsets(self) -> tuple[list[int], str]:
        """List the first bytes of the files, and say what is wrong with them."""
        found: list[int] = []
        paths = sorted(self._folder.iterdir()) if self._folder.is_dir() else []
        for path in paths:
            offset = offset_of(path)
            if offset is None:
                raise StoreFormatError(
                    f"{path} is not a file of a consume queue", hint="move it away"
                )
            status = path.stat()
            if stat.S_ISDIR(status.st_mode):
                refuse_folder(path)
            size = status.st_size
            if size < self._file_bytes and is_unfinished(path, self._file_bytes):
                if path != paths[-1]:
                    return found, f"{path} was never finished"
                # Its creation was cut short, so it has no synced entries.
                self._delete_file(offset)
                continue
            if size != self._file_bytes or offset % self._file_bytes:
                return found, f"{path} has {size} bytes, not {self._file_bytes}"
            if found and offset != found[-1] + self._file_bytes:
                return found, f"a file is missing before {path}"
            found.append(offset)
        return found, ""

    def _path(self, first: int) -> Path:
        """The file whose first byte is `first`."""
        # Perf: making and hashing a path takes 7 us, half the time of finding an entry
        # (benchmarks/broker_pull.py), and readers mostly stay in one file.
        known, path = self._last_path
        if known != first:
            path = self._folder / file_name(first)
            self._last_path = first, path
        return path

    def _on_disk(self, number: int, count: int) -> bytes:
        """Read entries of one file from disk, even beyond the end of the queue."""
        at = number * ENTRY_BYTES
        first = at // self._file_bytes * self._file_bytes
        count_bytes = min(count * ENTRY_BYTES, first + self._file_bytes - at)
        return self._files.pread(self._path(first), count_bytes, at - first)

    def _clear_after(self, end: int, firsts: list[int], *, clear_until: int) -> None:
        for first in firsts:
            if first + self._file_bytes <= end * ENTRY_BYTES:
                continue
            if first >= end * ENTRY_BYTES and first != firsts[0]:
                self._delete_file(first)
                continue
            at = max(0, clear_until * ENTRY_BYTES - first)
            if self._files.clear(self._path(first), at, self._file_bytes):
                self._unsynced.add(first)

    # --- writing ------------------------------------------------------------------------------

    def append(self, first: QueueOffset, entries: bytes | bytearray) -> int:
        """Add entries whose first has number `first`; return how many were new.

        Entries of known records are skipped, by physical offset: a record is never hidden because
        of its number. There are no gaps, as in RocketMQ: an empty queue begins at `first`, any
        other continues at its end.
        """
        known = self.max_physical_end
        last_offset, last_bytes, _ = ENTRY.unpack_from(entries, len(entries) - ENTRY_BYTES)
        if last_offset < known:
            return 0
        if ENTRY.unpack_from(entries)[0] < known:
            skipped = first_not(
                lambda number: ENTRY.unpack_from(entries, number * ENTRY_BYTES)[0] < known,
                0,
                len(entries) // ENTRY_BYTES,
            )
            entries = entries[skipped * ENTRY_BYTES :]
            first = QueueOffset(first + skipped)
        if self.end == self.start:
            self.min_physical_offset = PhysicalOffset(ENTRY.unpack_from(entries)[0])
            if self.end == 0 and first > 0:
                self._begin_at(first)
        self._tail[1].extend(entries)
        self.max_physical_end = PhysicalOffset(last_offset + last_bytes)
        count = len(entries) // ENTRY_BYTES
        # Invariant: readers check `end` first, so it moves after the entries are in place.
        self.end = QueueOffset(self.end + count)
        return count

    def _begin_at(self, first: QueueOffset) -> None:
        at = first * ENTRY_BYTES
        self._first_file = at // self._file_bytes * self._file_bytes
        self._filled_from = self._first_file if at > self._first_file else None
        self._tail = (first, bytearray())
        self.start = self.end = first

    @property
    def unwritten_bytes(self) -> int:
        """Bytes of entries that are only in memory."""
        return len(self._tail[1])

    def write(self) -> None:
        """Write the entries in memory to the files; they stay readable throughout."""
        first, tail = self._tail
        content = bytes(tail)
        if not content:
            return
        if self._filled_from is not None:
            fillers = first - self._filled_from // ENTRY_BYTES
            self._write(self._filled_from, FILLER * fillers)
            self._filled_from = None
        self._write(first * ENTRY_BYTES, content)
        with self._lock:
            self._tail = (first + len(content) // ENTRY_BYTES, tail[len(content) :])

    def rewrite(self, first: QueueOffset, entries: bytes, *, is_start: bool) -> None:
        """Replace damaged entries on disk; with `is_start`, those before them were deleted."""
        if is_start:
            self.start = max(self.start, first)
        # Entries in memory are not damaged.
        self._write(first * ENTRY_BYTES, entries[: max(0, self._tail[0] - first) * ENTRY_BYTES])

    def sync(self) -> bool:
        """Sync written entries; returns whether the folder needs a sync too."""
        while self._unsynced:
            first = next(iter(self._unsynced))
            self._files.sync(self._path(first))
            self._unsynced.discard(first)
        names, self._unsynced_names = self._unsynced_names, False
        return names

    def request_name_sync(self) -> None:
        """Sync the names of the files with the next sync."""
        self._unsynced_names = True

    @property
    def needs_sync(self) -> bool:
        """Whether a sync has something to do."""
        return bool(self._unsynced) or self._unsynced_names

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return self._folder

    def _write(self, at: int, content: bytes) -> None:
        while content:
            first = at // self._file_bytes * self._file_bytes
            room = first + self._file_bytes - at
            part, content = content[:room], content[room:]
            path = self._path(first)
            made = self._files.pwrite(path, part, at - first, file_bytes=self._file_bytes)
            self._unsynced_names = self._unsynced_names or made
            self._unsynced.add(first)
            at += len(part)

    # --- reading ------------------------------------------------------------------------------

    @property
    def physical_start(self) -> PhysicalOffset:
        """Where its oldest entry leads; if it has none, where the newest one's record ended."""
        oldest = self.entry(self.start)
        return self.max_physical_end if oldest is None else PhysicalOffset(oldest[0])

    def entry(self, number: QueueOffset) -> tuple[int, int, int] | None:
        """Read one entry: physical offset, record bytes, tag hash; None if it does not exist."""
        return decode_entry(self.entries(number, 1))

    def entries(self, first: QueueOffset, count: int) -> bytes:
        """Read up to `count` entries from `first`, within one file and below the end."""
        count = min(count, self.end - first, self.entries_per_file - first % self.entries_per_file)
        if count <= 0 or first < self.start:
            return b""
        tail_first, tail = self._tail
        if first >= tail_first:
            at = (first - tail_first) * ENTRY_BYTES
            return bytes(tail[at : at + count * ENTRY_BYTES])
        at = first * ENTRY_BYTES
        file_first = at // self._file_bytes * self._file_bytes
        on_disk = min(count, tail_first - first)
        path = self._path(file_first)
        content = self._files.pread(path, on_disk * ENTRY_BYTES, at - file_first)
        if on_disk < count and len(content) == on_disk * ENTRY_BYTES:
            content += tail[: (count - on_disk) * ENTRY_BYTES]
        return content

    # --- recovery and retention ---------------------------------------------------------------

    def raise_start(self, log_start: PhysicalOffset) -> None:
        """Move the start past entries whose records were deleted, and delete emptied files.

        The queue keeps its end, even if no entry is left.
        """
        if not log_start:
            return

        def read(number: int, count: int) -> bytes:
            return self.entries(QueueOffset(number), count)

        self.start = QueueOffset(
            start_where(
                in_blocks(read, self.start),
                lambda entry: not 0 <= entry[0] < log_start,
                self.start,
                self.end,
            )
        )
        self.min_physical_offset = max(log_start, self.min_physical_offset)
        last_file = max(0, self.end * ENTRY_BYTES - 1) // self._file_bytes * self._file_bytes
        while (
            self._first_file + self._file_bytes <= self.start * ENTRY_BYTES
            and self._first_file < last_file
            and self._first_file + self._file_bytes <= self._tail[0] * ENTRY_BYTES
        ):
            self._delete_file(self._first_file)
            self._first_file += self._file_bytes

    def drop(self) -> None:
        """Empty the queue; its files stay until `delete`."""
        self.start = self.end = QueueOffset(0)
        self._tail = (0, bytearray())
        self._filled_from = None
        self.max_physical_end = self.min_physical_offset = PhysicalOffset(0)
        self._first_file = 0

    def delete(self) -> None:
        """Delete the queue's entries and files."""
        # Invariant: readers that miss a file see that its entries are no longer in the queue.
        self.drop()
        for path in list(self._folder.iterdir()) if self._folder.is_dir() else ():
            offset = offset_of(path)
            if offset is not None:
                self._delete_file(offset)

    def _delete_file(self, first: int) -> None:
        path = self._path(first)
        self._files.forget(path)
        self._unsynced.discard(first)
        self._unsynced_names = True
        path.unlink(missing_ok=True)
