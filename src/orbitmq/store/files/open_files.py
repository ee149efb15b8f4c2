"""A cache of open files: many queues, few descriptors.

Threads: any; reads and writes happen outside the lock.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from pathlib import Path

from orbitmq.disk import PRIVATE, FileModes, make_folder
from orbitmq.store.files.descriptor import Descriptor, write_failure


class OpenFiles:
    """A bounded set of open files; the least recently used one is dropped first."""

    def __init__(self, count_max: int, *, writable: bool, modes: FileModes = PRIVATE) -> None:
        self._count_max = count_max
        self._flags = os.O_RDWR if writable else os.O_RDONLY
        self._modes = modes
        self._open: OrderedDict[Path, Descriptor] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    def pread(self, path: Path, count: int, at: int) -> bytes:
        """Read from a file; empty if it does not exist."""
        try:
            return self._descriptor(path).pread(count, at)
        except FileNotFoundError:
            return b""

    def pread_into(self, path: Path, room: memoryview, at: int) -> int:
        """Read from a file into a buffer; 0 if the file does not exist."""
        try:
            return self._descriptor(path).pread_into(room, at)
        except FileNotFoundError:
            return 0

    def pwrite(self, path: Path, content: bytes, at: int, *, file_bytes: int) -> bool:
        """Write into a file; a missing one is created with its full size, sparse.

        Returns whether it was created.
        """
        made = False
        try:
            try:
                descriptor = self._descriptor(path)
            except FileNotFoundError:
                make_folder(path.parent, self._modes)
                descriptor = self._descriptor(path, os.O_CREAT)
                made = True
            if made:
                os.ftruncate(descriptor.number, file_bytes)
            descriptor.pwrite(content, at)
        except OSError as error:
            raise write_failure(path, error, what=f"{len(content)} bytes") from error
        return made

    def first_hole(self, path: Path) -> int:
        """Where the first hole of a file is, or its size."""
        return self._descriptor(path).first_hole()

    def clear(self, path: Path, start: int, end: int) -> bool:
        """Zero a range of a file; returns whether it had anything else."""
        return self._descriptor(path).clear(start, end)

    def sync(self, path: Path) -> None:
        """Sync a file, if it exists."""
        try:
            descriptor = self._descriptor(path)
        except FileNotFoundError:
            return
        descriptor.sync()

    def forget(self, path: Path) -> None:
        """Drop a file that is about to be deleted."""
        with self._lock:
            self._open.pop(path, None)

    def close(self) -> None:
        """Drop all files."""
        with self._lock:
            self._open.clear()

    def _descriptor(self, path: Path, more_flags: int = 0) -> Descriptor:
        with self._lock:
            descriptor = self._open.get(path)
            if descriptor is None:
                descriptor = Descriptor(path, self._flags | more_flags, self._modes)
                while len(self._open) >= self._count_max:
                    self._open.popitem(last=False)
                self._open[path] = descriptor
            else:
                self._open.move_to_end(path)
            return descriptor
