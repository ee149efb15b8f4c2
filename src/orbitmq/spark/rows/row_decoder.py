"""Decodes stored records, from pull replies and log files alike, into Arrow rows.

The compiled form (`compiled_rows.py`), if available, reads what it can. The plain form
(`plain_rows.py`) reads the rest: other records, and damaged ones, for which it raises. Rows keep
the order of their records.

A batch is a copy, so the bytes it was made from may be released. One batch should have 5,000 to
10,000 rows or 1 to 5 MB of records, whichever is reached first: Spark handles these fastest. No
column can hold 2 GiB, and bodies of several rows may not decompress to more than 64 MiB: both are
errors. Only `row_batches.py` splits batches.
"""

from __future__ import annotations

import mmap
import struct
from typing import Final

import numpy as np
import pyarrow as pa

from orbitmq.errors import BatchTooLargeError
from orbitmq.record.decode import examine
from orbitmq.spark.rows import fast_forms
from orbitmq.spark.rows.plain_rows import (
    COLUMN_BYTES_MAX,
    PlainRows,
    Positions,
    TopicAt,
    unknown_topic,
    unreadable,
)
from orbitmq.spark.rows.schema import Projection

_SIZE: Final = struct.Struct(">I")


def record_positions(records: bytes, *, broker_name: str = "", topic: str = "") -> Positions:
    """Where records start that are back to back, as in the reply to a pull."""
    starts, at = fast_forms.record_starts(records)
    end = len(records)
    if at != end:
        wrong_at = at if at < end else int(starts[-1])
        found = examine(records, wrong_at, end, check_body=False)
        reason = f"found {found.verdict.value} at byte {wrong_at} of {end}: {found.reason}"
        raise unreadable(records, wrong_at, broker_name, reason, topic=topic)
    return starts


class RowDecoder:
    """Decodes records into rows."""

    def __init__(self, projection: Projection, *, check_bodies: bool = False) -> None:
        """Decode to the columns of the projection; with `check_bodies`, check their CRC."""
        self._schema = projection.arrow_schema
        self._plain = PlainRows(projection, check_bodies=check_bodies)
        self._compiled = None
        if fast_forms.fast_rows is not None:
            self._compiled = fast_forms.fast_rows(projection, check_bodies=check_bodies)

    def decode(
        self,
        buffer: bytes | memoryview | mmap.mmap,
        positions: Positions,
        broker_name: str,
        topic_at: TopicAt = unknown_topic,
    ) -> pa.RecordBatch:
        """Read the records that start at the positions, which ascend; one row each, in order.

        `topic_at` names the topic of a record whose own name for it cannot be read.

        Raises ProtocolError for a record that cannot be read, or whose body does not match its
        checksum if that is checked, and BatchTooLargeError if a column would take 2 GiB or
        bodies decompress to too much for one batch.
        """
        if not len(positions):
            return pa.RecordBatch.from_pylist([], schema=self._schema)
        base, end = _span(buffer, positions)
        batch, left = None, np.arange(len(positions))
        if self._compiled is not None:
            content = pa.py_buffer(buffer).slice(base, end - base)
            starts = positions - base if base else positions
            batch, is_left = self._compiled.decode(content, starts, broker_name)
            # Perf: what follows takes as long as the rows themselves.
            if batch is not None and batch.num_rows == len(positions):
                return batch
            left = np.flatnonzero(is_left)
        _check_positions(positions, len(buffer))
        bytes_like = buffer if isinstance(buffer, bytes) else memoryview(buffer)
        others = self._plain.decode(bytes_like, positions[left].tolist(), broker_name, topic_at)
        return others if batch is None else _in_order(batch, others, left)

    def readable_part(
        self,
        buffer: bytes | memoryview | mmap.mmap,
        at: int,
        broker_name: str,
        topic_at: TopicAt = unknown_topic,
    ) -> pa.RecordBatch:
        """Make a row of what can be read of a record, and null for the rest."""
        bytes_like = buffer if isinstance(buffer, bytes) else memoryview(buffer)
        return self._plain.readable_part(bytes_like, at, broker_name, topic_at)


def _check_positions(positions: Positions, buffer_bytes: int) -> None:
    if positions[0] < 0 or positions[-1] >= buffer_bytes or (np.diff(positions) <= 0).any():
        raise ValueError(
            f"{len(positions)} positions from {positions[0]} to {positions[-1]} do not ascend "
            f"within {buffer_bytes} bytes"
        )


def _span(buffer: bytes | memoryview | mmap.mmap, positions: Positions) -> tuple[int, int]:
    """The part of the buffer with the records; refuses one too large for Arrow's offsets."""
    if len(buffer) <= COLUMN_BYTES_MAX:
        return 0, len(buffer)
    _check_positions(positions, len(buffer))
    first, last = int(positions[0]), int(positions[-1])
    end = len(buffer)
    if end - last >= _SIZE.size:
        end = min(end, last + _SIZE.unpack_from(buffer, last)[0])
    if end - first > COLUMN_BYTES_MAX:
        raise BatchTooLargeError(len(positions), bytes_max=COLUMN_BYTES_MAX)
    return first, end


def _in_order(
    batch: pa.RecordBatch, others: pa.RecordBatch, other_rows: Positions
) -> pa.RecordBatch:
    """Merge two batches, with the rows of the second at their positions."""
    rows = batch.num_rows + others.num_rows
    if batch.nbytes + others.nbytes > COLUMN_BYTES_MAX:
        raise BatchTooLargeError(rows, bytes_max=COLUMN_BYTES_MAX)
    order = np.empty(rows, np.int64)
    order[other_rows] = np.arange(batch.num_rows, rows)
    order[np.delete(np.arange(rows), other_rows)] = np.arange(batch.num_rows)
    return pa.concat_batches([batch, others]).take(pa.array(order))
