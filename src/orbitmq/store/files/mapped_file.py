"""One file of fixed size, mapped into memory while it is used.

The file is allocated before it is written: writing to a mapped page that the disk has no room for
would kill the process, so a full disk must show up here, as an error.

Threads: one writer; any number of readers of bytes already written; everything else from any
thread. A mapping goes when the last slice of it goes, so nobody reads a page that is not there.
Crash: what was synced is there; of the rest, any page may be there or not.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from orbitmq.errors import StateError, StoreError
from orbitmq.store.files.descriptor import Descriptor, sync_folder, write_failure

_CHUNK_BYTES: Final = 1 << 20


class MappedFile:
    """A file of the log or of the key index; it takes a descriptor and a mapping when needed."""

    def __init__(self, path: Path, first_offset: int, file_bytes: int) -> None:
        self.path = path
        self.first_offset = first_offset
        self.file_bytes = file_bytes
        self._lock = threading.Lock()
        self._descriptor: Descriptor | None = None
        self._view: memoryview | None = None
        self._apart_from: int | None = None
        self._closed = False

    @classmethod
    def create(cls, path: Path, first_offset: int, file_bytes: int) -> MappedFile:
        """Make a file of zero bytes, all of them allocated, and its name known on disk."""
        try:
            descriptor = Descriptor(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        except FileExistsError as error:
            raise StoreError(
                f"{path} is there already", hint="another process may be writing this store"
            ) from error
        except OSError as error:
            raise write_failure(path, error, what=f"{file_bytes} bytes") from error
        try:
            os.posix_fallocate(descriptor.number, 0, file_bytes)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise write_failure(path, error, what=f"{file_bytes} bytes") from error
        os.fsync(descriptor.number)
        sync_folder(path.parent)
        file = cls(path, first_offset, file_bytes)
        file._descriptor = descriptor
        return file

    def allocate(self) -> None:
        """Have the disk keep room for every byte; Java leaves files sparse."""
        try:
            os.posix_fallocate(self._open().number, 0, self.file_bytes)
        except OSError as error:
            raise write_failure(self.path, error, what=f"{self.file_bytes} bytes") from error

    @property
    def end_offset(self) -> int:
        """The offset behind the last byte."""
        return self.first_offset + self.file_bytes

    @property
    def view(self) -> memoryview:
        """The bytes of the file, mapped."""
        view = self._view
        if view is None:
            descriptor = self._open()
            with self._lock:
                if self._view is None:
                    access = mmap.ACCESS_WRITE if descriptor.writable else mmap.ACCESS_READ
                    mapped = mmap.mmap(descriptor.number, self.file_bytes, access=access)
                    view = memoryview(mapped)
                    if self._apart_from is not None:
                        _advise_apart(view, self._apart_from)
                    self._view = view
                view = self._view
        return view

    @property
    def is_mapped(self) -> bool:
        """Whether reading the mapping costs nothing but the reading."""
        return self._view is not None

    def sync(self) -> None:
        """Return once every byte written so far is on disk."""
        self._open().sync()

    def pread(self, at: int, count: int) -> bytes:
        """Read without touching the mapping, so that a page fault does not stall other threads.

        Fewer bytes, or none, come from a file that was deleted meanwhile.
        """
        try:
            return self._open().pread(count, at)
        except (FileNotFoundError, StateError):
            return b""

    def pread_at_once(self, at: int, count: int) -> bytearray:
        """Read what is in memory; BlockingIOError when something has to be waited for."""
        descriptor = self._descriptor
        if descriptor is None:
            raise BlockingIOError(errno.EAGAIN, f"{self.path} is not open")
        return descriptor.pread_at_once(count, at)

    def keep_pages_apart(self, at: int) -> None:
        """From `at` on have every page brought into memory on its own, while the file is awake.

        The system writes pages together that it brought in together: up to 2 MiB for every byte
        changed. Single ones cost a quarter of a microsecond more for each 300 bytes.
        """
        self._apart_from = at
        if self._view is not None:
            _advise_apart(self._view, at)

    def touch(self, at: int, end: int) -> None:
        """Bring pages into memory without changing them, and without holding the GIL."""
        descriptor = self._open()
        with nullcontext() if self._apart_from is None else descriptor.not_reading_ahead():
            for start in range(at, min(end, self.file_bytes), _CHUNK_BYTES):
                os.pread(descriptor.number, min(end - start, _CHUNK_BYTES), start)

    def clear(self, at: int) -> None:
        """Make everything from `at` on zero."""
        self._open().clear(at, self.file_bytes)

    def rewrite(self, at: int, end: int) -> None:
        """Write bytes again as they are, so that the next sync writes them to disk.

        After a failed sync the system may hold pages in memory that it takes for written.
        """
        descriptor = self._open()
        for start in range(at, end, _CHUNK_BYTES):
            descriptor.pwrite(descriptor.pread(min(end - start, _CHUNK_BYTES), start), start)

    def rest(self) -> None:
        """Let descriptor and mapping go until they are needed again."""
        with self._lock:
            self._apart_from = None
            self._descriptor = self._view = None

    def close(self) -> None:
        """Let the file go; a reader that still holds bytes of it keeps them until it is done."""
        with self._lock:
            self._closed = True
            self._descriptor = self._view = None

    def delete(self) -> None:
        """Remove the file from disk and let it go."""
        self.path.unlink(missing_ok=True)
        self.close()

    def _open(self) -> Descriptor:
        descriptor = self._descriptor
        if descriptor is None:
            with self._lock:
                if self._closed:
                    raise StateError(f"{self.path} is closed")
                if self._descriptor is None:
                    self._descriptor = _open_as_allowed(self.path)
                descriptor = self._descriptor
        return descriptor


def _advise_apart(view: memoryview, at: int) -> None:
    mapped = view.obj
    assert isinstance(mapped, mmap.mmap)
    first_page = at // mmap.PAGESIZE * mmap.PAGESIZE
    # A full file has no pages left to speak of.
    if first_page < len(mapped):
        mapped.madvise(mmap.MADV_RANDOM, first_page)


def _open_as_allowed(path: Path) -> Descriptor:
    """Open for writing, or for reading where that is all that may be done, as with old disks."""
    try:
        return Descriptor(path, os.O_RDWR)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES):
            raise
        return Descriptor(path, os.O_RDONLY)
