"""Marks of our own: how far the log was flushed, and queues and index built.

File layout of `<root>/orbitmq/marks`, big-endian, two slots of 512 bytes used in turn:
    8  sequence            8  flushed offset      8  dispatched offset
    8  name of the newest index file, 0 for none  8  number of its next entry
    8  queues with entries
    4  fingerprint of the checkpoint before       4  of the checkpoint about to be written
    4  CRC-32 of these
The valid slot with the higher sequence counts.

Threads: any; each write holds a lock.
Crash: a mark may lag behind the truth and never leads it: it is written after the sync it tells
of. A slot torn by a crash fails its checksum, and the other one counts. The checkpoint is written
only after a mark that knows it is on disk, so a checkpoint that no mark knows was written by
another broker, whose log the marks do not describe.
"""

from __future__ import annotations

import os
import struct
import threading
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.files.descriptor import Descriptor, make_folder, sync_folder

if TYPE_CHECKING:
    from orbitmq.store.opening.checkpoint import Checkpoint

FILE_NAME: Final = "marks"
_FIELDS: Final = struct.Struct(">qqqqqqII")
_CRC: Final = struct.Struct(">I")
_SLOT_BYTES: Final = 512
_SLOTS: Final = 2
_ZERO: Final = PhysicalOffset(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What is known of a store's files."""

    # Everything below is on disk in the log.
    flushed: PhysicalOffset = _ZERO
    # Every record below is on disk in its queue and in the index; never above `flushed`.
    dispatched: PhysicalOffset = _ZERO
    index_name: int = 0
    index_next: int = 0
    queue_count: int = 0
    checkpoint_before: int = 0
    checkpoint_after: int = 0

    def knows(self, checkpoint: Checkpoint) -> bool:
        """Whether nobody else wrote the checkpoint since; one that is missing tells nothing."""
        return not checkpoint.is_present or checkpoint.fingerprint in (
            self.checkpoint_before,
            self.checkpoint_after,
        )


class Marks:
    """The marks of one store."""

    def __init__(self, folder: Path) -> None:
        path = folder / FILE_NAME
        found = read_slots(path)
        self._sequence, self.mark = found or (0, Mark())
        # Whether there was a valid mark to read.
        self.is_present = found is not None
        self._lock = threading.Lock()
        self._path = path
        self._descriptor: Descriptor | None = None

    def write(self, mark: Mark) -> None:
        """Replace the mark and return once it is on disk."""
        with self._lock:
            self._put(mark).sync()

    def raise_flushed(self, flushed: PhysicalOffset) -> None:
        """Note how far the log is on disk; no sync, since an older mark is true as well."""
        with self._lock:
            if flushed > self.mark.flushed:
                self._put(replace(self.mark, flushed=flushed))

    def close(self) -> None:
        """Let the file go."""
        self._descriptor = None

    def _put(self, mark: Mark) -> Descriptor:
        if self._descriptor is None:
            self._descriptor = self._open()
        self._sequence += 1
        fields = _FIELDS.pack(
            self._sequence,
            mark.flushed,
            mark.dispatched,
            mark.index_name,
            mark.index_next,
            mark.queue_count,
            mark.checkpoint_before,
            mark.checkpoint_after,
        )
        at = self._sequence % _SLOTS * _SLOT_BYTES
        self._descriptor.pwrite(fields + _CRC.pack(zlib.crc32(fields)), at)
        self.mark = mark
        return self._descriptor

    def _open(self) -> Descriptor:
        folder = self._path.parent
        make_folder(folder)
        descriptor = Descriptor(self._path, os.O_RDWR | os.O_CREAT)
        sync_folder(folder)
        return descriptor


def read_mark(folder: Path) -> Mark | None:
    """Read the mark of a store's own folder; None when there is no valid one."""
    found = read_slots(folder / FILE_NAME)
    return found[1] if found else None


def read_slots(path: Path) -> tuple[int, Mark] | None:
    """Read the valid slot with the higher sequence, and that sequence."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    best: tuple[int, ...] | None = None
    for at in range(0, _SLOT_BYTES * _SLOTS, _SLOT_BYTES):
        slot = content[at : at + _FIELDS.size + _CRC.size]
        if len(slot) < _FIELDS.size + _CRC.size:
            continue
        fields = slot[: _FIELDS.size]
        values = _FIELDS.unpack(fields)
        if zlib.crc32(fields) == _CRC.unpack(slot[_FIELDS.size :])[0] and values[0] > 0:
            best = max(best, values) if best else values
    if best is None:
        return None
    return best[0], Mark(
        flushed=PhysicalOffset(best[1]),
        dispatched=PhysicalOffset(best[2]),
        index_name=best[3],
        index_next=best[4],
        queue_count=best[5],
        checkpoint_before=best[6],
        checkpoint_after=best[7],
    )
