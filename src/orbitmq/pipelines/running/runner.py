"""Runs a pipeline until it is done, fails, or is asked to stop."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from orbitmq.errors import PipelineError, PipelineFileError, SettingsError
from orbitmq.pipelines.plan import Pipeline
from orbitmq.pipelines.running.frames import frames_of
from orbitmq.pipelines.running.queries import PlannedQuery, queries_of
from orbitmq.pipelines.running.spark_errors import reason_of
from orbitmq.pipelines.running.state import locked
from orbitmq.pipelines.running.table_log import check_same_state
from orbitmq.pipelines.watching.events import (
    Outcome,
    QueryFailed,
    QueryRestarted,
    QueryStarted,
    RunEnded,
    RunStarted,
    Stopping,
)
from orbitmq.pipelines.watching.progress import batch_of, positions_after
from orbitmq.pipelines.watching.queue_watch import QueueWatch
from orbitmq.pipelines.watching.run_record import RunRecord

_LOOK_S: Final = 0.2
# How long batches that have begun may take to end when the pipeline is asked to stop.
_STOP_S: Final = 60.0
# Some of these come several times in a row, as queries start side by side.
_STARTS_MAX: Final = 10
# What says nothing about the pipeline, so that a query is started again.
_PASSING: Final = (
    # Spark gives the Python process of a source ten seconds, however busy the machine is.
    "failed to connect back",
    # Seen once, as several queries started: it could not serialize a task.
    "Illegal size",
    "ConcurrentModificationException",
)


@dataclass(slots=True)
class _Running:
    planned: PlannedQuery
    query: StreamingQuery
    starts: int = 1
    next_batch: int = 0

    @property
    def is_working(self) -> bool:
        """Whether it is in the middle of a batch."""
        return self.query.isActive and bool(self.query.status["isTriggerActive"])


@dataclass(slots=True)
class Runner:
    """The queries of one pipeline while they run."""

    pipeline: Pipeline
    spark: SparkSession
    is_once: bool
    # What happens is noted there.
    record: RunRecord = field(default_factory=RunRecord)
    # Set to end it, once the batches that have begun are done.
    stopping: threading.Event = field(default_factory=threading.Event)
    _running: list[_Running] = field(default_factory=list)

    def run(self) -> dict[str, int]:
        """Run it; returns how many rows each query had in this run."""
        with locked(self.pipeline):
            planned = self._plan()
            targets = {one.name: self._target(one) for one in planned}
            self.record.note(
                RunStarted(at_ms=self._now_ms, pipeline=self.pipeline.name, queries=targets)
            )
            outcome: Outcome = "failed"
            try:
                with QueueWatch(self.pipeline, self.record) as queues:
                    self._run(planned, queues)
                outcome = "stopped" if self.stopping.is_set() else "done"
            finally:
                rows = self.record.rows()
                self.record.note(RunEnded(at_ms=self._now_ms, outcome=outcome, rows=rows))
        return rows

    @property
    def _now_ms(self) -> int:
        return self.record.clock.now_ms()

    def _target(self, planned: PlannedQuery) -> str:
        sinks = {sink.name: sink.target for sink in self.pipeline.sinks}
        return sinks.get(planned.name, f"files {planned.table}")

    def _plan(self) -> list[PlannedQuery]:
        try:
            frames = frames_of(self.pipeline, self.spark)
            planned = queries_of(self.pipeline, frames, is_once=self.is_once)
        except SettingsError as error:
            # What only Spark can find in the file.
            raise PipelineFileError([str(error.args[0])], hint=error.hint) from error
        for one in planned:
            if one.table is not None:
                check_same_state(
                    self.spark, query=one.name, table=one.table, checkpoint=one.checkpoint
                )
        return planned

    def _run(self, planned: list[PlannedQuery], queues: QueueWatch) -> None:
        try:
            # One after the other: each starts Python processes, which small machines feel.
            for one in planned:
                if self.stopping.is_set():
                    break
                self._running.append(_Running(one, self._start(one)))
                self.record.note(QueryStarted(at_ms=self._now_ms, query=one.name))
                self._look(queues)
            while self._has_work(queues):
                if self.stopping.wait(_LOOK_S):
                    break
            self._end_batches(queues)
            self._look(queues)
        finally:
            for each in self._running:
                each.query.stop()

    def _has_work(self, queues: QueueWatch) -> bool:
        """Look, and say whether a query is active, maybe because it was started again."""
        was_active = any(each.query.isActive for each in self._running)
        # After that: what has failed by then is noticed, and not taken for done.
        self._look(queues)
        return was_active or any(each.query.isActive for each in self._running)

    def _look(self, queues: QueueWatch) -> None:
        """Note what is new, and raise if a query has failed."""
        for each in self._running:
            for progress in _new_progress(each):
                each.next_batch = progress["batchId"] + 1
                queues.moved(each.planned.name, positions_after(progress))
                self.record.note(batch_of(each.planned.name, progress))
            failure = each.query.exception()
            if failure is not None:
                self._failed(each, failure)

    def _failed(self, each: _Running, failure: StreamingQueryException) -> None:
        is_passing = any(text in str(failure) for text in _PASSING)
        if is_passing and each.starts < _STARTS_MAX:
            each.starts += 1
            self.record.note(
                QueryRestarted(
                    at_ms=self._now_ms, query=each.planned.name, reason=reason_of(failure)
                )
            )
            each.query = self._start(each.planned)
            return
        raise self._error(each.planned, failure) from failure

    def _start(self, planned: PlannedQuery) -> StreamingQuery:
        try:
            return planned.start()
        except (Py4JJavaError, PySparkException) as failure:
            raise self._error(planned, failure) from failure

    def _error(self, planned: PlannedQuery, failure: Exception) -> PipelineError:
        reason = reason_of(failure)
        self.record.note(QueryFailed(at_ms=self._now_ms, query=planned.name, reason=reason))
        return PipelineError(self.pipeline.name, planned.name, reason)

    def _end_batches(self, queues: QueueWatch) -> None:
        """Let batches end that have begun; what is cut off is done again by the next run."""
        if self.stopping.is_set():
            self.record.note(Stopping(at_ms=self._now_ms))
        pause = threading.Event()
        for _ in range(int(_STOP_S / _LOOK_S)):
            if not any(each.is_working for each in self._running):
                return
            self._look(queues)
            pause.wait(_LOOK_S)


def _new_progress(each: _Running) -> list[StreamingQueryProgress]:
    """What a query reports that was not noted yet."""
    last = each.query.lastProgress
    if last is None or last["batchId"] < each.next_batch:
        return []
    if last["batchId"] == each.next_batch:
        return [last]
    # All that Spark keeps, which takes a call for each batch.
    return [one for one in each.query.recentProgress if one["batchId"] >= each.next_batch]
