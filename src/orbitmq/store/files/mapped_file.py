"""One file of fixed size, mapped into memory while it is used.

The file is allocated before it is written: writing to a mapped page without room on the disk would
kill the process, so a full disk must show up here, as an error.

Threads: one writer; any number of readers of bytes already written; everything else from any
thread. A mapping lives until its last slice is dropped, so nobody reads an unmapped page.
Crash: synced bytes survive; of the rest, any page may survive or not.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from orbitmq.disk import PRIVATE, FileModes, sync_folder
from orbitmq.errors import StateError, StoreError
from orbitmq.store.files.descriptor import Descriptor, write_failure

_CHUNK_BYTES: Final = 1 << 20


@dataclass(slots=True, eq=False)
class MappedFile:
    """A file of the log or of the key index; opened and mapped when needed."""

    path: Path
    first_offset: int
    file_bytes: int
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _descriptor: Descriptor | None = field(default=None, init=False)
    _view: memoryview | None = field(default=None, init=False)
    # Where single pages begin, if any.
    _single_from: int | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)

    @classmethod
    def create(
        cls, path: Path, first_offset: int, file_bytes: int, modes: FileModes = PRIVATE
    ) -> MappedFile:
        """Create a file of zero bytes, all allocated; its name is on disk when this returns."""
        try:
            descriptor = Descriptor(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, modes)
        except FileExistsError as error:
            raise StoreError(
                f"{path} exists already", hint="another process may be writing this store"
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
        """Allocate disk space for every byte; Java leaves files sparse."""
        try:
            os.posix_fallocate(self.opened().number, 0, self.file_bytes)
        except OSError as error:
            raise write_failure(self.path, error, what=f"{self.file_bytes} bytes") from error

    @property
    def end_offset(self) -> int:
        """The offset after the last byte."""
        return self.first_offset + self.file_bytes

    @property
    def view(self) -> memoryview:
        """The bytes of the file, mapped."""
        view = self._view
        if view is None:
            descriptor = self.opened()
            with self._lock:
                if self._view is None:
                    access = mmap.ACCESS_WRITE if descriptor.writable else mmap.ACCESS_READ
                    mapped = mmap.mmap(descriptor.number, self.file_bytes, access=access)
                    view = memoryview(mapped)
                    if self._single_from is not None:
                        _load_singly(view, self._single_from)
                    self._view = view
                view = self._view
        return view

    @property
    def is_mapped(self) -> bool:
        """Whether the file is mapped now."""
        return self._view is not None

    def sync(self) -> None:
        """Return once every byte written so far is on disk."""
        self.opened().sync()

    def pread(self, at: int, count: int) -> bytes:
        """Read without the mapping, so that a page fault does not stall other threads.

        Returns fewer bytes, or none, if the file was deleted meanwhile.
        """
        try:
            return self.opened().pread(count, at)
        except (FileNotFoundError, StateError):
            return b""

    def pread_nowait(self, at: int, count: int) -> bytearray:
        """Read from memory; BlockingIOError if it would wait for the disk."""
        descriptor = self._descriptor
        if descriptor is None:
            raise BlockingIOError(errno.EAGAIN, f"{self.path} is not open")
        return descriptor.pread_nowait(count, at)

    def load_pages_singly(self, at: int) -> None:
        """Load every page from `at` on by itself, until the file is released.

        The system writes pages together that it loaded together: up to 2 MiB for every byte
        changed. Single pages cost a quarter of a microsecond more for each 300 bytes.
        """
        self._single_from = at
        if self._view is not None:
            _load_singly(self._view, at)

    def touch(self, at: int, end: int) -> None:
        """Load pages into memory without changing them, and without holding the GIL."""
        descriptor = self.opened()
        with nullcontext() if self._single_from is None else descriptor.without_readahead():
            for start in range(at, min(end, self.file_bytes), _CHUNK_BYTES):
                os.pread(descriptor.number, min(end - start, _CHUNK_BYTES), start)

    def clear(self, at: int) -> None:
        """Zero everything from `at` on."""
        self.opened().clear(at, self.file_bytes)

    def rewrite(self, at: int, end: int) -> None:
        """Write the same bytes again, so that the next sync puts them on disk.

        After a failed sync the system may count pages in memory as written.
        """
        descriptor = self.opened()
        for start in range(at, end, _CHUNK_BYTES):
            descriptor.pwrite(descriptor.pread(min(end - start, _CHUNK_BYTES), start), start)

    def release(self) -> None:
        """Drop descriptor and mapping until they are needed again."""
        with self._lock:
            self._single_from = None
            self._descriptor = self._view = None

    def close(self) -> None:
        """Close the file; bytes that readers still hold stay valid."""
        with self._lock:
            self._closed = True
            self._descriptor = self._view = None

    def delete(self) -> None:
        """Delete the file from disk and close it."""
        self.path.unlink(missing_ok=True)
        self.close()

    def opened(self) -> Descriptor:
        """The open file; it stays open while the caller keeps it."""
        descriptor = self._descriptor
        if descriptor is None:
            with self._lock:
                if self._closed:
                    raise StateError(f"{self.path} is closed")
                if self._descriptor is None:
                    self._descriptor = _open_as_allowed(self.path)
                descriptor = self._descriptor
        return descriptor


def _load_singly(view: memoryview, at: int) -> None:
    mapped = view.obj
    assert isinstance(mapped, mmap.mmap)
    first_page = at // mmap.PAGESIZE * mmap.PAGESIZE
    # A full file has no pages left.
    if first_page < len(mapped):
        mapped.madvise(mmap.MADV_RANDOM, first_page)


def _open_as_allowed(path: Path) -> Descriptor:
    """Open for writing, or for reading if that is all the system allows, as on old disks."""
    try:
        return Descriptor(path, os.O_RDWR)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES):
            raise
        return Descriptor(path, os.O_RDONLY)
