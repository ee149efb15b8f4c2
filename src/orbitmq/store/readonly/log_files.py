"""The files of the log, read without changing anything.

Files are opened O_RDONLY and read by `pread`, never mapped, so that a file that shrinks or goes
while it is read is an error and not a signal. The size of the files is taken from the files.

Threads: any. Crash: nothing is written. A file deleted by retention while it is read stays
readable as long as it is among the last ones used; afterwards `RecordsDeletedError` says so.
"""

from __future__ import annotations

import bisect
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

# One read of the log; only a record that is larger makes a larger one.
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
        """The offset behind the last byte."""
        return PhysicalOffset(self.first_offset + self.file_bytes)


class WalkedChunk(NamedTuple):
    """Bytes of the log that begin with whole records, and what a walk found in them."""

    offset: PhysicalOffset
    content: bytes
    found: Walk


# Told where a walk met what is no record, and what lies there; says where to go on.
OnDamage = Callable[[PhysicalOffset, Found], PhysicalOffset]


class ReadOnlyLog:
    """The files as they were when `refresh` was last called."""

    def __init__(self, folders: list[Path], file_bytes: int | None = None) -> None:
        self.folders = folders
        self.file_bytes = file_bytes or 0
        self._wanted_bytes = file_bytes
        self.files: list[LogFile] = []
        self._first_offsets: list[PhysicalOffset] = []
        # Names that cannot be files of a log; a broker would refuse to open the store.
        self.strangers: list[Path] = []
        # A last file of another size, which is left out.
        self.unfinished: LogFile | None = None
        self._open_files = OpenFiles(_OPEN_FILES_MAX, writable=False)
        self.refresh()

    def refresh(self) -> None:
        """Look again which files there are."""
        found: list[LogFile] = []
        self.strangers = []
        for folder in self.folders:
            for path in folder.iterdir() if folder.is_dir() else ():
                self._add(path, found)
        found.sort(key=lambda file: file.first_offset)
        self._drop_unfinished(found)
        gone = {file.path for file in self.files} - {file.path for file in found}
        for path in gone:
            # A descriptor would keep the bytes of a deleted file on disk.
            self._open_files.forget(path)
        self.files = found
        self._first_offsets = [file.first_offset for file in found]

    def _add(self, path: Path, found: list[LogFile]) -> None:
        first_offset = offset_of(path)
        if first_offset is None:
            self.strangers.append(path)
            return
        try:
            status = path.stat()
        except FileNotFoundError:
            # Retention was faster than the listing.
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
        """Leave out a last file that is being made, and refuse what cannot be a log."""
        self.file_bytes = self._wanted_bytes or (found[0].file_bytes if found else 0)
        self.unfinished = None
        if found and found[-1].file_bytes != self.file_bytes:
            self.unfinished = found.pop()
        if found and not self.file_bytes:
            found.clear()
        for file in found:
            if file.file_bytes != self.file_bytes or file.first_offset % self.file_bytes:
                raise StoreFormatError(
                    f"{file.path} has {file.file_bytes} bytes and does not fit a log of files of "
                    f"{self.file_bytes}",
                    hint="files of a log have one size and begin at a multiple of it",
                )

    @property
    def start(self) -> PhysicalOffset:
        """The oldest byte."""
        return PhysicalOffset(self._first_offsets[0] if self._first_offsets else 0)

    @property
    def room_end(self) -> PhysicalOffset:
        """The end of the last file; what is written ends somewhere before."""
        return self.files[-1].end_offset if self.files else PhysicalOffset(0)

    def missing(self) -> list[tuple[PhysicalOffset, PhysicalOffset]]:
        """Where a file between two others is not there: beginnings and ends."""
        pairs = zip(self.files, self.files[1:], strict=False)
        return [
            (older.end_offset, newer.first_offset)
            for older, newer in pairs
            if older.end_offset != newer.first_offset
        ]

    def find_file(self, offset: int) -> LogFile | None:
        """The file that holds an offset; None when there is none."""
        index = bisect.bisect_right(self._first_offsets, offset) - 1
        if index < 0 or offset >= self.files[index].end_offset:
            return None
        return self.files[index]

    def file_at(self, offset: int) -> LogFile:
        """The file that holds an offset, looked for again when it is news."""
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
        """Read bytes that lie in one file; all of them, or an error."""
        file = self.file_at(offset)
        at = offset - file.first_offset
        parts: list[bytes] = []
        while size > 0:
            part = self._open_files.pread(file.path, size, at)
            if not part:
                raise self._nothing_read(file, at)
            parts.append(part)
            at += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, offset: int, room: memoryview) -> None:
        """Fill `room` with bytes that lie in one file; all of it, or an error."""
        file = self.file_at(offset)
        at = offset - file.first_offset
        got = self._open_files.pread_into(file.path, room, at)
        if got < len(room):
            raise self._nothing_read(file, at + got)

    def _nothing_read(self, file: LogFile, at: int) -> StoreError:
        self.refresh()
        if file.first_offset < self.start or not self.files:
            return RecordsDeletedError(
                f"{file.path.name} was deleted while it was read", start=self.start
            )
        return StoreDamagedError(
            f"{file.path} ends at byte {at}, before the {file.file_bytes} it had",
            hint="something beside a broker changes this store; restore the file from a copy",
        )

    def store_ms(self, offset: int) -> int:
        """The store time of the record at an offset, which must be one."""
        size = min(_STORE_TIME_END, self.file_at(offset).end_offset - offset)
        return store_ms_in(self.read(offset, size), 0)

    def record_at(self, offset: int, end: int) -> tuple[PhysicalOffset, int] | None:
        """The first record at `offset` or behind a blank there: its offset and store time.

        None when what lies there is no record that says of itself that it lies there.
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
        """Walk over the records that begin in `start` to `end`, a chunk at a time.

        `start` is where a record or a file begins; `limit`, by default `end`, is where the bytes
        end that may be read, so that a record that begins before `end` may reach beyond it.
        """
        position = PhysicalOffset(start)
        limit = max(end, limit or end)
        wanted = chunk_bytes
        while position < end:
            file = self.file_at(position)
            readable = min(limit, file.end_offset) - position
            content = self.read(position, min(wanted, readable))
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
            wanted = chunk_bytes
            if stop >= min(end, file.end_offset):
                position = stop
                continue
            # What the walk met is looked at again with everything that was read.
            met = examine(content, found.position, len(content), check_body=check_body)
            if met.verdict is Verdict.BLANK:
                position = file.end_offset
            elif met.verdict is Verdict.RECORD:
                # It begins before `end` and reaches beyond it: a walk over it alone.
                yield self._lone(
                    content[found.position :],
                    stop,
                    met.size,
                    check_body=check_body,
                    with_keys=with_keys,
                    delay_levels_ms=delay_levels_ms,
                )
                position = PhysicalOffset(stop + met.size)
            elif met.verdict is Verdict.CUT_OFF and len(content) < readable:
                wanted = max(chunk_bytes, met.size)
                position = stop
            else:
                go_on = on_damage or self.refuse
                position = go_on(stop, met)

    @staticmethod
    def _lone(
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

    def refuse(self, offset: PhysicalOffset, found: Found) -> PhysicalOffset:
        """Raise the error for bytes that should be a record and are not."""
        raise StoreDamagedError(
            f"{self.place(offset)} lies {found.verdict.value} {found.reason}".rstrip(),
            hint="run: orbitmq store verify; after a crash let a broker recover the store first",
        )

    def place(self, offset: int) -> str:
        """An offset in words: the file and the byte in it."""
        file = self.find_file(offset)
        if file is None:
            return f"at offset {offset}"
        return f"at byte {offset - file.first_offset} of {file.path} (offset {offset})"

    def close(self) -> None:
        """Let the files go."""
        self._open_files.close()


def store_ms_in(buffer: bytes | memoryview, at: int) -> int:
    """The store time of the record at `buffer[at:]`."""
    (system_flag,) = _INT.unpack_from(buffer, at + SYSTEM_FLAG_AT)
    born_host_bytes = HOST_BYTES_V6 if system_flag & BORN_HOST_V6 else HOST_BYTES_V4
    (store_ms,) = _LONG.unpack_from(buffer, at + BORN_HOST_AT + born_host_bytes)
    return int(store_ms)


def physical_offset_in(buffer: bytes | memoryview, at: int) -> int:
    """Where the record at `buffer[at:]` says it lies."""
    (physical_offset,) = _LONG.unpack_from(buffer, at + PHYSICAL_OFFSET_AT)
    return int(physical_offset)
