"""The checkpoint file: how far log, queues and index are known to be on disk.

File layout, big-endian, 4096 bytes:
    8  store time of the newest message flushed in the log
    8  store time of the newest message put in a consume queue on disk
    8  end time of the newest full index file on disk
    8  flushed offset of the master (a slave that acts as one)
    8  confirmed offset

Crash: one page, written whole and synced; recovery starts three seconds before its times.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orbitmq.disk import PRIVATE, FileModes, sync_folder
from orbitmq.store.files.descriptor import Descriptor, write_failure

_LAYOUT: Final = struct.Struct(">qqqqq")
_TIMES_BYTES: Final = 24
_FILE_BYTES: Final = 4096
# Compat: Java treats the times as up to three seconds too new.
SAFETY_MS: Final = 3000
# A clock may have been set back by this much since a time was written.
_CLOCK_MS: Final = 60_000


@dataclass(slots=True, kw_only=True)
class Checkpoint:
    """The times and offsets in the file."""

    log_ms: int = 0
    queues_ms: int = 0
    index_ms: int = 0
    master_flushed_offset: int = 0
    confirmed_offset: int = 0
    # Whether there was a file to read.
    is_present: bool = False

    @property
    def fingerprint(self) -> int:
        """A hash of the content, which shows whether another broker wrote the file since."""
        return zlib.crc32(self._fields())

    @property
    def safe_ms(self) -> int:
        """Messages up to this time are on disk, in the log and in their queues."""
        return max(0, min(self.log_ms, self.queues_ms) - SAFETY_MS)

    @property
    def safe_index_ms(self) -> int:
        """Messages up to this time are in the index too."""
        return min(self.safe_ms, self.index_ms)

    def damage(self, now_ms: int) -> str:
        """Say why no broker can have written this; empty if one can."""
        times = (self.log_ms, self.queues_ms, self.index_ms)
        if min(times) < 0 or min(self.master_flushed_offset, self.confirmed_offset) < -1:
            return "it has negative times or offsets"
        if max(times) > now_ms + _CLOCK_MS:
            return f"its times are in the future, up to {max(times)}"
        return ""

    @classmethod
    def read(cls, path: Path) -> Checkpoint:
        """Read the file; if it is missing or short, all times are 0."""
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            content = b""
        if len(content) < _LAYOUT.size:
            return cls()
        return cls._unpack(content)

    def without_flipped_bit(self, fingerprints: Container[int]) -> Checkpoint:
        """This, or one whose times differ in a single bit, if that one has a given fingerprint.

        Times of another broker differ by more than that, as it starts seconds later. Its offsets
        may not; a wrong one of ours does no harm.
        """
        fields = self._fields()
        for number in range(_TIMES_BYTES * 8):
            other = bytearray(fields)
            other[number // 8] ^= 1 << number % 8
            if zlib.crc32(other) in fingerprints:
                return self._unpack(other)
        return self

    @classmethod
    def _unpack(cls, content: bytes | bytearray) -> Checkpoint:
        log_ms, queues_ms, index_ms, master_flushed, confirmed = _LAYOUT.unpack_from(content)
        return cls(
            log_ms=log_ms,
            queues_ms=queues_ms,
            index_ms=index_ms,
            master_flushed_offset=master_flushed,
            confirmed_offset=confirmed,
            is_present=True,
        )

    def write(self, path: Path, modes: FileModes = PRIVATE) -> None:
        """Write the file and return once it is on disk."""
        made = not path.exists()
        try:
            descriptor = Descriptor(path, os.O_RDWR | os.O_CREAT, modes)
            descriptor.pwrite(self._fields().ljust(_FILE_BYTES, b"\0"), 0)
        except OSError as error:
            raise write_failure(path, error, what=f"{_FILE_BYTES} bytes") from error
        descriptor.sync()
        if made:
            sync_folder(path.parent)
        self.is_present = True

    def _fields(self) -> bytes:
        return _LAYOUT.pack(
            self.log_ms,
            self.queues_ms,
            self.index_ms,
            self.master_flushed_offset,
            self.confirmed_offset,
        )
