"""Decodes records into batches of rows; several if bodies decompress to too much.

A few kilobytes may decompress to gigabytes. Such records are decoded in halves, so that memory
holds one batch of a bounded size, or a single message, however large its body is. A record that
cannot be read is isolated in the same way, if the query may continue without it.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Iterator

import pyarrow as pa

from orbitmq.errors import BatchTooLargeError, ProtocolError
from orbitmq.spark.rows.plain_rows import Positions
from orbitmq.spark.rows.row_decoder import RowDecoder

log = logging.getLogger(__name__)


def row_batches(
    decoder: RowDecoder,
    buffer: bytes | memoryview | mmap.mmap,
    positions: Positions,
    broker_name: str,
    *,
    fail_on_data_loss: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Decode the records at the positions, in order, into as few batches as can hold them.

    A record that cannot be read fails the query, or is skipped and logged.
    """
    batch: pa.RecordBatch | None = None
    try:
        batch = decoder.decode(buffer, positions, broker_name)
    except BatchTooLargeError:
        if len(positions) == 1:
            raise
    except ProtocolError as error:
        if fail_on_data_loss:
            raise
        if len(positions) == 1:
            log.warning("data loss: %s", error)
            return
    # The error holds what was decompressed so far, which is released here.
    if batch is not None:
        yield batch
        return
    middle = len(positions) // 2
    for half in (positions[:middle], positions[middle:]):
        yield from row_batches(
            decoder, buffer, half, broker_name, fail_on_data_loss=fail_on_data_loss
        )
