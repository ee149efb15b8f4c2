"""The shape of a store: where its log starts, and the sizes of its files.

It tells a log file that somebody removed from one that retention deleted, and a file that lost
bytes from one that was made with other options.

File layout of `<root>/orbitmq/shape`, big-endian, two slots of 512 bytes used in turn:
    8  sequence            8  start of the log
    8  bytes of a log file 8  bytes of a queue file
    8  slots and           8  entries of an index file
    4  CRC-32 of these
The valid slot with the higher sequence counts.

Threads: one at a time.
Crash: a start of the log is on disk before the files below it are deleted. The file never grows,
so that retention can note a deletion on a full disk.
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Final

from orbitmq.disk import PRIVATE, FileModes, make_folder, sync_folder
from orbitmq.store.files.descriptor import Descriptor, write_failure

FILE_NAME: Final = "shape"
_FIELDS: Final = struct.Struct(">qqqqqq")
_CRC: Final = struct.Struct(">I")
_SLOT_BYTES: Final = 512
_SLOTS: Final = 2


@dataclass(frozen=True, slots=True)
class FileSizes:
    """The sizes that files of a store are made with."""

    log_file_bytes: int
    queue_file_bytes: int
    index_slots: int
    index_entries: int


@dataclass(frozen=True, slots=True)
class Shape:
    """What was saved."""

    log_start: int
    sizes: FileSizes


class ShapeFile:
    """The shape of one store."""

    def __init__(self, folder: Path, modes: FileModes = PRIVATE) -> None:
        self._path = folder / FILE_NAME
        self._modes = modes
        found = _read_slots(self._path)
        self._sequence = found[0] if found else 0
        # None if no version that knows it opened the store.
        self.saved: Shape | None = found[1] if found else None

    def write(self, shape: Shape) -> None:
        """Replace the saved shape, if it differs, and return once it is on disk."""
        if shape == self.saved:
            return
        fields = _FIELDS.pack(self._sequence + 1, shape.log_start, *astuple(shape.sizes))
        slot = (fields + _CRC.pack(zlib.crc32(fields))).ljust(_SLOT_BYTES, b"\0")
        made = not self._path.exists()
        try:
            make_folder(self._path.parent, self._modes)
            descriptor = Descriptor(self._path, os.O_RDWR | os.O_CREAT, self._modes)
            if made:
                # Both slots have their room on the disk from now on.
                descriptor.pwrite(bytes(_SLOTS * _SLOT_BYTES), 0)
            descriptor.pwrite(slot, (self._sequence + 1) % _SLOTS * _SLOT_BYTES)
        except OSError as error:
            raise write_failure(self._path, error, what=f"{_SLOT_BYTES} bytes") from error
        descriptor.sync()
        if made:
            sync_folder(self._path.parent)
        self._sequence += 1
        self.saved = shape

    def raise_log_start(self, log_start: int) -> None:
        """Note, before files are deleted, where the log will start."""
        if self.saved is not None:
            self.write(replace(self.saved, log_start=log_start))


def read_shape(folder: Path) -> Shape | None:
    """Read the shape saved in a store's own folder; None if there is no valid one."""
    found = _read_slots(folder / FILE_NAME)
    return found[1] if found else None


def _read_slots(path: Path) -> tuple[int, Shape] | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    best: tuple[int, ...] = (0,)
    for at in range(0, _SLOT_BYTES * _SLOTS, _SLOT_BYTES):
        fields = content[at : at + _FIELDS.size]
        checksum = content[at + _FIELDS.size : at + _FIELDS.size + _CRC.size]
        if len(fields) == _FIELDS.size and checksum == _CRC.pack(zlib.crc32(fields)):
            best = max(best, _FIELDS.unpack(fields))
    return (best[0], Shape(best[1], FileSizes(*best[2:]))) if best[0] > 0 else None
