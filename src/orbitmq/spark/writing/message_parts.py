"""The parts of the messages of a batch, and the plain form of encoding them.

A message has a head, its body, and its properties: the unique id, the delivery mark (a prefix
common to the task, then the number of the row), an entry for each column, and the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from orbitmq.record.layout import PROPERTIES_BYTES_MAX
from orbitmq.spark.writing.property_texts import entry_parts, joined, lengths_of
from orbitmq.spark.writing.row_errors import RowRefused

if TYPE_CHECKING:
    import numpy.typing as npt

HEAD_BYTES: Final = 20
LENGTH_BYTES: Final = 2
# Ids end in a counter of this many hexadecimal digits.
ID_DIGITS: Final = 12
_DIGITS: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageParts:
    """The parts of many messages; no text among them is null, and all columns are equally long."""

    bodies: pa.Array
    # The producer's own number of each; None for 0.
    flags: npt.NDArray[np.int64] | None
    # The property of the unique id without its counter, and the counter of the first row.
    id_prefix: bytes
    first_id: int
    # What follows the id, up to the number of the row; and the number of the first row.
    mark: bytes
    first_sequence: int
    # Names of properties, and their values; an empty value means no property.
    entries: Sequence[tuple[str, pa.Array]]
    # Further properties, already encoded; None if there are none.
    rest: pa.Array | None


def messages_of(parts: MessageParts) -> pa.Array:
    """Encode messages; raises RowRefused for one whose properties are too long."""
    count = len(parts.bodies)
    sequences = pa.array(np.arange(parts.first_sequence, parts.first_sequence + count))
    texts: list[pa.Array | pa.Scalar] = [
        _unique_ids(parts, count),
        pa.scalar(parts.mark, pa.binary()),
        sequences.cast(pa.string()).cast(pa.binary()),
        pa.scalar(b"\x02", pa.binary()),
    ]
    for name, values in parts.entries:
        texts += entry_parts(name, values)
    if parts.rest is not None:
        texts.append(parts.rest)
    properties = joined(*texts)
    properties_bytes = lengths_of(properties)
    if count and properties_bytes.max() > PROPERTIES_BYTES_MAX:
        row = int(properties_bytes.argmax())
        raise too_long(row, int(properties_bytes[row]))
    body_bytes = lengths_of(parts.bodies)
    heads = np.zeros((count, 5), ">i4")
    heads[:, 0] = HEAD_BYTES + body_bytes + LENGTH_BYTES + properties_bytes
    heads[:, 3] = 0 if parts.flags is None else parts.flags
    heads[:, 4] = body_bytes
    return joined(
        _fixed(heads, HEAD_BYTES),
        parts.bodies,
        _fixed(properties_bytes.astype(">i2"), LENGTH_BYTES),
        properties,
    )


def too_long(row: int, properties_bytes: int) -> RowRefused:
    """Make the error for a row whose properties are too long."""
    return RowRefused(
        row,
        f"its properties take {properties_bytes} bytes, above the limit of {PROPERTIES_BYTES_MAX}",
        hint="move large values into the body",
    )


def _unique_ids(parts: MessageParts, count: int) -> pa.Array:
    """The property of the unique id, without its terminator."""
    prefix = np.frombuffer(parts.id_prefix, np.uint8)
    numbers = np.arange(parts.first_id, parts.first_id + count, dtype=">u8")
    digits = numbers.view(np.uint8).reshape(count, 8)[:, 2:]
    texts = np.empty((count, len(prefix) + ID_DIGITS), np.uint8)
    texts[:, : len(prefix)] = prefix
    texts[:, len(prefix) :: 2] = _DIGITS[digits >> 4]
    texts[:, len(prefix) + 1 :: 2] = _DIGITS[digits & 15]
    return _fixed(texts, len(prefix) + ID_DIGITS)


def _fixed(values: npt.NDArray[Any], width: int) -> pa.Array:
    """An array of texts of one width."""
    count = len(values)
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), count, [None, pa.py_buffer(np.ascontiguousarray(values))]
    )
    return fixed.cast(pa.binary())
