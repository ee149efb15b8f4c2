"""Which entries of an index file lead into a part of the log.

Keys are added in log order, so halving finds them. Entries have no checksum: the neighbours of both
borders must agree, else the whole file is taken.

Threads: one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from orbitmq.store.readonly.queue_files import first_where

if TYPE_CHECKING:
    from orbitmq.store.readonly.index_files import ReadOnlyIndexFile

_NEIGHBOURS: Final = 64


class IndexSearch:
    """Searches one file."""

    def __init__(self, file: ReadOnlyIndexFile, slots: int) -> None:
        self._file = file
        self._slots = slots

    def numbers(self, start: int, end: int) -> range:
        """The numbers of the entries that may lead to physical offsets from `start` to `end`."""
        first, last = self._border(start), self._border(end)
        if first is None or last is None or first > last:
            return range(1, self._file.next_number)
        return range(first, last)

    def _border(self, offset: int) -> int | None:
        """The first entry at or above an offset; None if its neighbours are in another order."""
        end = self._file.next_number
        found = first_where(1, end, lambda number: self._offsets(number, 1)[0] >= offset)
        low, high = max(1, found - _NEIGHBOURS), min(end, found + _NEIGHBOURS)
        around = self._offsets(low, high - low)
        before, behind = around[: found - low], around[found - low :]
        in_order = all(one < offset for one in before) and all(one >= offset for one in behind)
        return found if in_order else None

    def _offsets(self, first: int, count: int) -> list[int]:
        return [
            entry.physical_offset for entry in self._file.entries(self._slots, first, first + count)
        ]
