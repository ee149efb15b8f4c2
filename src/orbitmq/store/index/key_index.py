"""One file of the key index: from keys of messages to offsets in the log.

`key_table` has the layout. Only hashes are stored: callers must compare the keys of the messages
found. Only the mapped header says how far the file is filled.

Threads: one writer (the dispatcher); readers any time, since an entry is complete before its slot
points at it.
Crash: no checksum. Entries are only added, so synced ones are there, and header and slots are
rebuilt from them; a file whose synced entries are not known is deleted and rebuilt from the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.disk import PRIVATE, FileModes
from orbitmq.record.scan import hash_key
from orbitmq.store.files.mapped_file import MappedFile
from orbitmq.store.index.fast_forms import chain_entries, put_keys
from orbitmq.store.index.key_table import (
    ENTRY,
    ENTRY_BYTES,
    HEADER,
    HEADER_BYTES,
    SLOT,
    SLOT_BYTES,
    next_entry,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class IndexHeader(NamedTuple):
    """The header of a file."""

    begin_ms: int
    end_ms: int
    begin_offset: int
    end_offset: int
    slots_used: int
    # As written; see `next_entry`.
    written_next: int

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Whether messages of the time range may be in the file."""
        return self.begin_ms <= end_ms and self.end_ms >= begin_ms


def key_hash(topic: str, key: str) -> int:
    """Hash a key of a topic as RocketMQ does; never negative."""
    return hash_key(topic.encode(), key.encode(errors="surrogatepass"))


class KeyIndex:
    """One file of the index."""

    def __init__(self, file: MappedFile, slots: int, entries_max: int) -> None:
        self._file = file
        self._view = file.view
        self._slots = slots
        self._entries_max = entries_max
        self._entries_at = HEADER_BYTES + slots * SLOT_BYTES

    @staticmethod
    def file_bytes(slots: int, entries_max: int) -> int:
        """The size of a file with this many slots and entries."""
        return HEADER_BYTES + slots * SLOT_BYTES + entries_max * ENTRY_BYTES

    @classmethod
    def create(
        cls, path: Path, slots: int, entries_max: int, modes: FileModes = PRIVATE
    ) -> KeyIndex:
        """Create an empty file."""
        file = MappedFile.create(path, 0, cls.file_bytes(slots, entries_max), modes)
        return cls(file, slots, entries_max)

    @classmethod
    def open(cls, path: Path, slots: int, entries_max: int) -> KeyIndex:
        """Open an existing file."""
        file = MappedFile(path, 0, cls.file_bytes(slots, entries_max))
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
    def header(self) -> IndexHeader:
        """How far the file is filled; for a closed file, as it was last."""
        return IndexHeader._make(HEADER.unpack_from(self._view))

    @property
    def begin_ms(self) -> int:
        """When the first message was stored."""
        return self.header.begin_ms

    @property
    def end_ms(self) -> int:
        """When the last message was stored."""
        return self.header.end_ms

    @property
    def end_offset(self) -> int:
        """The physical offset of the last message."""
        return self.header.end_offset

    @property
    def next(self) -> int:
        """The number of the next entry."""
        return next_entry(self.header.written_next, self._entries_max)

    @property
    def is_full(self) -> bool:
        """Whether another entry needs another file."""
        return self.next >= self._entries_max

    @property
    def is_empty(self) -> bool:
        """Whether the file has no entries."""
        return self.next <= 1

    def comes_before(self, other: KeyIndex) -> bool:
        """Whether another file can follow this one, by their headers."""
        here, there = self.header, other.header
        return (
            0 <= here.begin_offset <= here.end_offset <= there.begin_offset <= there.end_offset
            and 0 <= here.begin_ms <= here.end_ms
        )

    def disagreement(self, log_start: int, store_ms_at: Callable[[int], int | None]) -> str:
        """Say how the header differs from the entries and their messages; empty if it does not."""
        if self.is_empty:
            return ""
        header = self.header
        for what, number, offset, header_ms in (
            ("begins", 1, header.begin_offset, header.begin_ms),
            ("ends", self.next - 1, header.end_offset, header.end_ms),
        ):
            found = self._entry(number)[1]
            if found != offset:
                return f"{self.path} {what} at offset {found}, its header says {offset}"
            store_ms = store_ms_at(offset) if offset >= log_start else None
            if store_ms is not None and store_ms != header_ms:
                return f"{self.path} {what} at time {store_ms}, its header says {header_ms}"
        return ""

    # --- writing ------------------------------------------------------------------------------

    def continue_from(self, previous: KeyIndex) -> None:
        """Begin where the previous file ended."""
        before = previous.header
        self._write_header(
            IndexHeader(
                begin_ms=before.end_ms,
                end_ms=before.end_ms,
                begin_offset=before.end_offset,
                end_offset=before.end_offset,
                slots_used=0,
                written_next=1,
            )
        )

    def put(self, keys: bytes | bytearray, at: int) -> int:
        """Add packed keys from byte `at` on, except those of known messages.

        Returns the position of the first key without room, or the end of the keys.
        """
        return put_keys(self._view, self._slots, self._entries_max, keys, at)

    def _write_header(self, header: IndexHeader) -> None:
        HEADER.pack_into(self._view, 0, *header)

    # --- recovery -----------------------------------------------------------------------------

    def restore(self, end: int, store_ms_at: Callable[[int], int | None]) -> bool:
        """Rebuild header and slots from the entries below number `end`, all known to be on disk.

        Returns False if the entries are not valid; then the file must be rebuilt from the log.
        """
        used = chain_entries(self._view, self._slots, self._entries_max, end)
        if used is None:
            return False
        first_offset, last_offset = self._entry(1)[1], self._entry(end - 1)[1]
        begin_ms, end_ms = store_ms_at(first_offset), store_ms_at(last_offset)
        # If the records are deleted already, the header serves, which was synced with the entries.
        begin_ms = begin_ms if begin_ms is not None else self.begin_ms
        if end_ms is None:
            end_ms = begin_ms + self._entry(end - 1)[2] * 1000 + 999
        self._write_header(IndexHeader(begin_ms, end_ms, first_offset, last_offset, used, end))
        return True

    # --- reading ------------------------------------------------------------------------------

    def find(self, hashed: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Find physical offsets by key hash and time, newest first; times are whole seconds."""
        view = self._view
        if len(view) == HEADER_BYTES:
            return  # The file was closed.
        (number,) = SLOT.unpack_from(view, HEADER_BYTES + hashed % self._slots * SLOT_BYTES)
        if number <= 0:
            return
        # Read after the slot, so that at most the newest entry, though complete, is not counted yet.
        filled = self.header
        newest = min(next_entry(filled.written_next, self._entries_max), self._entries_max - 1)
        # The chain of a slot is finite: each entry points at an older one.
        while 0 < number <= newest:
            entry_hash, offset, seconds, previous = ENTRY.unpack_from(
                view, self._entries_at + number * ENTRY_BYTES
            )
            # Compat: the first entry's seconds count from the end of the previous file.
            entry_ms = filled.begin_ms + (seconds * 1000 if number > 1 else 0)
            if seconds < 0 or entry_ms + 999 < begin_ms:
                return
            if entry_hash == hashed and entry_ms <= end_ms:
                yield offset
            if previous >= number:
                return
            number = previous

    def sync(self) -> None:
        """Put the file on disk."""
        self._file.sync()

    def close(self) -> None:
        """Close the file; its header stays readable."""
        self._keep_header()
        self._file.close()

    def delete(self) -> None:
        """Delete the file; readers that are using it can finish."""
        self._keep_header()
        self._file.delete()

    def _keep_header(self) -> None:
        self._view = memoryview(bytes(self._view[:HEADER_BYTES]))

    def _entry(self, number: int) -> tuple[int, int, int, int]:
        hashed, offset, seconds, previous = ENTRY.unpack_from(
            self._view, self._entries_at + number * ENTRY_BYTES
        )
        return hashed, offset, seconds, previous
