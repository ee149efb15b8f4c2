"""Columns out of properties: one of them, or all as a map, many rows at once.

A row of properties is ordinary when it is empty or is name, 0x01, value, 0x02 repeated, where the
last 0x02 may be missing; names and values are not empty and hold no byte below 0x03. All else is
told by a mask, to be read by the plain decoder.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.spark.arrow_columns import between, content_of, even_slots
from orbitmq.spark.record_places import Mask, windows

_NAME_END: Final = 1
_VALUE_END: Final = 2

_Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Entries:
    """Names and values of all rows, in order, as slices of the rows' bytes."""

    content: pa.Buffer
    # Where each row starts, and where the last one ends.
    row_starts: npt.NDArray[np.int32]
    starts: _Indices
    name_ends: _Indices
    ends: _Indices
    # Entries with names of some length, and these names as numbers. Perf: comparing all bytes of a
    # name at once, and looking at all entries once for each length, not for each name.
    _words: dict[int, tuple[_Indices, npt.NDArray[Any]]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.row_starts) - 1

    def values_of(self, name: bytes) -> pa.Array:
        """The value of one property in each row, null where there is none; of several, the last."""
        found = self._named(name)
        if not len(found):
            return pa.nulls(self.rows, pa.string())
        at = self.name_ends[found] + 1
        slots = between(at, self.ends[found] - at)
        values = pa.Array.from_buffers(
            pa.string(), 2 * len(found), [None, pa.py_buffer(slots), self.content]
        )
        slots_of_found = even_slots(len(found))
        # Perf: where all rows have one, comparing takes a tenth of searching for the rows (timeit).
        if len(found) == self.rows and (
            (at > self.row_starts[:-1]).all() and (at < self.row_starts[1:]).all()
        ):
            return values.take(slots_of_found)
        rows = np.searchsorted(self.row_starts, at, side="right") - 1
        # Of several in one row the last is assigned last.
        slot_of_row = np.full(self.rows, -1, dtype=np.int32)
        slot_of_row[rows] = slots_of_found
        return values.take(pa.array(slot_of_row, mask=slot_of_row < 0))

    def _named(self, name: bytes) -> _Indices:
        """Which entries have the name, of 4 or 8 bytes."""
        if len(name) not in self._words:
            found = np.flatnonzero(self.name_ends - self.starts == len(name))
            content = np.frombuffer(self.content, dtype=np.uint8)
            word = np.dtype(f"u{len(name)}")
            words = windows(content, len(name))[self.starts[found]].view(word)
            self._words[len(name)] = found, words
        found, words = self._words[len(name)]
        fits: Mask = words == np.frombuffer(name, dtype=words.dtype)[0]
        return found[fits]

    def maps(self, kind: pa.DataType) -> pa.Array | Mask:
        """All properties as maps; or which rows have a name twice, which a map cannot have."""
        entries = len(self.starts)
        slots = np.empty(4 * entries + 1, dtype=np.int32)
        slots[:-1:4] = self.starts
        slots[1::4] = self.name_ends
        slots[2::4] = self.name_ends + 1
        slots[3::4] = self.ends
        slots[-1] = len(self.content)
        parts = pa.Array.from_buffers(
            pa.string(), 4 * entries, [None, pa.py_buffer(slots), self.content]
        )
        names = parts.take(pa.array(np.arange(0, 4 * entries, 4, dtype=np.int32)))
        first_entries = np.searchsorted(self.starts, self.row_starts).astype(np.int32)
        repeated = _repeated(names, first_entries)
        if repeated is not None:
            return repeated
        values = parts.take(pa.array(np.arange(2, 4 * entries, 4, dtype=np.int32)))
        items = pa.StructArray.from_arrays(
            [names, values], fields=[kind.key_field, kind.item_field]
        )
        return pa.Array.from_buffers(
            kind, self.rows, [None, pa.py_buffer(first_entries)], children=[items]
        )


def find_entries(properties: pa.Array) -> Entries | Mask:
    """Find names and values in a column of properties; or say which rows are not ordinary."""
    terminated = _terminated(properties)
    row_starts, content = content_of(terminated)
    marks = np.flatnonzero(content <= _VALUE_END)
    kinds = content[marks]
    name_ends, ends = marks[::2], marks[1::2]
    starts = np.empty(len(ends), dtype=np.int64)
    if len(marks):
        starts[:1] = 0
        starts[1:] = ends[:-1] + 1
    # Every row ends with the end of a value, so that these follow each other in each row alone.
    if (
        len(name_ends) == len(ends)
        and (kinds[::2] == _NAME_END).all()
        and (kinds[1::2] == _VALUE_END).all()
        and (name_ends > starts).all()
        and (ends > name_ends + 1).all()
    ):
        buffer = terminated.buffers()[2] if len(content) else pa.py_buffer(b"")
        return Entries(buffer.slice(0, len(content)), row_starts, starts, name_ends, ends)
    return _malformed(row_starts, marks, kinds)


def _terminated(properties: pa.Array) -> pa.Array:
    """The same where each row ends with the end of a value: some clients leave the last one out."""
    offsets, content = content_of(properties)
    if not len(content):
        return properties
    starts, ends = offsets[:-1], offsets[1:]
    unterminated = (ends > starts) & (content[np.maximum(ends - 1, 0)] != _VALUE_END)
    if not unterminated.any():
        return properties
    joined = pc.binary_join_element_wise(properties, b"", bytes([_VALUE_END]))
    return pc.if_else(pa.array(unterminated), joined, properties)


def _malformed(
    row_starts: npt.NDArray[np.int32], marks: _Indices, kinds: npt.NDArray[np.uint8]
) -> Mask:
    """Which rows are not name and value in turn, neither of them empty."""
    first_marks = np.searchsorted(marks, row_starts)
    counts = np.diff(first_marks)
    rows = np.repeat(np.arange(len(counts)), counts)
    places = np.arange(len(marks)) - first_marks[rows]
    before = np.empty_like(marks)
    before[1:] = marks[:-1]
    is_first = places == 0
    before[is_first] = row_starts[rows[is_first]] - 1
    wrong = (kinds != _NAME_END + places % 2) | (marks - before < 2)
    malformed = np.zeros(len(counts), dtype=np.bool_)
    malformed[rows[wrong]] = True
    return malformed


def _repeated(names: pa.Array, first_entries: npt.NDArray[np.int32]) -> Mask | None:
    """Which rows have a name more than once; None when none has."""
    distinct = names.dictionary_encode()
    kinds = len(distinct.dictionary)
    counts = np.diff(first_entries)
    rows = np.repeat(np.arange(len(counts)), counts)
    pairs = rows * kinds + distinct.indices.to_numpy()
    # A table of all pairs where it is small, as it is when rows have much the same names.
    if kinds * len(counts) <= 16 * len(pairs) + 1024:
        uses = np.bincount(pairs, minlength=1)
        if uses.max() < 2:
            return None
        again = np.flatnonzero(uses > 1)
    else:
        values, uses = np.unique(pairs, return_counts=True)
        again = values[uses > 1]
        if not len(again):
            return None
    repeated = np.zeros(len(counts), dtype=np.bool_)
    repeated[again // kinds] = True
    return repeated
