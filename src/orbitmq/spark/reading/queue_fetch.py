"""The work of a reading task: pulls its ranges, and yields batches of rows.

Replies of a broker are joined until they fill a batch: small batches cost more to hand over than
to make. While one is decoded, the next pulls are in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orbitmq.filtering.tags import parse_tags
from orbitmq.model.subscriptions import EVERYTHING
from orbitmq.record.layout import QUEUE_OFFSET_AT
from orbitmq.spark.reading.positions import lost_text, report_loss
from orbitmq.spark.rows.row_batches import RowBatches
from orbitmq.spark.rows.row_decoder import RowDecoder, record_positions
from orbitmq.spark.rows.schema import Projection
from orbitmq.spark.rows.wanted_rows import WantedRows
from orbitmq.spark.sessions.reader_pool import pooled_reader
from orbitmq.spark.sessions.worker_process import freeze_loaded_modules, keep_freed_memory

if TYPE_CHECKING:
    from orbitmq.client.aio.pull.record_reader import RecordRun
    from orbitmq.spark.options.read_options import ReadOptions
    from orbitmq.spark.reading.partitions import QueuePartition

# A batch is handed over once it has this many rows or bytes.
BATCH_ROWS: Final = 5_000
BATCH_BYTES: Final = 1024 * 1024


def read_partition(
    partition: QueuePartition, options: ReadOptions, projection: Projection
) -> Iterator[pa.RecordBatch]:
    """Read a task's partition; runs on an executor."""
    freeze_loaded_modules()
    keep_freed_memory()
    tags = parse_tags(options.tags).tags if options.tags else None
    wanted = WantedRows(projection, tags)
    batches = RowBatches(RowDecoder(wanted.decoded), options.unreadable_choice)
    ranges = [(part.queue, part.start, part.end) for part in partition.ranges]
    with pooled_reader(options) as reader:
        runs = reader.read(ranges, options.expression, with_bodies=projection.has_bodies)
        for piece in _pieces(_checked(runs, options)):
            for rows in batches.of(
                piece.records, piece.positions, piece.broker_name, piece.topic_at
            ):
                yield wanted.of(rows)
    batches.end()


@dataclass(slots=True)
class _Piece:
    """Records of one broker, back to back, and where each starts."""

    broker_name: str
    records: bytes
    positions: npt.NDArray[np.int64]
    # The topics of the records, each with the position of its first one.
    topics: list[tuple[int, str]]

    def topic_at(self, at: int) -> str:
        """The topic of the queue that the record at a position was read from."""
        return next(topic for start, topic in reversed(self.topics) if start <= at)


def _checked(runs: Iterable[RecordRun], options: ReadOptions) -> Iterator[_Piece]:
    """Find where records start, and report missing ones."""
    is_whole = options.expression == EVERYTHING
    for run in runs:
        if run.is_lost:
            report_loss(options, lost_text(run.queue, run.start, run.end))
            continue
        positions = record_positions(
            run.records, broker_name=run.queue.broker_name, topic=run.queue.topic
        )
        if is_whole and len(positions) < run.end - run.start:
            start, end = first_gap(queue_offsets(run.records, positions), run.start, run.end)
            report_loss(options, lost_text(run.queue, start, end))
        if len(positions):
            topics = [(0, run.queue.topic)]
            yield _Piece(run.queue.broker_name, run.records, positions, topics)


def queue_offsets(records: bytes, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Read the queue offset of each record."""
    octets = np.frombuffer(records, np.uint8)
    at = positions[:, None] + np.arange(QUEUE_OFFSET_AT, QUEUE_OFFSET_AT + 8)
    numbers: npt.NDArray[np.int64] = octets[at].view(">i8").ravel().astype(np.int64)
    return numbers


def first_gap(present: npt.NDArray[np.int64], start: int, end: int) -> tuple[int, int]:
    """Find the first run of missing numbers from `start` to `end`; at least one is missing."""
    missing = np.setdiff1d(np.arange(start, end), present)
    breaks = np.flatnonzero(np.diff(missing) > 1)
    last = missing[breaks[0]] if len(breaks) else missing[-1]
    return int(missing[0]), int(last) + 1


def _pieces(parts: Iterable[_Piece]) -> Iterator[_Piece]:
    """Join small pieces of the same broker."""
    held: list[_Piece] = []
    rows = size = 0
    for part in parts:
        if held and held[0].broker_name != part.broker_name:
            yield _joined(held)
            held, rows, size = [], 0, 0
        held.append(part)
        rows += len(part.positions)
        size += len(part.records)
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield _joined(held)
            held, rows, size = [], 0, 0
    if held:
        yield _joined(held)


def _joined(parts: list[_Piece]) -> _Piece:
    if len(parts) == 1:
        return parts[0]
    starts = [0, *accumulate(len(part.records) for part in parts[:-1])]
    return replace(
        parts[0],
        records=b"".join([part.records for part in parts]),
        positions=np.concatenate(
            [part.positions + start for part, start in zip(parts, starts, strict=True)]
        ),
        topics=[(start, part.topics[0][1]) for part, start in zip(parts, starts, strict=True)],
    )
