"""The files of the log, opened read-only.

Files are read with `pread`, never mapped, so that a file that shrinks or disappears during a read
causes an error and not a signal. The file size is taken from the files themselves.

Threads: any. Crash: nothing is written. A file that retention deletes stays readable while it is
among the most recently used; after that, reads raise `RecordsDeletedError`.
"""

from __future__ import annotations

import bisect
import stat
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.errors import RecordsDeletedError, StoreDamagedError, StoreError, StoreFormatError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.record.codec import walk
from orbitmq.record.decode import Found, Verdict, examine
from orbitmq.record.layout import (
    BORN_HOST_AT,
    BORN_HOST_V6,
    HOST_BYTES_V4,
    HOST_BYTES_V6,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    SYSTEM_FLAG_AT,
)
from orbitmq.record.scan import Walk
from orbitmq.store.files.file_names import file_name, offset_of
from orbitmq.store.files.open_files import OpenFiles

# Size of one read of the log; only a larger record makes it larger.
CHUNK_BYTES: Final = 4 * 1024 * 1024
_OPEN_FILES_MAX: Final = 8
_HEAD: Final = struct.Struct(">II")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
# Enough of a record to hold its store time, whatever its hosts are.
_STORE_TIME_END: Final = BORN_HOST_AT + HOST_BYTES_V6 + _LONG.size


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """One file of the log."""

    path: Path
    first_offset: PhysicalOffset
    file_bytes: int
    modified_ms: int

    @property
    def end_offset(self) -> PhysicalOffset:
        """The offset after the last byte."""
        return PhysicalOffset(self.first_offset + self.file_bytes)


class WalkedChunk(NamedTuple):
    """Bytes of the log that start with whole records, and what a walk found in them."""

    offset: PhysicalOffset
    content: bytes
    found: Walk


# Called with the offset where a walk met something other than a record, and with what it found
# there; returns where to resume.
OnDamage = Callable[[PhysicalOffset, Found], PhysicalOffset]


class ReadOnlyLog:
    """The files as of the last call of `refresh`."""

    def __init__(self, folders: list[Path], file_bytes: int | None = None) -> None:
        self.folders = folders
        self.file_bytes = file_bytes or 0
        self._configured_bytes = file_bytes
        self.files: list[LogFile] = []
        self._first_offsets: list[PhysicalOffset] = []
        # Not named as log files are; a broker would refuse to open the store.
        self.strange_files: list[Path] = []
        # A last file of another size, which is ignored.
        self.unfinished: LogFile | None = None
        self._open_files = OpenFiles(_OPEN_FILES_MAX, writable=False)
        self.refresh()

    def refresh(self) -> None:
        """List the files again."""
        found: list[LogFile] = []
        self.strange_files = []
        for folder in self.folders:
            for path in folder.iterdir() if folder.is_dir() else ():
                self._add(path, found)
        found.sort(key=lambda file: file.first_offset)
        self._drop_unfinished(found)
        gone = {file.path for file in self.files} - {file.path for file in found}
        for path in gone:
            # An open descriptor would keep a deleted file's bytes on disk.
            self._open_files.forget(path)
        self.files = found
        self._first_offsets = [file.first_offset for file in found]

    def _add(self, path: Path, found: list[LogFile]) -> None:
        first_offset = offset_of(path)
        try:
            status = path.stat()
        except FileNotFoundError:
            # Deleted by retention since the listing.
            return
        if first_offset is None or stat.S_ISDIR(status.st_mode):
            self.strange_files.append(path)
            return
        found.append(
            LogFile(
                path=path,
                first_offset=PhysicalOffset(first_offset),
                file_bytes=status.st_size,
                modified_ms=status.st_mtime_ns // 1_000_000,
            )
        )

    def _drop_unfinished(self, found: list[LogFile]) -> None:
        """Ignore a last file that is still being created; raise if the files form no log."""
        # A damaged file may be short, and one that is being created is.
        largest = max((file.file_bytes for file in found), default=0)
        self.file_bytes = self._configured_bytes or largest
        self.unfinished = None
        if found and found[-1].file_bytes != self.file_bytes:
            self.unfinished = found.pop()
        if found and not self.file_bytes:
            found.clear()
        for file in found:
            if file.file_bytes != self.file_bytes or file.first_offset % self.file_bytes:
                raise StoreFormatError(
                    f"{file.path} has {file.file_bytes} bytes and does not fit a log with files "
                    f"of {self.file_bytes} bytes",
                    hint="all files of a log have one size and start at a multiple of it",
                )

    @property
    def start(self) -> PhysicalOffset:
        """The offset of the oldest byte."""
        return PhysicalOffset(self._first_offsets[0] if self._first_offsets else 0)

    @property
    def room_end(self) -> PhysicalOffset:
        """The end of the last file; the written part ends before it."""
        return self.files[-1].end_offset if self.files else PhysicalOffset(0)

    def missing(self) -> list[tuple[PhysicalOffset, PhysicalOffset]]:
        """The gaps where files are missing between others: start and end of each."""
        pairs = zip(self.files, self.files[1:], strict=False)
        return [
            (older.end_offset, newer.first_offset)
            for older, newer in pairs
            if older.end_offset != newer.first_offset
        ]

    def find_file(self, offset: int) -> LogFile | None:
        """The file that holds an offset; None if no file does."""
        index = bisect.bisect_right(self._first_offsets, offset) - 1
        if index < 0 or offset >= self.files[index].end_offset:
            return None
        return self.files[index]

    def file_at(self, offset: int) -> LogFile:
        """The file that holds an offset; lists the files again if it is not known."""
        file = self.find_file(offset)
        if file is None:
            self.refresh()
            file = self.find_file(offset)
        if file is not None:
            return file
        if offset < self.start:
            raise RecordsDeletedError(f"offset {offset} of the log was deleted", start=self.start)
        if offset >= self.room_end:
            raise StoreError(f"offset {offset} is beyond the log, which ends at {self.room_end}")
        raise StoreDamagedError(
            f"file {file_name(offset // self.file_bytes * self.file_bytes)} of the log is missing",
            hint="restore it from a copy or a replica",
        )

    def read(self, offset: int, size: int) -> bytes:
        """Read bytes of one file: all of them, or raise."""
        file = self.file_at(offset)
        at = offset - file.first_offset
        parts: list[bytes] = []
        while size > 0:
            part = self._open_files.pread(file.path, size, at)
            if not part:
                raise self._short_read(file, at)
            parts.append(part)
            at += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, offset: int, room: memoryview) -> None:
        """Fill `room` with bytes of one file: all of it, or raise."""
        file = self.file_at(offset)
        at = offset - file.first_offset
        got = self._open_files.pread_into(file.path, room, at)
        if got < len(room):
            raise self._short_read(file, at + got)

    def _short_read(self, file: LogFile, at: int) -> StoreError:
        self.refresh()
        if file.first_offset < self.start or not self.files:
            return RecordsDeletedError(
                f"{file.path.name} was deleted during the read", start=self.start
            )
        return StoreDamagedError(
            f"{file.path} ends at byte {at}, but had {file.file_bytes} bytes",
            hint="something other than a broker changed this store; restore the file from a copy",
        )

    def store_ms(self, offset: int) -> int:
        """The store time of the record at an offset; the caller knows that there is one."""
        size = min(_STORE_TIME_END, self.file_at(offset).end_offset - offset)
        return store_ms_in(self.read(offset, size), 0)

    def record_at(self, offset: int, end: int) -> tuple[PhysicalOffset, int] | None:
        """The record at `offset`, or after a blank there: its offset and store time.

        None if there is no valid record that contains its own offset.
        """
        for _ in range(2):
            file = self.find_file(offset)
            if file is None or end - offset < _STORE_TIME_END:
                return None
            content = self.read(offset, min(_STORE_TIME_END, file.end_offset - offset))
            size, magic = _HEAD.unpack_from(content) if len(content) >= _HEAD.size else (0, 0)
            if magic != MAGIC_BLANK:
                break
            offset = file.end_offset
        else:
            return None
        if magic not in (MAGIC_V1, MAGIC_V2) or size > file.end_offset - offset:
            return None
        record = self.read(offset, size)
        if examine(record, 0, size, check_body=True).verdict is not Verdict.RECORD:
            return None
        if physical_offset_in(record, 0) != offset:
            return None
        return PhysicalOffset(offset), store_ms_in(record, 0)

    def walk(
        self,
        start: int,
        end: int,
        *,
        limit: int | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        check_body: bool = False,
        with_keys: bool = False,
        delay_levels_ms: tuple[int, ...] = (),
        on_damage: OnDamage | None = None,
    ) -> Iterator[WalkedChunk]:
        """Walk over the records that start between `start` and `end`, a chunk at a time.

        `start` is the start of a record or file. Reads stop at `limit`, by default `end`; a higher
        limit allows the last record to extend beyond `end`.
        """
        position = PhysicalOffset(start)
        limit = max(end, limit or end)
        read_bytes = chunk_bytes
        while position < end:
            file = self.file_at(position)
            readable = min(limit, file.end_offset) - position
            content = self.read(position, min(read_bytes, readable))
            found = walk(
                content,
                0,
                min(len(content), end - position),
                position,
                check_body=check_body,
                delay_levels_ms=delay_levels_ms,
                with_keys=with_keys,
            )
            stop = PhysicalOffset(position + found.position)
            if found.position:
                yield WalkedChunk(position, content, found)
            read_bytes = chunk_bytes
            if stop >= min(end, file.end_offset):
                position = stop
                continue
            # The walk stopped early: examine that place with all bytes that were read.
            met = examine(content, found.position, len(content), check_body=check_body)
            if met.verdict is Verdict.BLANK:
                position = file.end_offset
            elif met.verdict is Verdict.RECORD:
                # It starts before `end` and extends beyond it: walk over this record alone.
                yield self._walk_one(
                    content[found.position :],
                    stop,
                    met.size,
                    check_body=check_body,
                    with_keys=with_keys,
                    delay_levels_ms=delay_levels_ms,
                )
                position = PhysicalOffset(stop + met.size)
            elif met.verdict is Verdict.CUT_OFF and len(content) < readable:
                read_bytes = max(chunk_bytes, met.size)
                position = stop
            else:
                handle_damage = on_damage or self.raise_damaged
                position = handle_damage(stop, met)

    @staticmethod
    def _walk_one(
        content: bytes,
        offset: PhysicalOffset,
        size: int,
        *,
        check_body: bool,
        with_keys: bool,
        delay_levels_ms: tuple[int, ...],
    ) -> WalkedChunk:
        found = walk(
            content,
            0,
            size,
            offset,
            check_body=check_body,
            delay_levels_ms=delay_levels_ms,
            with_keys=with_keys,
        )
        return WalkedChunk(offset, content, found)

    def raise_damaged(self, offset: PhysicalOffset, found: Found) -> PhysicalOffset:
        """Raise the error for bytes that should be a record and are not."""
        raise StoreDamagedError(
            f"{self.describe_offset(offset)}: {found.verdict.value}: {found.reason}".removesuffix(
                ": "
            ),
            hint="after a crash, let a broker recover the store; else run: orbitmq store verify",
        )

    def describe_offset(self, offset: int) -> str:
        """An offset in words: the file and the byte in it."""
        file = self.find_file(offset)
        if file is None:
            return f"at offset {offset}"
        return f"at byte {offset - file.first_offset} of {file.path} (offset {offset})"

    def close(self) -> None:
        """Close the files."""
        self._open_files.close()


def store_ms_in(buffer: bytes | memoryview, at: int) -> int:
    """The store time of the record at `buffer[at:]`."""
    (system_flag,) = _INT.unpack_from(buffer, at + SYSTEM_FLAG_AT)
    born_host_bytes = HOST_BYTES_V6 if system_flag & BORN_HOST_V6 else HOST_BYTES_V4
    (store_ms,) = _LONG.unpack_from(buffer, at + BORN_HOST_AT + born_host_bytes)
    return int(store_ms)


def physical_offset_in(buffer: bytes | memoryview, at: int) -> int:
    """The physical offset that the record at `buffer[at:]` contains."""
    (physical_offset,) = _LONG.unpack_from(buffer, at + PHYSICAL_OFFSET_AT)
    return int(physical_offset)
