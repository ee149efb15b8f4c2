"""The one record of what a run does; screen, metrics and report read it.

Everything that happens is noted as an event. Listeners get each event after the record has it.
Bounded for runs of weeks: totals, the newest batches and errors, and a timeline of fixed size.

Threads: any thread may note events, one at a time; a reader holds `lock` while it reads.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from orbitmq.clock import Clock, SystemClock
from orbitmq.pipelines.watching.events import (
    Batch,
    Event,
    Lag,
    Outcome,
    QueryFailed,
    QueryRestarted,
    QueryStarted,
    RunEnded,
    RunStarted,
    Stopping,
)
from orbitmq.pipelines.watching.timeline import Timeline

RATE_MS: Final = 30_000
_NEWEST_MAX: Final = 100
_TROUBLES_MAX: Final = 50


@dataclass(slots=True)
class QueryRecord:
    """What one query did in this run."""

    name: str
    target: str
    timeline: Timeline
    is_started: bool = False
    batches: int = 0
    rows: int = 0
    late_rows: int = 0
    took_ms: int = 0
    restarts: int = 0
    # Why it failed, if it did.
    failure: str = ""
    rejected: Counter[str] = field(default_factory=Counter)
    newest: deque[Batch] = field(default_factory=lambda: deque(maxlen=_NEWEST_MAX))
    # Whether brokers were asked about its lag.
    is_watched: bool = False
    lag: int | None = None
    behind_s: float | None = None
    lagging_queues: dict[str, int] = field(default_factory=dict)

    @property
    def last(self) -> Batch | None:
        """The newest batch."""
        return self.newest[-1] if self.newest else None

    def rate(self, now_ms: int) -> float:
        """Rows a second, over the last half minute; 0 for what ended before."""
        since_ms = max(now_ms - RATE_MS, self.timeline.began_ms)
        rows = sum(one.rows for one in self.newest if one.at_ms >= since_ms)
        return rows * 1000 / max(now_ms - since_ms, 1000)

    def take(self, batch: Batch) -> None:
        """Add a batch."""
        self.batches += 1
        self.rows += batch.rows
        self.late_rows += batch.late_rows
        self.took_ms += batch.took_ms
        self.rejected.update(batch.rejected)
        self.newest.append(batch)
        step = self.timeline.step_at(batch.at_ms)
        step.batches += 1
        step.rows += batch.rows
        step.rejected += sum(batch.rejected.values())
        step.took_ms = max(step.took_ms, batch.took_ms)
        # Brokers know better: what arrived since the batch was planned counts, too.
        if not self.is_watched and batch.lag is not None:
            self.lag = step.lag = batch.lag

    def take_lag(self, lag: Lag) -> None:
        """Add what the brokers say."""
        self.is_watched = True
        self.lag, self.behind_s, self.lagging_queues = lag.messages, lag.behind_s, dict(lag.queues)
        step = self.timeline.step_at(lag.at_ms)
        step.lag, step.behind_s = lag.messages, lag.behind_s


@dataclass(slots=True)
class RunRecord:
    """What a run does."""

    clock: Clock = field(default_factory=SystemClock)
    pipeline: str = ""
    began_ms: int = 0
    ended_ms: int | None = None
    # None while it runs.
    outcome: Outcome | None = None
    is_stopping: bool = False
    queries: dict[str, QueryRecord] = field(default_factory=dict)
    troubles: deque[QueryRestarted | QueryFailed] = field(
        default_factory=lambda: deque(maxlen=_TROUBLES_MAX)
    )
    listeners: list[Callable[[Event], None]] = field(default_factory=list)
    # Reentrant: a signal may ask for a report while an event is noted.
    lock: threading.RLock = field(default_factory=threading.RLock)

    def note(self, event: Event) -> None:
        """Add an event, and hand it to the listeners."""
        with self.lock:
            self._take(event)
            for listener in self.listeners:
                listener(event)

    def rows(self) -> dict[str, int]:
        """How many rows each query that was started read."""
        with self.lock:
            return {one.name: one.rows for one in self.queries.values() if one.is_started}

    def _take(self, event: Event) -> None:
        match event:
            case RunStarted():
                self.pipeline, self.began_ms = event.pipeline, event.at_ms
                self.queries = {
                    name: QueryRecord(name, target, Timeline(event.at_ms))
                    for name, target in event.queries.items()
                }
            case QueryStarted():
                self.queries[event.query].is_started = True
            case Batch():
                self.queries[event.query].take(event)
            case Lag():
                self.queries[event.query].take_lag(event)
            case QueryRestarted():
                self.queries[event.query].restarts += 1
                self.troubles.append(event)
            case QueryFailed():
                self.queries[event.query].failure = event.reason
                self.troubles.append(event)
            case Stopping():
                self.is_stopping = True
            case RunEnded():
                self.outcome, self.ended_ms = event.outcome, event.at_ms
