"""Writers: send the rows of Spark's tasks, in batches and as streams.

A task encodes its rows batch by batch, keeps a bounded number of them in flight, and returns when
all are stored. A row that cannot be stored fails the task, with an error that names the row.

`delivery=atLeastOnce`: rows are visible as soon as they are stored; a task that Spark retries sends
its rows again. `delivery=exactlyOnce`: rows are staged, and `commit` moves those of the tasks that
count to their queues (`staging.py`).

Spark waits for the process that starts a stream, so readers never import this module.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from orbitmq.client import Producer
from orbitmq.client.aio.sending.staged_writer import new_write_id
from orbitmq.client.core import namespaces
from orbitmq.client.core.sending.message_checks import check_send_topic
from orbitmq.client.sync.staged_writer import StagedWriter
from orbitmq.clock import SystemClock
from orbitmq.errors import SettingsError
from orbitmq.model.unique_ids import UniqueIdRanges
from orbitmq.protocol.requests.staged_writes import BATCH_PREFIX
from orbitmq.spark.sessions.client_pool import ClientPool
from orbitmq.spark.sessions.short_errors import short_errors
from orbitmq.spark.sessions.worker_process import freeze_loaded_modules, keep_freed_memory
from orbitmq.spark.writing.delivery_marks import TaskMark
from orbitmq.spark.writing.message_rows import RowEncoder
from orbitmq.spark.writing.parcels import ROWS_MAX, STAGED_ROWS_MAX, Packing
from orbitmq.spark.writing.row_errors import RowRefused, not_sent, refused
from orbitmq.spark.writing.row_targets import RowRouter
from orbitmq.spark.writing.send_window import ParcelError, SendWindow
from orbitmq.spark.writing.staging import Staged, Staging, decision_of
from orbitmq.spark.writing.stream_checkpoint import StreamCheckpoint, checkpoint_location
from orbitmq.spark.writing.write_columns import WriteColumns, write_columns
from orbitmq.transport.local_machine import local_address

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from orbitmq.protocol.requests.staged_writes import BatchDecision, BatchStatus
    from orbitmq.spark.options.write_options import WriteOptions
    from orbitmq.spark.writing.row_targets import QueuesOf

log = logging.getLogger(__name__)

# Most rows and bytes to encode at once, so that positions fit 32 bits.
_CHUNK_ROWS_MAX: Final = 20_000
_CHUNK_BYTES_MAX: Final = 64 * 1024 * 1024
_BATCH_PROPERTY: Final = "streaming.sql.batchId"
_QUERY_PROPERTY: Final = "sql.streaming.queryId"
_CHECKPOINTS_PROPERTY: Final = "spark.sql.streaming.checkpointLocation"
# Connections that stay open between tasks; more clusters, or writes with other options, are rare.
_IDLE_MAX: Final = 4

_producers: Final = ClientPool(Producer, idle_max=_IDLE_MAX)
_staged_writers: Final = ClientPool(StagedWriter, idle_max=_IDLE_MAX)


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """A task's report to the driver: how many rows it wrote."""

    rows: int


@short_errors
class BatchWriter(DataSourceArrowWriter):
    """Writes the rows of a batch."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise SettingsError("a topic cannot be overwritten", hint='write with .mode("append")')
        if options.is_exactly_once and not options.write_id:
            raise SettingsError(
                "a batch that is written exactly once needs the option writeId",
                hint="choose any name: of all batches written under it, only the first counts",
            )
        self._options = options
        self._columns = write_columns(schema, options)
        # A batch has no query: this names the write in the marks of its messages.
        self._mark_id = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task."""
        freeze_loaded_modules()
        keep_freed_memory()
        task = _task_mark(self._mark_id, 0)
        if self._options.is_exactly_once:
            query = f"{BATCH_PREFIX}{self._options.write_id}"
            return stage_rows(iterator, self._options, self._columns, task, query)
        return write_rows(iterator, self._options, self._columns, task)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Move staged rows to their queues."""
        writes = _staged(messages)
        if not writes:
            return
        query = f"{BATCH_PREFIX}{self._options.write_id}"
        decision = decision_of(writes, query=query, batch=0, target=_target(self._options))
        status = commit_staged(decision, self._options)
        if not status.counts:
            log.warning(
                "nothing was written: an earlier batch has this writeId, and its rows stay "
                "writeId=%s rows_dropped=%d; new rows need a new writeId",
                self._options.write_id,
                _rows(writes),
            )


@short_errors
class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of a stream's micro-batches."""

    def __init__(
        self,
        options: WriteOptions,
        schema: StructType,
        *,
        overwrite: bool,
        checkpoint: str = "",
        query_name: str = "",
    ) -> None:
        """Make a writer; Spark makes another for each commit.

        Args:
            options: where rows go, and how.
            schema: of the rows.
            overwrite: refused.
            checkpoint: the query's option checkpointLocation.
            query_name: the query's name, if it has one.
        """
        if overwrite:
            raise SettingsError(
                "a topic cannot be overwritten, so output mode complete is not available",
                hint='use .outputMode("append") or "update"',
            )
        if options.write_id:
            raise SettingsError(
                "writeId is for batches, and this is a stream",
                hint="leave it out: the checkpoint identifies a stream",
            )
        self._options = options
        self._checkpoint = checkpoint
        self._query_name = query_name
        self._columns = write_columns(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task of a micro-batch."""
        freeze_loaded_modules()
        keep_freed_memory()
        context = _task_context()
        query = context.getLocalProperty(_QUERY_PROPERTY)
        batch = context.getLocalProperty(_BATCH_PROPERTY)
        # Invariant: Spark sets both for every task of a stream (tests/spark/test_writing.py).
        assert query is not None
        assert batch is not None
        task = _task_mark(query.replace("-", ""), int(batch))
        if self._options.is_exactly_once:
            checkpoints = context.getLocalProperty(_CHECKPOINTS_PROPERTY)
            return stage_rows(iterator, self._options, self._columns, task, query, checkpoints)
        return write_rows(iterator, self._options, self._columns, task)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's
        """Move the staged rows of a micro-batch to their queues."""
        if not self._options.is_exactly_once:
            return
        writes = _staged(messages)
        decision = self._decision(writes, batchId)
        if decision is None:
            return
        status = commit_staged(decision, self._options)
        if status.counts or not writes:
            return
        if status.same_source:
            log.info(
                "batch was committed before, by a run that ended query=%s batch=%d; its rows stay",
                decision.query,
                batchId,
            )
        else:
            log.warning(
                "nothing was written: this batch was committed before, and its rows stay "
                "query=%s batch=%d rows_dropped=%d; that is right after a crash, but not if the "
                "checkpoint was copied or restored",
                decision.query,
                batchId,
                _rows(writes),
            )

    def _decision(self, writes: Sequence[Staged], batch: int) -> BatchDecision | None:
        """What to decide for a batch; None if it has no rows, and its query is not known."""
        folder = writes[0].checkpoints if writes else None
        location = checkpoint_location(self._checkpoint, folder, self._query_name)
        checkpoint = StreamCheckpoint(location) if location else None
        if writes:
            query: str | None = writes[0].query
        else:
            query = checkpoint.query() if checkpoint is not None else None
        if query is None:
            return None
        source = checkpoint.source_range(query, batch) if checkpoint is not None else None
        return decision_of(
            writes, query=query, batch=batch, source=source, target=_target(self._options)
        )


def pooled_producer(options: WriteOptions) -> AbstractContextManager[Producer]:
    """Lend a running producer with these options."""
    return _producers.lend(options.group, **options.producer_keywords())


def pooled_staged_writer(options: WriteOptions) -> AbstractContextManager[StagedWriter]:
    """Lend a running staged writer with these options."""
    return _staged_writers.lend(**options.client_keywords())


def stop_clients() -> None:
    """Stop the clients of this process; the next task gets new ones."""
    _producers.stop_all()
    _staged_writers.stop_all()


def write_rows(
    batches: Iterator[pa.RecordBatch], options: WriteOptions, columns: WriteColumns, task: TaskMark
) -> Written:
    """Send all rows of a task, and return once they are stored."""
    with pooled_producer(options) as producer:
        window = SendWindow(
            lambda parcel: producer.send_async(parcel.messages(), queue=parcel.target.queue),
            rows_max=options.max_in_flight_messages,
            bytes_max=options.max_in_flight_bytes,
        )
        return Written(_fill(window, batches, options, columns, task, producer.queues))


def stage_rows(
    batches: Iterator[pa.RecordBatch],
    options: WriteOptions,
    columns: WriteColumns,
    task: TaskMark,
    query: str,
    checkpoints: str | None = None,
) -> Staged:
    """Stage all rows of a task, and return where they are once all are stored."""
    with pooled_producer(options) as producer, pooled_staged_writer(options) as writer:
        staging = Staging(
            writer,
            new_write_id(),
            queues_of=producer.queues,
            namespace=options.namespace,
            timeout_ms=options.send_timeout_ms,
        )
        # Rows are moved in the order of their numbers, in whatever order they are staged.
        window = SendWindow(
            staging.send,
            rows_max=options.max_in_flight_messages,
            bytes_max=options.max_in_flight_bytes,
            in_order=False,
        )
        rows = _fill(window, batches, options, columns, task, producer.queues)
    staged = staging.staged(query, checkpoints)
    assert staged.rows == rows
    return staged


def commit_staged(decision: BatchDecision, options: WriteOptions) -> BatchStatus:
    """Commit what tasks staged, and return the outcome."""
    with pooled_staged_writer(options) as writer:
        return writer.commit(decision, timeout_ms=options.commit_timeout_ms)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def _target(options: WriteOptions) -> str:
    """The topic of all rows, as brokers name it; empty if each row names its own."""
    return namespaces.wrap(options.namespace, options.topic) if options.topic else ""


def _rows(writes: Sequence[Staged]) -> int:
    return sum(write.rows for write in writes)


def _fill(
    window: SendWindow,
    batches: Iterator[pa.RecordBatch],
    options: WriteOptions,
    columns: WriteColumns,
    task: TaskMark,
    queues_of: QueuesOf,
) -> int:
    """Send all rows through the window; returns how many, once all are stored."""
    encoder = RowEncoder(
        columns,
        task,
        UniqueIdRanges(local_address(), SystemClock().now_ms),
        body_bytes_max=options.max_message_bytes,
        namespace=options.namespace,
    )
    router = RowRouter(
        columns,
        topic=options.topic,
        queues_of=queues_of,
        check_topic=lambda topic: check_send_topic(namespaces.wrap(options.namespace, topic)),
        replaces_missing=options.missing_queues == "replace",
    )
    packing = Packing(
        batch_bytes_max=options.batch_bytes,
        compress_above_bytes=options.compress_above_bytes if options.compresses else None,
        rows_max=STAGED_ROWS_MAX if options.is_exactly_once else ROWS_MAX,
    )
    sequence = 0
    try:
        for batch in batches:
            for rows in _chunks(columns.with_our_names(batch)):
                try:
                    targets = router.targets_of(rows)
                    encoded = encoder.encode(rows, sequence)
                except RowRefused as error:
                    raise refused(error, task, rows, sequence) from error.__cause__
                for parcel in packing.pack(encoded, targets, rows, sequence):
                    window.add(parcel)
                sequence += len(rows)
        window.flush()
    except ParcelError as failed:
        parcel = failed.parcel
        row, rows, first_sequence = parcel.row()
        raise not_sent(
            failed.error,
            task,
            rows,
            row,
            first_sequence,
            topic=parcel.target.topic,
            count=parcel.count,
        ) from failed.error
    return sequence


def _chunks(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = len(batch)
    if not rows:
        return
    if rows > 1 and (rows > _CHUNK_ROWS_MAX or batch.nbytes > _CHUNK_BYTES_MAX):
        yield from _chunks(batch.slice(0, rows // 2))
        yield from _chunks(batch.slice(rows // 2))
    else:
        yield batch


def _task_context() -> TaskContext:
    context = TaskContext.get()
    # Invariant: Spark calls `write` in its tasks only.
    assert context is not None
    return context


def _task_mark(query: str, batch: int) -> TaskMark:
    context = _task_context()
    return TaskMark(
        query=query,
        batch=batch,
        partition=context.partitionId(),
        attempt=context.attemptNumber(),
    )
