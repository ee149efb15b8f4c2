"""Parcels: groups of rows that are sent together, in one request.

A parcel holds rows for one target, in order, up to a number and a size. A row that is delayed,
compressed or larger than that is sent on its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from orbitmq.client.core.sending.encoded_messages import EncodedMessages
from orbitmq.spark.writing.message_parts import HEAD_BYTES, LENGTH_BYTES
from orbitmq.spark.writing.property_texts import offsets_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from orbitmq.spark.writing.message_rows import EncodedRows
    from orbitmq.spark.writing.row_targets import BatchTargets, RowTarget

# Perf: OrbitMQ's brokers take their slower path for larger batches (protocol/plain_sends.py).
ROWS_MAX: Final = 4000
# Brokers process each staged row on its own, while other requests wait.
STAGED_ROWS_MAX: Final = 1000
# Rows of a batch that may go to any queue make at least this many parcels, of at least this many
# rows: queues take parcels in turn, and even a few rows should not all go to one queue.
_PARCELS_MIN: Final = 4
_ROWS_MIN: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class SentRows:
    """Rows of one Arrow batch in the order in which they are sent."""

    content: memoryview
    # Where in `content` each starts, and the last ends.
    offsets: npt.NDArray[np.int64]
    body_bytes: npt.NDArray[np.int64]
    # The position of each in `rows`; None if unchanged.
    order: npt.NDArray[np.int64] | None
    # For naming rows in errors: the batch, or the rows left of it.
    rows: pa.RecordBatch
    # How many rows of the task precede the batch, or each row.
    first_sequence: int
    sequences: npt.NDArray[np.int64] | None = None

    @property
    def held_bytes(self) -> int:
        """The approximate memory it holds, however few of its rows are still needed."""
        arrays = (self.offsets, self.body_bytes, self.order, self.sequences)
        return (
            self.content.nbytes
            + sum(array.nbytes for array in arrays if array is not None)
            + int(self.rows.get_total_buffer_size())
        )


@dataclass(frozen=True, slots=True)
class Parcel:
    """Rows that are sent in one request."""

    target: RowTarget
    sent: SentRows
    start: int
    stop: int
    is_batch: bool
    # How many rows of the task precede it.
    sequence: int

    @property
    def count(self) -> int:
        """The number of rows."""
        return self.stop - self.start

    @property
    def size(self) -> int:
        """The size in bytes."""
        return int(self.sent.offsets[self.stop] - self.sent.offsets[self.start])

    def messages(self) -> EncodedMessages:
        """The messages to send."""
        if self.is_batch:
            return EncodedMessages(self.target.topic, self.packed())
        sent = self.sent
        begin, end = int(sent.offsets[self.start]), int(sent.offsets[self.stop])
        body_at = begin + HEAD_BYTES
        body_end = body_at + int(sent.body_bytes[self.start])
        return EncodedMessages(
            self.target.topic,
            bytes(sent.content[body_at:body_end]),
            str(sent.content[body_end + LENGTH_BYTES : end], "utf-8"),
            int.from_bytes(sent.content[begin + 12 : begin + 16], signed=True),
            is_batch=False,
        )

    def packed(self) -> bytes:
        """Its rows as a batch, even if it is a single one that would be sent on its own."""
        begin, end = self.sent.offsets[[self.start, self.stop]]
        return bytes(self.sent.content[begin:end])

    def halves(self) -> tuple[Parcel, Parcel]:
        """Split it in two; it has more than one row."""
        middle = (self.start + self.stop) // 2
        second_sequence = self.sequence + middle - self.start
        return (
            replace(self, stop=middle, is_batch=True),
            replace(self, start=middle, is_batch=True, sequence=second_sequence),
        )

    def row(self) -> tuple[int, pa.RecordBatch, int]:
        """Its first row: its position in the batch, the batch, and how many rows precede that."""
        sent = self.sent
        row = self.start if sent.order is None else int(sent.order[self.start])
        if sent.sequences is None:
            return row, sent.rows, sent.first_sequence
        return row, sent.rows, int(sent.sequences[self.start]) - row


def copied(parcels: Sequence[Parcel]) -> list[Parcel]:
    """Copy parcels of one batch, so that they hold only the rows that they need."""
    sent = parcels[0].sent
    taken = np.concatenate([np.arange(each.start, each.stop) for each in parcels])
    rows = taken if sent.order is None else sent.order[taken]
    sequences = sent.first_sequence + rows if sent.sequences is None else sent.sequences[taken]
    # Errors take the topic from the parcel, so they need only the keys of a row.
    named_by = [name for name in ("keys",) if name in sent.rows.schema.names]
    copy = SentRows(
        memoryview(b"".join(each.packed() for each in parcels)),
        np.concatenate([[0], np.cumsum(np.diff(sent.offsets)[taken])]),
        sent.body_bytes[taken],
        None,
        sent.rows.select(named_by).take(pa.array(rows)),
        sent.first_sequence,
        sequences,
    )
    starts = np.cumsum([0, *(each.count for each in parcels)]).tolist()
    return [
        replace(each, sent=copy, start=start, stop=start + each.count)
        for each, start in zip(parcels, starts, strict=False)
    ]


@dataclass(slots=True, eq=False, kw_only=True)
class Packing:
    """Puts the rows of one task into parcels."""

    # Of a parcel of several rows.
    batch_bytes_max: int
    # The smallest body to compress; None for no compression.
    compress_above_bytes: int | None
    rows_max: int = ROWS_MAX

    def pack(
        self, encoded: EncodedRows, targets: BatchTargets, rows: pa.RecordBatch, first_sequence: int
    ) -> Iterator[Parcel]:
        """Yield all rows of a batch in parcels; those for one target stay in order."""
        alone = self._alone(encoded)
        messages, body_bytes = encoded.messages, encoded.body_bytes
        order = None
        bounds = [0, len(rows)]
        if targets.of_rows is not None:
            order = np.argsort(targets.of_rows, kind="stable")
            messages = messages.take(pa.array(order))
            body_bytes = body_bytes[order]
            alone = None if alone is None else alone[order]
            counts = np.bincount(targets.of_rows, minlength=len(targets.targets))
            bounds = [0, *np.cumsum(counts).tolist()]
        offsets = offsets_of(messages).astype(np.int64)
        sent = SentRows(
            memoryview(messages.buffers()[2] or b""),
            offsets,
            body_bytes,
            order,
            rows,
            first_sequence,
        )
        for target, start, stop in zip(targets.targets, bounds, bounds[1:], strict=False):
            yield from self._of_target(target, sent, start, stop, alone)

    def _alone(self, encoded: EncodedRows) -> npt.NDArray[np.bool_] | None:
        """Which rows are sent on their own; None if none is."""
        sizes = np.diff(offsets_of(encoded.messages))
        alone = sizes > self.batch_bytes_max
        if encoded.delayed is not None:
            alone |= encoded.delayed
        if self.compress_above_bytes is not None:
            alone |= encoded.body_bytes >= self.compress_above_bytes
        return alone if alone.any() else None

    def _of_target(
        self,
        target: RowTarget,
        sent: SentRows,
        start: int,
        stop: int,
        alone: npt.NDArray[np.bool_] | None,
    ) -> Iterator[Parcel]:
        singles = [] if alone is None else (np.flatnonzero(alone[start:stop]) + start).tolist()
        for single in singles:
            yield from self._batches(target, sent, start, single)
            yield self._parcel(target, sent, single, single + 1, is_batch=False)
            start = single + 1
        yield from self._batches(target, sent, start, stop)

    def _batches(
        self, target: RowTarget, sent: SentRows, start: int, stop: int
    ) -> Iterator[Parcel]:
        offsets = sent.offsets
        rows_max = self.rows_max
        if target.queue is None:
            rows_max = min(rows_max, max(_ROWS_MIN, -(-(stop - start) // _PARCELS_MIN)))
        while start < stop:
            fitting = int(
                np.searchsorted(offsets, offsets[start] + self.batch_bytes_max, side="right")
            )
            end = min(fitting - 1, start + rows_max, stop)
            yield self._parcel(target, sent, start, end, is_batch=True)
            start = end

    @staticmethod
    def _parcel(
        target: RowTarget, sent: SentRows, start: int, stop: int, *, is_batch: bool
    ) -> Parcel:
        sequence = sent.first_sequence + start
        return Parcel(target, sent, start, stop, is_batch=is_batch, sequence=sequence)
