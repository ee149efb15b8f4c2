"""Parcels: which rows are sent together, in one request.

A parcel holds rows of one place, in their order, up to a number and a size; one that is delayed,
compressed or larger than that goes by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from orbitmq.client.core.encoded_messages import EncodedMessages
from orbitmq.spark.message_rows import HEAD_BYTES, LENGTH_BYTES, EncodedRows
from orbitmq.spark.property_texts import offsets_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from orbitmq.spark.queue_places import Place, Places

# Perf: OrbitMQ's brokers read larger batches by their slower way (protocol/plain_batches.py).
ROWS_MAX: Final = 1000
# Rows of a batch that may go anywhere make at least so many parcels, unless those would be smaller
# than this: queues take parcels in turn, and few rows shall not all be in one queue.
_PARCELS_MIN: Final = 8
_ROWS_MIN: Final = 16


@dataclass(frozen=True, slots=True)
class SentRows:
    """Rows of one Arrow batch in the order in which they are sent."""

    content: memoryview
    # Where in `content` each begins, and the last ends.
    offsets: npt.NDArray[np.int64]
    body_bytes: npt.NDArray[np.int64]
    # The place of each in the batch it came in; None when that is the same.
    order: npt.NDArray[np.int64] | None
    # The batch, and how many rows of the task came before it.
    rows: pa.RecordBatch
    first_sequence: int


@dataclass(frozen=True, slots=True)
class Parcel:
    """Rows that are sent in one request."""

    place: Place
    sent: SentRows
    start: int
    stop: int
    is_batch: bool

    @property
    def count(self) -> int:
        """How many rows it has."""
        return self.stop - self.start

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return int(self.sent.offsets[self.stop] - self.sent.offsets[self.start])

    def messages(self) -> EncodedMessages:
        """What is sent."""
        if self.is_batch:
            return EncodedMessages(self.place.topic, self.packed())
        sent = self.sent
        begin, end = int(sent.offsets[self.start]), int(sent.offsets[self.stop])
        body_at = begin + HEAD_BYTES
        body_end = body_at + int(sent.body_bytes[self.start])
        return EncodedMessages(
            self.place.topic,
            bytes(sent.content[body_at:body_end]),
            str(sent.content[body_end + LENGTH_BYTES : end], "utf-8"),
            int.from_bytes(sent.content[begin + 12 : begin + 16], signed=True),
            is_batch=False,
        )

    def packed(self) -> bytes:
        """Its rows as a batch, also where it is one that would be sent by itself."""
        begin, end = self.sent.offsets[[self.start, self.stop]]
        return bytes(self.sent.content[begin:end])

    def halves(self) -> tuple[Parcel, Parcel]:
        """Two parcels with its rows; it has more than one."""
        middle = (self.start + self.stop) // 2
        return (
            Parcel(self.place, self.sent, self.start, middle, is_batch=True),
            Parcel(self.place, self.sent, middle, self.stop, is_batch=True),
        )

    def row(self) -> tuple[int, pa.RecordBatch, int]:
        """Its first row: the place in its batch, the batch, and how many rows came before it."""
        order = self.sent.order
        row = self.start if order is None else int(order[self.start])
        return row, self.sent.rows, self.sent.first_sequence


class Packing:
    """Puts the rows of one task into parcels."""

    def __init__(self, *, batch_bytes_max: int, compress_above_bytes: int | None) -> None:
        """Make it.

        Args:
            batch_bytes_max: how many bytes go into a parcel of many rows.
            compress_above_bytes: bodies of at least so many bytes are compressed; None for none.
        """
        self._batch_bytes_max = batch_bytes_max
        self._compress_above_bytes = compress_above_bytes

    def pack(
        self, encoded: EncodedRows, places: Places, rows: pa.RecordBatch, first_sequence: int
    ) -> Iterator[Parcel]:
        """Give all rows of a batch in parcels; those of one place in their order."""
        alone = self._alone(encoded)
        messages, body_bytes = encoded.messages, encoded.body_bytes
        order = None
        bounds = [0, len(rows)]
        if places.of_rows is not None:
            order = np.argsort(places.of_rows, kind="stable")
            messages = messages.take(pa.array(order))
            body_bytes = body_bytes[order]
            alone = None if alone is None else alone[order]
            counts = np.bincount(places.of_rows, minlength=len(places.places))
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
        for place, start, stop in zip(places.places, bounds, bounds[1:], strict=False):
            yield from self._of_place(place, sent, start, stop, alone)

    def _alone(self, encoded: EncodedRows) -> npt.NDArray[np.bool_] | None:
        """Which rows go by themselves; None when none does."""
        sizes = np.diff(offsets_of(encoded.messages))
        alone = sizes > self._batch_bytes_max
        if encoded.delayed is not None:
            alone |= encoded.delayed
        if self._compress_above_bytes is not None:
            alone |= encoded.body_bytes >= self._compress_above_bytes
        return alone if alone.any() else None

    def _of_place(
        self,
        place: Place,
        sent: SentRows,
        start: int,
        stop: int,
        alone: npt.NDArray[np.bool_] | None,
    ) -> Iterator[Parcel]:
        singles = [] if alone is None else (np.flatnonzero(alone[start:stop]) + start).tolist()
        for single in singles:
            yield from self._batches(place, sent, start, single)
            yield Parcel(place, sent, single, single + 1, is_batch=False)
            start = single + 1
        yield from self._batches(place, sent, start, stop)

    def _batches(self, place: Place, sent: SentRows, start: int, stop: int) -> Iterator[Parcel]:
        offsets = sent.offsets
        rows_max = ROWS_MAX
        if place.queue is None:
            rows_max = min(ROWS_MAX, max(_ROWS_MIN, -(-(stop - start) // _PARCELS_MIN)))
        while start < stop:
            fitting = int(
                np.searchsorted(offsets, offsets[start] + self._batch_bytes_max, side="right")
            )
            end = min(fitting - 1, start + rows_max, stop)
            yield Parcel(place, sent, start, end, is_batch=True)
            start = end
