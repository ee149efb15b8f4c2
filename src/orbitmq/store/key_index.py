"""One file of the key index: a hash table from message keys to the commit log.

File layout, big-endian:
    40  header     8 begin time, 8 end time, 8 begin offset, 8 end offset, 4 slots used,
                   4 next entry (the first entry has number 1)
    4 per slot     number of the newest entry whose hash falls into the slot, 0 for none
    20 per entry   4 key hash, 8 physical offset, 4 seconds since begin time, 4 previous entry

Only hashes are kept: whoever asks must compare the keys of what is found.

Threads: one writer (the dispatcher); readers any time, since an entry is complete before its slot
points at it.
Crash: no checksum. Entries are only ever added, so those that were synced are there, and header
and slots are made again from them; a file of which that is not known is deleted and built again.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orbitmq.errors import StoreFormatError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.record.scan import hash_key
from orbitmq.store.mapped_file import MappedFile

if TYPE_CHECKING:
    from collections.abc import Callable

HEADER: Final = struct.Struct(">qqqqii")
HEADER_BYTES: Final = HEADER.size
_INT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">iqii")
SLOT_BYTES: Final = 4
ENTRY_BYTES: Final = _ENTRY.size
_INT_MAX: Final = 2**31 - 1


def key_hash(topic: str, key: str) -> int:
    """Hash a key of a topic as RocketMQ does; never negative."""
    return hash_key(topic.encode(), key.encode(errors="surrogatepass"))


class KeyIndex:
    """One file of the index."""

    def __init__(self, file: MappedFile, slots: int, entries_max: int) -> None:
        self._file = file
        self._view = file.view
        self.begin_ms: int
        self.end_ms: int
        self.begin_offset: int
        self.end_offset: int
        self._slots_used: int
        self.next: int
        self._slots = slots
        self._entries_max = entries_max
        self._entries_at = HEADER_BYTES + slots * SLOT_BYTES
        (
            self.begin_ms,
            self.end_ms,
            self.begin_offset,
            self.end_offset,
            self._slots_used,
            self.next,
        ) = HEADER.unpack_from(self._view)
        # Compat: a fresh file says 0 and means 1.
        self.next = min(max(self.next, 1), entries_max)

    @staticmethod
    def file_bytes(slots: int, entries_max: int) -> int:
        """How large a file of so many slots and entries is."""
        return HEADER_BYTES + slots * SLOT_BYTES + entries_max * ENTRY_BYTES

    @classmethod
    def create(cls, path: Path, slots: int, entries_max: int) -> KeyIndex:
        """Make an empty file."""
        file = MappedFile.create(path, 0, cls.file_bytes(slots, entries_max))
        return cls(file, slots, entries_max)

    @classmethod
    def open(cls, path: Path, slots: int, entries_max: int) -> KeyIndex:
        """Open a file that is there."""
        wanted = cls.file_bytes(slots, entries_max)
        size = path.stat().st_size
        if size != wanted:
            raise StoreFormatError(
                f"{path} has {size} bytes, not {wanted}",
                hint="open the store with the maxHashSlotNum and maxIndexNum it was written with",
            )
        file = MappedFile(path, 0, wanted)
        file.allocate()
        return cls(file, slots, entries_max)

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._file.path

    @property
    def name(self) -> int:
        """The name as a number; newer files have higher ones."""
        return int(self._file.path.name)

    @property
    def is_full(self) -> bool:
        """Whether another entry needs another file."""
        return self.next >= self._entries_max

    @property
    def is_empty(self) -> bool:
        """Whether nothing was put yet."""
        return self.next <= 1

    # --- writing ------------------------------------------------------------------------------

    def continue_from(self, previous: KeyIndex) -> None:
        """Begin where the file before ended."""
        self.begin_ms = self.end_ms = previous.end_ms
        self.begin_offset = self.end_offset = previous.end_offset
        self._write_header()

    def put(self, hashed: int, offset: PhysicalOffset, store_ms: int) -> None:
        """Add one key of a message; the file has room for it."""
        slot_at = HEADER_BYTES + hashed % self._slots * SLOT_BYTES
        (previous,) = _INT.unpack_from(self._view, slot_at)
        if previous <= 0 or previous >= self.next:
            previous = 0
            self._slots_used += 1
        seconds = (store_ms - self.begin_ms) // 1000 if self.begin_ms > 0 else 0
        _ENTRY.pack_into(
            self._view,
            self._entries_at + self.next * ENTRY_BYTES,
            hashed,
            offset,
            min(max(seconds, 0), _INT_MAX),
            previous,
        )
        _INT.pack_into(self._view, slot_at, self.next)
        if self.next <= 1:
            self.begin_ms, self.begin_offset = store_ms, offset
        self.end_ms, self.end_offset = store_ms, offset
        self.next += 1
        self._write_header()

    def _write_header(self) -> None:
        HEADER.pack_into(
            self._view,
            0,
            self.begin_ms,
            self.end_ms,
            self.begin_offset,
            self.end_offset,
            self._slots_used,
            self.next,
        )

    # --- recovery -----------------------------------------------------------------------------

    def restore(self, next_entry: int, store_ms_at: Callable[[int], int | None]) -> bool:
        """Make header and slots again from the entries below a number, all known on disk.

        Returns False when they do not look it; the file must then be built again from the log.
        """
        if not 1 < next_entry <= self._entries_max:
            return False
        slots = array("i", bytes(self._slots * SLOT_BYTES))
        assert slots.itemsize == SLOT_BYTES
        used, offset, last_seconds = 0, -1, 0
        entries = self._view[
            self._entries_at + ENTRY_BYTES : self._entries_at + next_entry * ENTRY_BYTES
        ]
        for number, (hashed, entry_offset, seconds, previous) in enumerate(
            _ENTRY.iter_unpack(entries), 1
        ):
            slot = hashed % self._slots
            if hashed < 0 or entry_offset < offset or seconds < 0 or previous != slots[slot]:
                return False
            used += slots[slot] == 0
            slots[slot] = number
            offset, last_seconds = entry_offset, seconds
        first_offset = _ENTRY.unpack_from(entries)[1]
        begin_ms, end_ms = store_ms_at(first_offset), store_ms_at(offset)
        # Records may be deleted already; then the header, synced with them, must do.
        self.begin_ms = begin_ms if begin_ms is not None else self.begin_ms
        self.end_ms = end_ms if end_ms is not None else self.begin_ms + last_seconds * 1000 + 999
        self.begin_offset, self.end_offset = first_offset, offset
        self._slots_used, self.next = used, next_entry
        slots.byteswap()
        self._view[HEADER_BYTES : self._entries_at] = memoryview(slots).cast("B")
        self._write_header()
        return True

    # --- reading ------------------------------------------------------------------------------

    def find(self, hashed: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Find physical offsets by key hash and time, newest first; times are whole seconds."""
        view = self._view
        if not view:
            return
        (number,) = _INT.unpack_from(view, HEADER_BYTES + hashed % self._slots * SLOT_BYTES)
        # The chain of a slot is finite: each entry points at an older one. The newest may not be
        # counted yet, though it is complete.
        while 0 < number <= min(self.next, self._entries_max - 1):
            entry_hash, offset, seconds, previous = _ENTRY.unpack_from(
                view, self._entries_at + number * ENTRY_BYTES
            )
            # Compat: the first entry's seconds count from the end of the file before.
            entry_ms = self.begin_ms + (seconds * 1000 if number > 1 else 0)
            if seconds < 0 or entry_ms + 999 < begin_ms:
                return
            if entry_hash == hashed and entry_ms <= end_ms:
                yield offset
            if previous >= number:
                return
            number = previous

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Whether messages of the time range may be in the file."""
        return self.begin_ms <= end_ms and self.end_ms >= begin_ms

    def sync(self) -> None:
        """Put the file on disk."""
        self._file.sync()

    def close(self) -> None:
        """Let the file go."""
        self._view = memoryview(b"")
        self._file.close()

    def delete(self) -> None:
        """Remove the file; who reads it now reads on."""
        self._view = memoryview(b"")
        self._file.delete()
