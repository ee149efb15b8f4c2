"""An open file that is closed when its last user drops it.

A thread may be reading while another deletes the file or closes it to make room. If that closed
the descriptor at once, the system could reuse its number and the reader would read another file.
So there is no `close`: users drop the object.

Threads: any; there is no shared position.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from orbitmq.disk import PRIVATE, FileModes, lacks_room, open_file
from orbitmq.errors import DiskFullError, StoreError

_CLEAR_BYTES: Final = 64 * 1024
# Linux has it; not every file system supports it.
_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)


class Descriptor:
    """One open file."""

    __slots__ = ("_close", "number", "writable")

    def __init__(self, path: Path, flags: int, modes: FileModes = PRIVATE) -> None:
        self.number = -1
        # At interpreter shutdown `os` may be gone before the last object.
        self._close = os.close
        self.writable = bool(flags & (os.O_RDWR | os.O_WRONLY))
        self.number = open_file(path, flags, modes)

    def __del__(self) -> None:
        if self.number >= 0:
            self._close(self.number)

    def pread(self, count: int, at: int) -> bytes:
        """Read `count` bytes, or fewer where the file ends."""
        part = os.pread(self.number, count, at)
        if len(part) == count or not part:
            return part
        return part + self.pread(count - len(part), at + len(part))

    def pread_into(self, room: memoryview, at: int) -> int:
        """Fill `room`, or less where the file ends; returns how many bytes were read."""
        got = os.preadv(self.number, [room], at)
        if got == len(room) or not got:
            return got
        return got + self.pread_into(room[got:], at + got)

    def pread_nowait(self, count: int, at: int) -> bytearray:
        """Read `count` bytes from memory; BlockingIOError if they may not all be there.

        A caller that can wait then uses `pread`, which reports errors of the disk.
        """
        content = bytearray(count)
        try:
            got = os.preadv(self.number, [content], at, _NOWAIT) if _NOWAIT else 0
        except OSError:
            got = 0
        if got != count:
            raise BlockingIOError(errno.EAGAIN, f"{count} bytes at {at} may not be in memory")
        return content

    def pwrite(self, content: bytes, at: int) -> None:
        """Write all of `content`."""
        while content:
            written = os.pwrite(self.number, content, at)
            content = content[written:]
            at += written

    def sync(self) -> None:
        """Return once every byte written so far is on disk."""
        # Perf: mmap.flush would hold the GIL for the whole sync.
        os.fdatasync(self.number)

    @contextmanager
    def without_readahead(self) -> Iterator[None]:
        """Turn off the system's readahead for a while."""
        os.posix_fadvise(self.number, 0, 0, os.POSIX_FADV_RANDOM)
        try:
            yield
        finally:
            os.posix_fadvise(self.number, 0, 0, os.POSIX_FADV_NORMAL)

    def clear(self, start: int, end: int) -> bool:
        """Zero every byte of a range, writing only where needed; returns whether it was needed."""
        if self._is_hole(start):
            return False
        # Perf: a page of an allocated range stops counting as a hole once it is read. Readahead, or
        # reading part of a page, would thus go on to the end: 4 s for 1 GiB of holes
        # (benchmarks/store_recovery.py). So would pages that were read ahead earlier.
        os.posix_fadvise(self.number, start, end - start, os.POSIX_FADV_DONTNEED)
        with self.without_readahead():
            return self._clear(start, end)

    def _is_hole(self, start: int) -> bool:
        """Whether the file has nothing but a hole from a place on."""
        try:
            os.lseek(self.number, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return True
            raise
        return False

    def first_hole(self) -> int:
        """Where the first hole is; the size of the file if the file system knows of none."""
        return os.lseek(self.number, 0, os.SEEK_HOLE)

    def _clear(self, start: int, end: int) -> bool:
        written = False
        at = start
        while at < end:
            try:
                at = max(at, os.lseek(self.number, at, os.SEEK_DATA))
            except OSError as error:
                if error.errno == errno.ENXIO:
                    break  # Only holes up to the end of the file.
                raise
            content = self.pread(min(_CLEAR_BYTES - at % _CLEAR_BYTES, end - at), at)
            if content != bytes(len(content)):
                self.pwrite(bytes(len(content)), at)
                written = True
            at += max(len(content), 1)
        return written


def write_failure(path: Path, error: OSError, *, what: str) -> StoreError:
    """Turn a failed creation or write into an error with a hint."""
    if lacks_room(error):
        return DiskFullError(
            f"no room for {what} of {path}: {error.strerror}",
            hint="free space, or let retention delete older files; then sending works again",
        )
    return StoreError(
        f"cannot write {what} of {path}: {error.strerror}",
        hint="check the folder's owner and permissions",
    )
