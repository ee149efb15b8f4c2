"""Runs a pipeline until it is done, fails, or is asked to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from orbitmq.errors import PipelineError
from orbitmq.pipelines.plan import Pipeline
from orbitmq.pipelines.running.frames import frames_of
from orbitmq.pipelines.running.queries import PlannedQuery, queries_of
from orbitmq.pipelines.running.spark_errors import reason_of
from orbitmq.pipelines.running.state import locked
from orbitmq.pipelines.running.table_log import check_same_state

_LOOK_S: Final = 0.2
# How long batches that have begun may take to end when the pipeline is asked to stop.
_STOP_S: Final = 60.0
_STARTS_MAX: Final = 4
# What says nothing about the pipeline, so that a query is started again.
_PASSING: Final = (
    # Spark gives the Python process of a source ten seconds, however busy the machine is.
    "failed to connect back",
    # Seen once, as several queries started: it could not serialize a task.
    "Illegal size",
    "ConcurrentModificationException",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one batch of a query did."""

    query: str
    number: int
    rows: int
    took_ms: int


@dataclass(slots=True)
class _Running:
    planned: PlannedQuery
    query: StreamingQuery
    starts: int = 1
    next_batch: int = 0
    rows: int = 0

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
    # Called with each batch that had rows.
    on_batch: Callable[[Batch], None]
    # Set to end it, once the batches that have begun are done.
    stopping: threading.Event = field(default_factory=threading.Event)
    _running: list[_Running] = field(default_factory=list)

    def run(self) -> dict[str, int]:
        """Run it; returns how many rows each query had in this run."""
        with locked(self.pipeline):
            return self._run()

    def _run(self) -> dict[str, int]:
        frames = frames_of(self.pipeline, self.spark)
        planned = queries_of(self.pipeline, frames, is_once=self.is_once)
        for one in planned:
            if one.table is not None:
                check_same_state(
                    self.spark, query=one.name, table=one.table, checkpoint=one.checkpoint
                )
        try:
            # One after the other: each starts Python processes, which small machines feel.
            for one in planned:
                if self.stopping.is_set():
                    break
                self._running.append(_Running(one, self._start(one)))
                self._look()
            while any(each.query.isActive for each in self._running):
                self._look()
                if self.stopping.wait(_LOOK_S):
                    break
            self._end_batches()
            self._look()
        finally:
            for each in self._running:
                each.query.stop()
        return {each.planned.name: each.rows for each in self._running}

    def _look(self) -> None:
        """Report what is new, and raise if a query has failed."""
        for each in self._running:
            for progress in each.query.recentProgress:
                self._note(each, progress)
            failure = each.query.exception()
            if failure is not None:
                self._failed(each, failure)

    def _note(self, each: _Running, progress: Any) -> None:
        if progress["batchId"] < each.next_batch or not progress["numInputRows"]:
            return
        each.next_batch = progress["batchId"] + 1
        each.rows += progress["numInputRows"]
        self.on_batch(
            Batch(
                query=each.planned.name,
                number=progress["batchId"],
                rows=progress["numInputRows"],
                took_ms=progress["batchDuration"],
            )
        )

    def _failed(self, each: _Running, failure: StreamingQueryException) -> None:
        is_passing = any(text in str(failure) for text in _PASSING)
        if is_passing and each.starts < _STARTS_MAX:
            each.starts += 1
            each.query = self._start(each.planned)
            return
        raise self._error(each.planned, failure) from failure

    def _start(self, planned: PlannedQuery) -> StreamingQuery:
        try:
            return planned.start()
        except (Py4JJavaError, PySparkException) as failure:
            raise self._error(planned, failure) from failure

    def _error(self, planned: PlannedQuery, failure: Exception) -> PipelineError:
        return PipelineError(self.pipeline.name, planned.name, reason_of(failure))

    def _end_batches(self) -> None:
        """Let batches end that have begun; what is cut off is done again by the next run."""
        pause = threading.Event()
        for _ in range(int(_STOP_S / _LOOK_S)):
            if not any(each.is_working for each in self._running):
                return
            self._look()
            pause.wait(_LOOK_S)
