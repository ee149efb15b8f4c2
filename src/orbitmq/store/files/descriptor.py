"""An open file that is closed when the last who uses it lets go of it.

A reader may be in the middle of a read while another thread deletes the file or makes room for
others. If that closed the descriptor at once, its number could be given to another file and the
reader would read that one. So nobody closes: who is done drops the object.

Threads: any; there is no position that they would share.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from orbitmq.errors import DiskFullError, StoreError

_CLEAR_BYTES: Final = 64 * 1024
# Linux has it; not every file system does.
_AT_ONCE: Final = getattr(os, "RWF_NOWAIT", 0)
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Descriptor:
    """One open file."""

    __slots__ = ("_close", "number", "writable")

    def __init__(self, path: Path, flags: int) -> None:
        self.number = -1
        # The interpreter may have taken `os` apart when the last object goes.
        self._close = os.close
        self.writable = bool(flags & (os.O_RDWR | os.O_WRONLY))
        self.number = os.open(path, flags | os.O_CLOEXEC, 0o644)

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
        """Fill `room`, or less of it where the file ends; returns how many bytes were read."""
        got = os.preadv(self.number, [room], at)
        if got == len(room) or not got:
            return got
        return got + self.pread_into(room[got:], at + got)

    def pread_at_once(self, count: int, at: int) -> bytearray:
        """Read `count` bytes that are in memory; BlockingIOError when they are not, or unknown.

        Whoever can wait reads again then, and meets what may be wrong with the disk.
        """
        content = bytearray(count)
        try:
            got = os.preadv(self.number, [content], at, _AT_ONCE) if _AT_ONCE else 0
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
    def not_reading_ahead(self) -> Iterator[None]:
        """Have the system read what it is asked for meanwhile, page by page."""
        os.posix_fadvise(self.number, 0, 0, os.POSIX_FADV_RANDOM)
        try:
            yield
        finally:
            os.posix_fadvise(self.number, 0, 0, os.POSIX_FADV_NORMAL)

    def clear(self, start: int, end: int) -> None:
        """Make every byte of a range zero, writing only where it is not."""
        # Perf: a page of an allocated range that was read counts as no hole any more, so reading
        # ahead, or a part of a page, would lead on to the end: 4 s for 1 GiB of nothing
        # (benchmarks/store_recovery.py). So would what was read ahead before, by whoever wrote here.
        os.posix_fadvise(self.number, start, end - start, os.POSIX_FADV_DONTNEED)
        with self.not_reading_ahead():
            self._clear(start, end)

    def _clear(self, start: int, end: int) -> None:
        at = start
        while at < end:
            try:
                at = max(at, os.lseek(self.number, at, os.SEEK_DATA))
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return  # Nothing but holes up to the end of the file.
                raise
            content = self.pread(min(_CLEAR_BYTES - at % _CLEAR_BYTES, end - at), at)
            if content.count(0) != len(content):
                self.pwrite(bytes(len(content)), at)
            at += max(len(content), 1)


def write_failure(path: Path, error: OSError, *, what: str) -> StoreError:
    """Turn a failed creation or write into an error that says what to do."""
    if error.errno in _NO_ROOM:
        return DiskFullError(
            f"no room for {what} of {path}: {error.strerror}",
            hint="free space, or let retention delete older files; sending works again then",
        )
    return StoreError(
        f"cannot write {what} of {path}: {error.strerror}",
        hint="check the folder's owner and permissions",
    )


def make_folder(folder: Path) -> None:
    """Make a folder, and return once its name is on disk; one that is there stays."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Return once the names in a folder are on disk."""
    descriptor = Descriptor(folder, os.O_RDONLY)
    os.fsync(descriptor.number)
