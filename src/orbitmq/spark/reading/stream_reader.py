"""The reader of a stream: decides which messages a batch has, and reads them.

Spark keeps one reader for a run of a query, in a process beside the driver, and asks it before each
batch. A copy is pickled to the tasks, which only call `read`. The end of a batch alone determines
its messages (`offsets.py`), so a repeated batch has the same ones.

Spark ends the process without notice when the query stops, so nothing here relies on being closed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final

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
from orbitmq.spark.options.column_names import COLUMN_NAMES, USUAL_COLUMNS
from orbitmq.spark.options.queue_texts import queue_text
from orbitmq.spark.options.read_options import ReadOptions
from orbitmq.spark.reading.offsets import Offsets, Seen, StreamOffset, read_stream_offset
from orbitmq.spark.reading.partitions import QueuePartition, QueueRange
from orbitmq.spark.reading.planning import TriggerGate, lags, pack, rows_within, share
from orbitmq.spark.reading.positions import lost_text, report_loss, starting_offsets, without_lost
from orbitmq.spark.reading.progress_mirror import ProgressMirror
from orbitmq.spark.reading.topic_lives import last_planned, resumed, without_replaced
from orbitmq.spark.rows.schema import Projection
from orbitmq.spark.sessions.short_errors import short_errors
from orbitmq.spark.sessions.worker_process import imports_without_gc

if TYPE_CHECKING:
    from orbitmq.spark.reading.queue_view import QueueView

log = logging.getLogger(__name__)

# No queue has as many messages: a promotion skipped numbers of a topic in memory, 2^40 at a time.
_SKIPPED_MIN: Final = 2**39


@short_errors
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
        # The ends of the queues, as the last batch saw them.
        self._heads: Offsets | None = None
        # Where a run with trigger(availableNow=True) ends.
        self._target: Offsets | None = None
        # The end of the batch that this run planned last.
        self._planned: dict[str, Any] | None = None
        # Whether this run has compared the messages of all queues with those read before.
        self._has_checked = False
        self._has_advised = False
        self._mirror = ProgressMirror(options)
        # Queues that the query knows and the name servers do not.
        self._missing: AbstractSet[MessageQueue] = frozenset()
        # Queues whose master is away, and whose slave is behind the query.
        self._lagging: AbstractSet[MessageQueue] = frozenset()

    def __reduce__(self) -> tuple[type[StreamReader], tuple[ReadOptions, Projection]]:
        """Pickle without the state that belongs to this process."""
        return StreamReader, (self._options, self._projection)

    # --- what the next batch has ----------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Where a query without a checkpoint starts; every call returns the same."""
        if self._initial is None:
            start = starting_offsets(self._options, self._view)
            if self._target is not None:
                # Later arrivals are for the next run, even with "latest".
                start = {q: min(offset, self._target.get(q, offset)) for q, offset in start.items()}
            self._initial = StreamOffset(base={}, queues=start).to_json()
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Read only what is available now; queues that appear later are for the next run."""
        self._target = self._view.latest(self._view.queues())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Report one limit, as Spark takes only one; `latestOffset` applies them all."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends; `start` itself if there is no batch to make now."""
        self._advise_on_columns(start)
        position = read_stream_offset(start)
        # Spark asks for the next batch once the last one is done, so everything up to here is.
        self._mirror.publish(position.queues)
        if self._target is not None and position.queues.keys() - self._target.keys():
            self._target = self._with_returned(self._target, position.queues)
        self._heads = self._target
        if self._heads is None:
            self._heads = self._ends_of_queues(position.queues)
        begin = self._batch_start(position.queues, self._heads)
        # A missing queue, whose broker may be down, keeps its position.
        end = {queue: self._heads.get(queue, offset) for queue, offset in begin.items()}
        lagging = self._find_lagging(begin, end)
        end |= {queue: begin[queue] for queue in lagging}
        suspects = {
            queue: seen
            for queue, seen in self._suspects(position, end).items()
            if queue not in lagging
        }
        anew = resumed(begin, end, suspects, self._options, self._view)
        begin = {**begin, **anew}
        if not isinstance(limit, ReadAllAvailable):
            if self._waits_for_more(begin, end):
                return start
            end = self._limited(begin, end)
        if end == position.queues and not anew:
            return start
        known = {queue: seen for queue, seen in position.seen.items() if queue not in anew}
        seen = last_planned(begin, end, known, self._heads.keys() - lagging, self._view)
        self._planned = StreamOffset(base=begin, queues=end, seen=seen).to_json()
        return self._planned

    def _advise_on_columns(self, stored: Mapping[str, Any]) -> None:
        """Warn once if the query is from a release whose tables had all columns."""
        is_default = not self._options.columns and self._projection.names == USUAL_COLUMNS
        if is_default and stored.get("v") == 1 and not self._has_advised:
            self._has_advised = True
            log.warning(
                "the checkpoint is from a release whose tables had %d columns, and this one has %d; "
                "set columns=all if Spark refuses the state (STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE), "
                "or if the result needs the others",
                len(COLUMN_NAMES),
                len(USUAL_COLUMNS),
            )

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  # Spark's name
        """Where the queues ended when the last batch was made; Spark shows it beside its end."""
        if self._heads is None:
            return None
        return StreamOffset(base={}, queues=self._heads).to_json()

    def _ends_of_queues(self, known: Offsets) -> Offsets:
        ends = self._view.latest(self._view.queues(known.keys()))
        missing = known.keys() - ends.keys()
        for queue in sorted(missing - self._missing):
            log.warning("queue is missing, keeps its position: %s", queue_text(queue))
        for queue in sorted(self._missing - missing):
            log.warning("queue is back: %s", queue_text(queue))
        self._missing = missing
        return ends

    def _find_lagging(self, begin: Offsets, end: Offsets) -> AbstractSet[MessageQueue]:
        """Queues that end before the query only since a slave stands in for their master.

        They keep their position until the slave has caught up, or the master is back.
        """
        shorter = [queue for queue, offset in begin.items() if end[queue] < offset]
        lagging = self._view.at_slaves(shorter) if shorter else set()
        for queue in sorted(lagging - self._lagging):
            log.warning(
                "the master of a queue is away and its slave is behind, it keeps its position: %s "
                "position=%d end=%d",
                queue_text(queue),
                begin[queue],
                end[queue],
            )
        self._lagging = lagging
        return lagging

    def _with_returned(self, target: Offsets, known: Offsets) -> Offsets:
        """Add known queues that were missing when the run began to what it reads."""
        ends = self._ends_of_queues(known)
        return {**{queue: ends[queue] for queue in known if queue in ends}, **target}

    def _batch_start(self, known: Offsets, heads: Offsets) -> Offsets:
        """Where the next batch starts; new queues start at their earliest message."""
        new = [queue for queue in heads if queue not in known]
        if not new:
            return known
        for queue in new:
            log.info("new queue, reading from its beginning: %s", queue_text(queue))
        return {**known, **self._view.earliest(new)}

    def _suspects(self, position: StreamOffset, end: Offsets) -> Seen:
        """The last messages of queues whose topic may be another one by now.

        Those are queues that changed; with the first batch of a run, all that can be asked.
        """
        is_first, self._has_checked = not self._has_checked, True
        return {
            queue: message
            for queue, message in position.seen.items()
            if end[queue] != position.queues[queue] or (is_first and queue in (self._heads or ()))
        }

    def _waits_for_more(self, start: Offsets, end: Offsets) -> bool:
        if self._options.min_offsets_per_trigger is None or self._target is not None:
            return False
        rows = sum(lags(start, end).values())
        return not self._gate.opens(rows, now_ms=self._clock.monotonic_ms())

    def _limited(self, start: Offsets, end: Offsets) -> Offsets:
        start = self._without_skipped(start, end)
        limits = []
        if self._options.max_offsets_per_trigger is not None:
            limits.append(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            waiting = {queue: start[queue] for queue, rows in lags(start, end).items() if rows}
            row_bytes = self._view.row_bytes(waiting)
            limits.append(rows_within(self._options.max_bytes_per_trigger, start, end, row_bytes))
        return share(start, end, min(limits)) if limits else end

    def _without_skipped(self, start: Offsets, end: Offsets) -> Offsets:
        """The start of a batch, after numbers that no message has, or it would take ages."""
        skipped = [queue for queue, rows in lags(start, end).items() if rows >= _SKIPPED_MIN]
        if not skipped:
            return start
        return start | {
            queue: max(start[queue], first) for queue, first in self._view.earliest(skipped).items()
        }

    # --- reading it -----------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan what each task reads of a batch; its end determines its start."""
        if start == end:
            return []
        self._advise_on_columns(end)
        planned = read_stream_offset(end)
        ranges = [part for part in planned.ranges() if part.rows > 0]
        ranges = self._without_missing(ranges)
        self._view.wait_for_copies(ranges)
        if end != self._planned:
            # A batch that an earlier run planned.
            ranges = without_replaced(ranges, planned.seen, self._options, self._view)
        return pack(
            without_lost(ranges, self._options, self._view),
            parallelism=os.cpu_count() or 1,
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )

    def _without_missing(self, ranges: list[QueueRange]) -> list[QueueRange]:
        """Wait for missing queues; drop those that stay gone, if losses do not fail the query."""
        seen = self._heads or {}
        missing = {part.queue for part in ranges} - seen.keys()
        gone = missing - self._view.wait_for(missing) if missing else set()
        for part in ranges:
            if part.queue in gone:
                report_loss(
                    self._options,
                    lost_text(part.queue, part.start, part.end)
                    + ", or its topic has fewer queues now",
                )
        return [part for part in ranges if part.queue not in gone]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a task's partition; runs on an executor."""
        # Only tasks decode records, and importing that takes a while.
        with imports_without_gc():
            from orbitmq.spark.reading.queue_fetch import read_partition

        if isinstance(partition, QueuePartition):
            yield from read_partition(partition, self._options, self._projection)

    # --- progress, for monitoring -------------------------------------------------------------------

    def commit(self, end: dict[str, Any]) -> None:
        """Publish progress to the consumer group; the checkpoint alone decides."""
        self._mirror.publish(read_stream_offset(end).queues)

    def stop(self) -> None:
        """Disconnect from the cluster; Spark calls it when the query has ended."""
        self._mirror.stop()
        if self._opened is not None:
            self._opened.__exit__()
            self._opened = None

    @property
    def _view(self) -> QueueView:
        if self._opened is None:
            # Tasks and plans do not need it, and clients take a while to import.
            with imports_without_gc():
                from orbitmq.spark.reading.queue_view import QueueView

            self._opened = QueueView(self._options)
            self._opened.__enter__()
        return self._opened
