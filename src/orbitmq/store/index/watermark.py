"""The watermark: the physical offset up to which records are visible.

It is published in `<root>/orbitmq/watermark`, 8 bytes big-endian, twice, so that processes that
read the store while a broker writes it stop there. The copies are written one after the other, and
a reader accepts the value only if both agree.

Threads: one writer.
Crash: it restarts at the recovered end. Records that were visible are so again: under SYNC_FLUSH
they were on disk; under ASYNC_FLUSH only a crash of the machine, which may lose messages, lowers it.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import Final

from orbitmq.disk import PRIVATE, FileModes, make_folder, open_file
from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.files.descriptor import write_failure

_VALUE: Final = struct.Struct(">q")
_BOTH: Final = struct.Struct(">qq")
_FILE_BYTES: Final = 16
_TRIES_MAX: Final = 1000
FILE_NAME: Final = "watermark"


class Watermark:
    """The writer's side."""

    def __init__(self, folder: Path, start: PhysicalOffset, modes: FileModes = PRIVATE) -> None:
        make_folder(folder, modes)
        path = folder / FILE_NAME
        descriptor = open_file(path, os.O_RDWR | os.O_CREAT, modes)
        try:
            # Writing to a mapped page without room on the disk would kill the process.
            os.posix_fallocate(descriptor, 0, _FILE_BYTES)
            self._map = mmap.mmap(descriptor, _FILE_BYTES)
        except OSError as error:
            raise write_failure(path, error, what=f"{_FILE_BYTES} bytes") from error
        finally:
            os.close(descriptor)
        self.offset = start
        self._publish()

    def raise_to(self, offset: PhysicalOffset) -> None:
        """Make records up to `offset` visible; the watermark never falls."""
        if offset > self.offset:
            self.offset = offset
            self._publish()

    def close(self) -> None:
        """Close the file; it keeps its last value."""
        self._map.close()

    def _publish(self) -> None:
        _BOTH.pack_into(self._map, 0, self.offset, self.offset)


def read_watermark(folder: Path) -> PhysicalOffset | None:
    """Read the published watermark; None if no OrbitMQ broker ever wrote the store."""
    try:
        descriptor = os.open(folder / FILE_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        for _ in range(_TRIES_MAX):
            content = os.pread(descriptor, _FILE_BYTES, 0)
            first, second = content[: _VALUE.size], content[_VALUE.size :]
            if len(second) == _VALUE.size and first == second:
                return PhysicalOffset(_VALUE.unpack(first)[0])
    finally:
        os.close(descriptor)
    return None
