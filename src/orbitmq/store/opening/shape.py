"""The shape of a store: where its log starts, and the sizes of its files.

It tells a log file that somebody removed from one that retention deleted, and a file that lost
bytes from one that was made with other options.

`<root>/orbitmq/shape` is a slot file (see `files.slot_file`) of one block:
    8  start of the log
    8  bytes of a log file 8  bytes of a queue file
    8  slots and           8  entries of an index file

Threads: one at a time.
Crash: a start of the log is on disk before the files below it are deleted.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Final

from orbitmq.disk import PRIVATE, FileModes
from orbitmq.store.files.slot_file import Block, SlotFile, block_layout, read_slot

FILE_NAME: Final = "shape"
_LAYOUTS: Final = (block_layout("qqqqq"),)


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
        self._slots = SlotFile(folder / FILE_NAME, _LAYOUTS, modes)
        # None if no version that knows it opened the store.
        self.saved = _decode(self._slots.found)

    def write(self, shape: Shape) -> None:
        """Replace the saved shape, if it differs, and return once it is on disk."""
        if shape == self.saved:
            return
        self._slots.write((shape.log_start, *astuple(shape.sizes)))
        self._slots.sync()
        self._slots.close()
        self.saved = shape

    def raise_log_start(self, log_start: int) -> None:
        """Note, before files are deleted, where the log will start."""
        if self.saved is not None:
            self.write(replace(self.saved, log_start=log_start))


def read_shape(folder: Path) -> Shape | None:
    """Read the shape saved in a store's own folder; None if there is no valid one."""
    return _decode(read_slot(folder / FILE_NAME, _LAYOUTS))


def _decode(blocks: list[Block | None] | None) -> Shape | None:
    (fields,) = blocks or (None,)
    return None if fields is None else Shape(fields[0], FileSizes(*fields[1:]))
