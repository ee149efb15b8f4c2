"""Encodes the messages of a batch with the compiled form (messages_cython.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from orbitmq.record.layout import PROPERTIES_BYTES_MAX
from orbitmq.spark.writing.compiled.messages_cython import write_messages
from orbitmq.spark.writing.message_parts import too_long

if TYPE_CHECKING:
    from orbitmq.spark.writing.compiled.messages_cython import Column
    from orbitmq.spark.writing.message_parts import MessageParts


def messages_of(parts: MessageParts) -> pa.Array:
    """Encode messages; raises RowRefused for one whose properties are too long."""
    count = len(parts.bodies)
    flags = parts.flags
    offsets, content, row, properties_bytes = write_messages(
        count,
        _column(parts.bodies),
        None if flags is None else np.ascontiguousarray(flags, np.int64).data,
        parts.id_prefix,
        parts.first_id,
        parts.mark,
        parts.first_sequence,
        [_column(values, f"{name}\x01".encode()) for name, values in parts.entries],
        None if parts.rest is None else _column(parts.rest),
    )
    if properties_bytes > PROPERTIES_BYTES_MAX:
        raise too_long(row, properties_bytes)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def _column(texts: pa.Array, name: bytes = b"") -> Column:
    _, offsets, content = texts.buffers()
    # An empty array may have no buffers.
    return name, offsets or bytes(4), texts.offset if offsets else 0, content or b""
