"""Decodes records into batches of rows; several if bodies decompress to too much.

A few kilobytes may decompress to gigabytes. Such records are decoded in halves, so that memory
holds one batch of a bounded size, or a single message, however large its body is. A record that
cannot be read is isolated in the same way, if the query is to continue.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Iterator
from typing import Final, Literal

import pyarrow as pa

from orbitmq.errors import BatchTooLargeError, ProtocolError
from orbitmq.spark.rows.plain_rows import Positions, TopicAt, unknown_topic
from orbitmq.spark.rows.row_decoder import RowDecoder

log = logging.getLogger(__name__)

OnUnreadable = Literal["fail", "skip", "null"]

# Unreadable records of a task that are logged one by one; of the others, the count is.
LOGGED_MAX: Final = 10


class RowBatches:
    """Makes the batches of one task, and counts what cannot be read."""

    def __init__(self, decoder: RowDecoder, on_unreadable: OnUnreadable = "fail") -> None:
        """Fail at an unreadable record, skip it, or return null for what cannot be read of it."""
        self._decoder = decoder
        self._on_unreadable = on_unreadable
        self._unreadable = 0

    def of(
        self,
        buffer: bytes | memoryview | mmap.mmap,
        positions: Positions,
        broker_name: str,
        topic_at: TopicAt = unknown_topic,
    ) -> Iterator[pa.RecordBatch]:
        """Decode the records at the positions, in order, into as few batches as can hold them.

        `topic_at` names the topic of a record whose own name for it cannot be read.
        """
        batch: pa.RecordBatch | None = None
        try:
            batch = self._decoder.decode(buffer, positions, broker_name, topic_at)
        except BatchTooLargeError:
            if len(positions) == 1:
                raise
        except ProtocolError as error:
            if self._on_unreadable == "fail":
                raise
            if len(positions) == 1:
                self._note(error)
                if self._on_unreadable == "null":
                    yield self._decoder.readable_part(
                        buffer, int(positions[0]), broker_name, topic_at
                    )
                return
        # The error holds what was decompressed so far, which is released here.
        if batch is not None:
            yield batch
            return
        middle = len(positions) // 2
        for half in (positions[:middle], positions[middle:]):
            yield from self.of(buffer, half, broker_name, topic_at)

    def end(self) -> None:
        """Log how many records could not be read, if not all of them were logged."""
        if self._unreadable > LOGGED_MAX:
            log.warning("unreadable messages count=%d", self._unreadable)

    def _note(self, error: ProtocolError) -> None:
        self._unreadable += 1
        if self._unreadable <= LOGGED_MAX:
            done = "skipped" if self._on_unreadable == "skip" else "null"
            log.warning("unreadable message, %s: %s", done, error.args[0])
