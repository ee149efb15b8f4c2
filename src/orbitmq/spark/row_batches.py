"""Records as batches of rows: several where bodies unpack to too much for one.

A few kilobytes may unpack to gigabytes. Records that do are decoded in halves, so that memory holds
one batch of a bounded size, or one message by itself, however large its body is.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator

import pyarrow as pa

from orbitmq.errors import BatchTooLargeError
from orbitmq.spark.record_places import Positions
from orbitmq.spark.rows import RowDecoder


def row_batches(
    decoder: RowDecoder,
    buffer: bytes | memoryview | mmap.mmap,
    positions: Positions,
    broker_name: str,
) -> Iterator[pa.RecordBatch]:
    """Decode the records at the positions, in order, into as few batches as can hold them."""
    batch: pa.RecordBatch | None = None
    try:
        batch = decoder.decode(buffer, positions, broker_name)
    except BatchTooLargeError:
        if len(positions) == 1:
            raise
    # The error keeps what was unpacked so far; it is gone here.
    if batch is not None:
        yield batch
        return
    middle = len(positions) // 2
    yield from row_batches(decoder, buffer, positions[:middle], broker_name)
    yield from row_batches(decoder, buffer, positions[middle:], broker_name)
