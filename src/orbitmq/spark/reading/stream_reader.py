"""The reader of a stream: which messages a batch has, and how they are read.

Spark keeps one of these for a run of a query, in a process beside the driver, and asks it before
each batch. Another one, which is never asked, is pickled to the tasks for `read`. What a batch has
is told by its end alone (`offsets.py`), so a batch that is repeated has the same messages.

Spark ends the process without a word when the query stops: nothing here waits to be closed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from orbitmq.clock import Clock, SystemClock
from orbitmq.model.queues import MessageQueue
from orbitmq.spark.options.queue_texts import queue_text
from orbitmq.spark.options.read_options import ReadOptions
from orbitmq.spark.reading.offsets import Offsets, StreamOffset, read_stream_offset
from orbitmq.spark.reading.partitions import QueuePartition, QueueRange
from orbitmq.spark.reading.planning import TriggerGate, lags, pack, rows_within, share
from orbitmq.spark.reading.positions import lost_text, report_loss, starting_offsets, without_lost
from orbitmq.spark.reading.progress_mirror import ProgressMirror
from orbitmq.spark.rows.schema import Projection
from orbitmq.spark.sessions.worker_process import imports_of_a_worker

if TYPE_CHECKING:
    from orbitmq.spark.reading.queue_view import QueueView

log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics batch by batch."""

    def __init__(
        self, options: ReadOptions, projection: Projection, *, clock: Clock | None = None
    ) -> None:
        self._options = options
        self._projection = projection
        self._clock = clock or SystemClock()
        self._gate = TriggerGate(
            rows_min=options.min_offsets_per_trigger or 0,
            delay_max_ms=options.max_trigger_delay_ms,
        )
        self._opened: QueueView | None = None
        self._initial: dict[str, Any] | None = None
        # Where the queues end, as the last batch saw it.
        self._heads: Offsets | None = None
        # Where they ended when a run began that reads only what is there.
        self._target: Offsets | None = None
        self._mirror = ProgressMirror(options)
        # Queues that the query knows and the name servers do not tell of.
        self._hidden: AbstractSet[MessageQueue] = frozenset()

    def __reduce__(self) -> tuple[type[StreamReader], tuple[ReadOptions, Projection]]:
        """Travel to the tasks without what belongs to this process."""
        return StreamReader, (self._options, self._projection)

    # --- what the next batch has ----------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Where a query without a checkpoint begins; the same however often it is asked for."""
        if self._initial is None:
            begin = starting_offsets(self._options, self._view)
            if self._target is not None:
                # What came since is for the next run, "latest" included.
                begin = {q: min(offset, self._target.get(q, offset)) for q, offset in begin.items()}
            self._initial = StreamOffset(base={}, queues=begin).to_json()
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Read only what is there now; queues that appear later are for the next run."""
        self._target = self._view.latest(self._view.queues())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Say that there is a limit; Spark knows one at a time, `latestOffset` keeps them all."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends; `start` itself if there is none to make now."""
        position = read_stream_offset(start)
        # Spark asks for the next batch once the last one is done, so all before it is.
        self._mirror.tell(position.queues)
        self._heads = self._target
        if self._heads is None:
            self._heads = self._ends_of_queues(position.queues)
        begin = self._begin(position.queues, self._heads)
        # A queue that is out of sight, as its broker is down, stays where it is.
        end = {queue: self._heads.get(queue, offset) for queue, offset in begin.items()}
        self._check_heads(begin, end)
        if not isinstance(limit, ReadAllAvailable):
            if self._waits_for_more(begin, end):
                return start
            end = self._limited(begin, end)
        if end == position.queues:
            return start
        return StreamOffset(base=begin, queues=end).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  # Spark's name
        """Where the queues end, as seen for the last batch; Spark shows it beside its end."""
        if self._heads is None:
            return None
        return StreamOffset(base={}, queues=self._heads).to_json()

    def _ends_of_queues(self, known: Offsets) -> Offsets:
        ends = self._view.latest(self._view.queues(known.keys()))
        hidden = known.keys() - ends.keys()
        for queue in sorted(hidden - self._hidden):
            log.warning("out of sight, stays where it is: %s", queue_text(queue))
        for queue in sorted(self._hidden - hidden):
            log.warning("in sight again: %s", queue_text(queue))
        self._hidden = hidden
        return ends

    def _begin(self, known: Offsets, heads: Offsets) -> Offsets:
        """Where the next batch begins; queues that are new at their earliest message."""
        new = [queue for queue in heads if queue not in known]
        if not new:
            return known
        for queue in new:
            log.info("new queue, read from its beginning: %s", queue_text(queue))
        return {**known, **self._view.earliest(new)}

    def _check_heads(self, begin: Offsets, end: Offsets) -> None:
        """Find queues that end before where the query stands: they lost messages it has read.

        What they hold may be new or read before; it is not read, since nothing shall be read twice.
        """
        for queue, offset in begin.items():
            if end[queue] < offset:
                report_loss(
                    self._options,
                    f"{queue_text(queue)} ends at {end[queue]}, before {offset}, where the query "
                    "is: its topic was made anew, or its broker lost messages. It goes on at "
                    f"{end[queue]}, without what is there before",
                )

    def _waits_for_more(self, begin: Offsets, end: Offsets) -> bool:
        if self._options.min_offsets_per_trigger is None or self._target is not None:
            return False
        rows = sum(lags(begin, end).values())
        return not self._gate.opens(rows, now_ms=self._clock.monotonic_ms())

    def _limited(self, begin: Offsets, end: Offsets) -> Offsets:
        limits = []
        if self._options.max_offsets_per_trigger is not None:
            limits.append(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            waiting = {queue: begin[queue] for queue, rows in lags(begin, end).items() if rows}
            row_bytes = self._view.row_bytes(waiting)
            limits.append(rows_within(self._options.max_bytes_per_trigger, begin, end, row_bytes))
        return share(begin, end, min(limits)) if limits else end

    # --- reading it -----------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What each task reads of a batch; its start is told by its end."""
        if start == end:
            return []
        ranges = [part for part in read_stream_offset(end).ranges() if part.rows > 0]
        ranges = self._in_sight(ranges)
        return pack(
            without_lost(ranges, self._options, self._view),
            parallelism=os.cpu_count() or 1,
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )

    def _in_sight(self, ranges: list[QueueRange]) -> list[QueueRange]:
        """Leave out queues that are gone for good, if losses do not fail the query."""
        seen = self._heads or {}
        hidden = {part.queue for part in ranges} - seen.keys()
        gone = hidden - self._view.awaited(hidden) if hidden else set()
        for part in ranges:
            if part.queue in gone:
                report_loss(
                    self._options,
                    lost_text(part.queue, part.start, part.end)
                    + ", or its topic has fewer queues now",
                )
        return [part for part in ranges if part.queue not in gone]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read what a task was given; runs at an executor."""
        # Only tasks need what makes rows of records, and it takes a while to import.
        with imports_of_a_worker():
            from orbitmq.spark.reading.queue_fetch import read_partition

        if isinstance(partition, QueuePartition):
            yield from read_partition(partition, self._options, self._projection)

    # --- progress, for people and their tools -----------------------------------------------------

    def commit(self, end: dict[str, Any]) -> None:
        """Tell the group at the brokers what is done; the checkpoint alone decides."""
        self._mirror.tell(read_stream_offset(end).queues)

    def stop(self) -> None:
        """Let go of the cluster; Spark calls it when the query has ended."""
        self._mirror.stop()
        if self._opened is not None:
            self._opened.__exit__()
            self._opened = None

    @property
    def _view(self) -> QueueView:
        if self._opened is None:
            # Tasks and plans do not ask, and clients take a while to import.
            with imports_of_a_worker():
                from orbitmq.spark.reading.queue_view import QueueView

            self._opened = QueueView(self._options)
            self._opened.__enter__()
        return self._opened
