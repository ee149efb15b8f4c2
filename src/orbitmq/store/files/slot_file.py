"""A small file of checked values: two slots, written in turn.

File layout, big-endian, two slots of 512 bytes, each with one or more blocks:
    8  sequence            ·  values             4  CRC-32 of these
The slot counts whose first block is valid and has the higher sequence. A later block, which other
versions may not know and leave as it is, counts if it has the sequence of the first.

Threads: one at a time.
Crash: a slot torn by a crash fails its checksum, and the other one counts. The file never grows
after its first write, so that it can be written on a full disk.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from orbitmq.disk import PRIVATE, FileModes, make_folder, sync_folder
from orbitmq.store.files.descriptor import Descriptor, write_failure

_CRC: Final = struct.Struct(">I")
_SLOT_BYTES: Final = 512
_SLOTS: Final = 2

Block = tuple[int, ...]


def block_layout(values: str) -> struct.Struct:
    """The layout of a block, from the format characters of its values."""
    return struct.Struct(">q" + values)


class SlotFile:
    """One such file, opened for writing when it is first written."""

    def __init__(
        self, path: Path, layouts: Sequence[struct.Struct], modes: FileModes = PRIVATE
    ) -> None:
        self._path = path
        self._layouts = layouts
        self._modes = modes
        self._descriptor: Descriptor | None = None
        self._sequence, self.found = _read(path, layouts)

    def write(self, *blocks: Block) -> None:
        """Replace the values, without a sync; raises StoreError if that fails."""
        sequence = self._sequence + 1
        content = b"".join(
            _with_crc(layout.pack(sequence, *block))
            for layout, block in zip(self._layouts, blocks, strict=True)
        )
        try:
            self._descriptor = self._descriptor or self._open()
            self._descriptor.pwrite(content, sequence % _SLOTS * _SLOT_BYTES)
        except OSError as error:
            raise write_failure(self._path, error, what=f"{_SLOT_BYTES} bytes") from error
        # Invariant: a failed write is repeated in the same slot, since the other one is good.
        self._sequence = sequence

    def sync(self) -> None:
        """Return once what was written is on disk."""
        if self._descriptor is not None:
            self._descriptor.sync()

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        self._descriptor = None

    def _open(self) -> Descriptor:
        folder = self._path.parent
        make_folder(folder, self._modes)
        descriptor = Descriptor(self._path, os.O_RDWR | os.O_CREAT, self._modes)
        missing_bytes = _SLOTS * _SLOT_BYTES - os.fstat(descriptor.number).st_size
        if missing_bytes > 0:
            # Both slots have their room on the disk from now on.
            descriptor.pwrite(bytes(missing_bytes), _SLOTS * _SLOT_BYTES - missing_bytes)
        sync_folder(folder)
        return descriptor


def read_slot(path: Path, layouts: Sequence[struct.Struct]) -> list[Block | None] | None:
    """Read the blocks of the slot that counts, None for invalid ones; None if there is no slot."""
    return _read(path, layouts)[1]


def _read(path: Path, layouts: Sequence[struct.Struct]) -> tuple[int, list[Block | None] | None]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return 0, None
    best = max(
        (_read_blocks(content, at, layouts) for at in range(0, _SLOTS * _SLOT_BYTES, _SLOT_BYTES)),
        key=lambda slot: slot[0],
    )
    return best if best[0] > 0 else (0, None)


def _read_blocks(
    content: bytes, at: int, layouts: Sequence[struct.Struct]
) -> tuple[int, list[Block | None]]:
    """Read a slot: its sequence, 0 if it has no valid one, and its blocks."""
    found: list[Block | None] = []
    for layout in layouts:
        found.append(_checked(layout, content, at))
        at += layout.size + _CRC.size
    sequence = found[0][0] if found[0] is not None else 0
    return sequence, [
        block[1:] if block is not None and block[0] == sequence else None for block in found
    ]


def _checked(layout: struct.Struct, content: bytes, at: int) -> Block | None:
    """Unpack a block; None unless its checksum is right."""
    fields = content[at : at + layout.size]
    if not fields or content[at : at + layout.size + _CRC.size] != _with_crc(fields):
        return None
    return layout.unpack(fields)


def _with_crc(fields: bytes) -> bytes:
    return fields + _CRC.pack(zlib.crc32(fields))
