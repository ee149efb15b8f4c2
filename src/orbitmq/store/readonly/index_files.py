"""The files of the key index, opened read-only.

`key_table` describes their layout. The file size does not say how many of the bytes are slots, so
the caller does; by default there are four entries per slot, as in RocketMQ.

Threads: any. Crash: nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.errors import StoreFormatError
from orbitmq.store.index.key_table import ENTRY, ENTRY_BYTES, HEADER, HEADER_BYTES, SLOT_BYTES

_NAME_DIGITS: Final = 17
_READ_ENTRIES: Final = 50_000
_ENTRIES_PER_SLOT: Final = 4


class IndexEntry(NamedTuple):
    """One key of one message."""

    key_hash: int
    physical_offset: int
    seconds: int
    previous: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOnlyIndexFile:
    """One file, with its header as of opening."""

    path: Path
    file_bytes: int
    begin_ms: int
    end_ms: int
    begin_offset: int
    end_offset: int
    slots_used: int
    # The number of the next entry; the first is 1.
    next_number: int

    @classmethod
    def open(cls, path: Path) -> ReadOnlyIndexFile:
        """Read the header."""
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            raise StoreFormatError(
                f"{path} has {len(header)} bytes, too few for the header of an index file"
            )
        begin_ms, end_ms, begin_offset, end_offset, slots_used, next_number = HEADER.unpack(header)
        return cls(
            path=path,
            file_bytes=path.stat().st_size,
            begin_ms=begin_ms,
            end_ms=end_ms,
            begin_offset=begin_offset,
            end_offset=end_offset,
            slots_used=slots_used,
            # Compat: a new file contains 0 and means 1.
            next_number=max(next_number, 1),
        )

    def slot_count(self, configured: int | None) -> int:
        """Check the configured number of slots; None assumes four entries per slot."""
        room = self.file_bytes - HEADER_BYTES
        slots = configured or room // (SLOT_BYTES + _ENTRIES_PER_SLOT * ENTRY_BYTES)
        left = room - slots * SLOT_BYTES
        fits = left >= self.next_number * ENTRY_BYTES and left % ENTRY_BYTES == 0
        if not fits or (configured is None and left != slots * _ENTRIES_PER_SLOT * ENTRY_BYTES):
            raise StoreFormatError(
                f"{self.path} of {self.file_bytes} bytes does not have "
                f"{f'{configured} slots' if configured else 'four entries per slot'}",
                hint="set --index-slots to the maxHashSlotNum that it was written with",
            )
        return slots

    def entries(self, slots: int, first: int = 1, end: int | None = None) -> Iterator[IndexEntry]:
        """The entries in the order they were added, or those of a range of numbers."""
        at = HEADER_BYTES + slots * SLOT_BYTES + first * ENTRY_BYTES
        left = (self.next_number if end is None else end) - first
        with self.path.open("rb") as file:
            file.seek(at)
            while left > 0:
                content = file.read(min(left, _READ_ENTRIES) * ENTRY_BYTES)
                count = len(content) // ENTRY_BYTES
                if not count:
                    raise StoreFormatError(f"{self.path} is shorter than its header says")
                left -= count
                for fields in ENTRY.iter_unpack(content[: count * ENTRY_BYTES]):
                    yield IndexEntry(*fields)

    def slot_table(self, slots: int) -> bytes:
        """The number of the newest entry of each slot, four bytes each."""
        with self.path.open("rb") as file:
            file.seek(HEADER_BYTES)
            return file.read(slots * SLOT_BYTES)


def list_index_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """The files of an index, oldest first, and any other files in its folder."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    ours = [path for path in paths if is_index_name(path.name) and path.is_file()]
    return ours, [path for path in paths if path not in set(ours)]


def is_index_name(name: str) -> bool:
    """Whether a name is that of an index file."""
    return len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()
