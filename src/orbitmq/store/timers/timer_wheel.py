"""The timer wheel: where the chain of each second begins in the timer log.

File layout: see `layout`. It is 38,707,200 bytes long and sparse; pages never used take no room.

Threads: one at a time.
Crash: opening builds the wheel from the timer log, so the file is only written, for RocketMQ.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
from io import BytesIO
from pathlib import Path
from typing import Final

from orbitmq.disk import PRIVATE, FileModes, sync_folder
from orbitmq.store.files.descriptor import Descriptor, write_failure
from orbitmq.store.timers.layout import PRECISION_MS, SLOT, WHEEL_BYTES, Slot, slot_index

log = logging.getLogger(__name__)

FILE_NAME: Final = "timerwheel"
_PAGE_BYTES: Final = 4096
_EMPTY_PAGE: Final = bytes(_PAGE_BYTES)
# Bytes of the file that are compared at once.
_COMPARED_BYTES: Final = 256 * _PAGE_BYTES


class TimerWheel:
    """The slots of one store."""

    def __init__(self, path: Path, modes: FileModes = PRIVATE) -> None:
        self._path = path
        self._modes = modes
        # The file's bytes.
        self.slots = _no_slots()
        self._changed: set[int] = set()
        self._descriptor: Descriptor | None = None

    def get(self, slot_ms: int) -> Slot | None:
        """The chain of a slot; None if it is empty."""
        second, first, last, count, _ = SLOT.unpack_from(
            self.slots, slot_index(slot_ms) * SLOT.size
        )
        if second != slot_ms // PRECISION_MS or not second:
            return None
        return Slot(first, last, count)

    def next_used(self, slot_ms: int, last_ms: int) -> int | None:
        """The first slot with a chain from one slot to another; None if there is none."""
        while slot_ms <= last_ms:
            at = slot_index(slot_ms) * SLOT.size
            if at % _PAGE_BYTES == 0 and self.slots[at : at + _PAGE_BYTES] == _EMPTY_PAGE:
                slot_ms += _PAGE_BYTES // SLOT.size * PRECISION_MS
            elif self.get(slot_ms) is not None:
                return slot_ms
            else:
                slot_ms += PRECISION_MS
        return None

    def put(self, slot_ms: int, slot: Slot) -> None:
        """Set the chain of a slot."""
        at = slot_index(slot_ms) * SLOT.size
        SLOT.pack_into(
            self.slots, at, slot_ms // PRECISION_MS, slot.first, slot.last, slot.count, 0
        )
        self._changed.add(at // _PAGE_BYTES)

    def clear(self) -> None:
        """Empty all slots."""
        self.slots = _no_slots()
        self._changed.clear()

    def compare_with_file(self) -> None:
        """Note the pages of the file that differ, for the next `write`."""
        self._changed.clear()
        size = self._path.stat().st_size if self._path.exists() else 0
        if size not in (0, WHEEL_BYTES):
            log.warning(
                "timer wheel written anew file=%s reason=it has %d bytes, not %d",
                self._path, size, WHEEL_BYTES,
            )  # fmt: skip
        with self._path.open("rb") if size else BytesIO() as file:
            for start in range(0, WHEEL_BYTES, _COMPARED_BYTES):
                end = min(start + _COMPARED_BYTES, WHEEL_BYTES)
                content, own = (
                    file.read(end - start).ljust(end - start, b"\0"),
                    self.slots[start:end],
                )
                if content == own:
                    continue
                for at in range(0, end - start, _PAGE_BYTES):
                    if content[at : at + _PAGE_BYTES] != own[at : at + _PAGE_BYTES]:
                        self._changed.add((start + at) // _PAGE_BYTES)

    def write(self) -> None:
        """Write the changed pages and return once they are on disk."""
        if not self._changed:
            return
        try:
            descriptor = self._descriptor = self._descriptor or self._open()
            for page in sorted(self._changed):
                at = page * _PAGE_BYTES
                descriptor.pwrite(bytes(self.slots[at : at + _PAGE_BYTES]), at)
        except OSError as error:
            raise write_failure(self._path, error, what=f"{_PAGE_BYTES} bytes") from error
        descriptor.sync()
        self._changed.clear()

    def close(self) -> None:
        """Close the file."""
        self._descriptor = None

    def _open(self) -> Descriptor:
        descriptor = Descriptor(self._path, os.O_RDWR | os.O_CREAT, self._modes)
        os.ftruncate(descriptor.number, WHEEL_BYTES)
        sync_folder(self._path.parent)
        return descriptor


def _no_slots() -> mmap.mmap:
    """Empty slots; pages that are never written take no memory."""
    slots = mmap.mmap(-1, WHEEL_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # Huge pages would take 2 MiB for a few slots; a kernel without them refuses.
    with contextlib.suppress(OSError):
        slots.madvise(mmap.MADV_NOHUGEPAGE)
    return slots
