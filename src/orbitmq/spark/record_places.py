"""Where the parts of many records lie, found for all of them at once.

Records whose fields lie at the same distance from their start have one layout: it depends on the
version (V2 has a longer topic length) and on which hosts are IPv6. All of one layout are read
together; `record/layout.py` shows the fields.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from orbitmq.record.layout import FIXED_BYTES, HOST_BYTES_V4, HOST_BYTES_V6, MAGIC_V1, MAGIC_V2

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Content = npt.NDArray[np.uint8]

_SIZE: Final = struct.Struct(">I")
# Bits of a layout's number; those of the hosts lie four lower than in the system flag.
_BORN_V6: Final = 1
_STORE_V6: Final = 2
_V2: Final = 4
_SYSTEM_FLAG_SHIFT: Final = 4


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where fields lie in records of one kind."""

    head: np.dtype[np.void]
    topic_length_bytes: int


def _layout(number: int) -> _Layout:
    born_host = f"V{HOST_BYTES_V6 if number & _BORN_V6 else HOST_BYTES_V4}"
    store_host = f"V{HOST_BYTES_V6 if number & _STORE_V6 else HOST_BYTES_V4}"
    head = np.dtype(
        [
            ("record_bytes", ">u4"),
            ("magic", ">u4"),
            ("body_crc", ">u4"),
            ("queue_id", ">i4"),
            ("flag", ">i4"),
            ("queue_offset", ">i8"),
            ("physical_offset", ">i8"),
            ("system_flag", ">i4"),
            ("born_ms", ">i8"),
            ("born_host", born_host),
            ("store_ms", ">i8"),
            ("store_host", store_host),
            ("reconsume_times", ">i4"),
            ("prepared_offset", ">i8"),
            ("body_bytes", ">i4"),
        ]
    )
    return _Layout(head, 2 if number & _V2 else 1)


_LAYOUTS: Final = tuple(_layout(number) for number in range(8))
_NO_LAYOUT: Final = len(_LAYOUTS)


@dataclass(frozen=True, slots=True)
class Located:
    """Records of one layout, whose lengths add up: what is in their heads, and where the rest is.

    Invariant: all of a record lies between its start and that of the next one.
    """

    # Their numbers among all records of the batch.
    rows: Positions
    # A structured array of the fields that all records have.
    heads: npt.NDArray[np.void]
    body_at: Positions
    body_bytes: Positions
    topic_at: Positions
    topic_bytes: Positions
    properties_at: Positions
    properties_bytes: Positions

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, mask: Mask) -> Located:
        """Those for which the mask is true."""
        return Located(*(getattr(self, field.name)[mask] for field in fields(self)))

    def numbers(self, field: str) -> npt.NDArray[Any]:
        """A field of all heads, as this machine writes numbers."""
        column = self.heads[field]
        return column.astype(column.dtype.newbyteorder("="))


def record_starts(records: bytes) -> tuple[Positions, int]:
    """Where records start that lie back to back, and where the last ends.

    That is the end of them unless something else lies there, or the last one is cut off.
    """
    starts: list[int] = []
    at = 0
    last = len(records) - FIXED_BYTES
    size_at, append = _SIZE.unpack_from, starts.append
    # Perf: 0.13 us a record, with nothing in the loop that is not needed (timeit).
    while at <= last:
        (size,) = size_at(records, at)
        if size < FIXED_BYTES:
            break
        append(at)
        at += size
    return np.array(starts, dtype=np.int64), at


def locate_all(content: Content, positions: Positions) -> list[Located]:
    """Locate the records that start at the positions, by layout.

    What is no whole record, and a record that reaches into the next one, is in none of them.
    """
    # No record is shorter, so that what lies nearer to the end is none.
    whole = int(np.searchsorted(positions, len(content) - FIXED_BYTES, side="right"))
    starts = positions[:whole]
    if not whole:
        return []
    heads = _heads(content, starts, _LAYOUTS[0])
    magic = heads["magic"]
    is_v2 = magic == MAGIC_V2
    ends = starts + heads["record_bytes"]
    limits = np.append(positions[1:], len(content))[:whole]
    sound = (is_v2 | (magic == MAGIC_V1)) & (ends <= limits)
    numbers = (heads["system_flag"] >> _SYSTEM_FLAG_SHIFT) & (_BORN_V6 | _STORE_V6)
    numbers = np.where(sound, numbers + _V2 * is_v2, _NO_LAYOUT)
    rows = np.arange(whole)
    found: list[Located] = []
    for number, count in enumerate(np.bincount(numbers, minlength=_NO_LAYOUT)[:_NO_LAYOUT]):
        if count == whole:
            found.append(_locate(content, starts, rows, heads, number))
        elif count:
            chosen = numbers == number
            found.append(_locate(content, starts[chosen], rows[chosen], heads[chosen], number))
    return [located for located in found if len(located)]


def _heads(content: Content, positions: Positions, layout: _Layout) -> npt.NDArray[np.void]:
    return windows(content, layout.head.itemsize)[positions].view(layout.head)


def windows(content: Content, width: int) -> npt.NDArray[np.void]:
    """All stretches of so many bytes, by where they start; nothing is copied."""
    # Perf: taking some of these takes 9 ns for each of 88 bytes, 22 of a sliding_window_view, which
    # has a row of bytes for each (benchmarks/arrow_decode.py).
    count = max(len(content) - width + 1, 0)
    return np.ndarray((count,), f"V{width}", content, 0, (1,))


def _locate(
    content: Content,
    positions: Positions,
    rows: Positions,
    heads: npt.NDArray[np.void],
    number: int,
) -> Located:
    """Locate records of one layout, and leave out those whose lengths do not add up."""
    layout = _LAYOUTS[number]
    ends = positions + heads["record_bytes"]
    last = len(content) - 1
    if number & (_BORN_V6 | _STORE_V6):
        long_enough = positions + layout.head.itemsize <= ends
        if not long_enough.all():
            positions, rows, ends = positions[long_enough], rows[long_enough], ends[long_enough]
        heads = _heads(content, positions, layout)
    body_bytes = heads["body_bytes"].astype(np.int64)
    body_at = positions + layout.head.itemsize
    body_end = body_at + body_bytes
    # Invariant: positions are kept within the content before anything is read there; a record of
    # which that changes a position does not add up at the end.
    topic_length_at = np.minimum(np.maximum(body_end, 0), last - 1)
    topic_bytes = content[topic_length_at].astype(np.int64)
    if layout.topic_length_bytes == 2:
        topic_bytes = topic_bytes << 8 | content[topic_length_at + 1]
    topic_at = body_end + layout.topic_length_bytes
    topic_end = topic_at + topic_bytes
    properties_length_at = np.minimum(np.maximum(topic_end, 0), last - 1)
    properties_bytes = content[properties_length_at].astype(np.int64) << 8
    properties_bytes |= content[properties_length_at + 1]
    properties_at = topic_end + 2
    # Compat: lengths are signed in Java.
    topic_bytes_max = 0x7FFF if layout.topic_length_bytes == 2 else 0x7F
    sound = (
        (body_bytes >= 0)
        & (topic_at <= ends)
        & (topic_bytes <= topic_bytes_max)
        & (properties_at <= ends)
        & (properties_bytes <= 0x7FFF)
        & (properties_at + properties_bytes == ends)
    )
    located = Located(
        rows, heads, body_at, body_bytes, topic_at, topic_bytes, properties_at, properties_bytes
    )
    return located if sound.all() else located.select(sound)
