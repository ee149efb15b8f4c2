"""Lag of streaming queries, queue by queue.

    listener = LagListener()
    spark.streams.addListener(listener)
    ...
    listener.lags["orders to table"].rows

Threads: Spark calls a listener in a thread of its own; what it tells is replaced as a whole, so it
may be read from any other.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StreamingQueryListener,
)

from orbitmq.errors import StreamOffsetsError
from orbitmq.model.queues import MessageQueue
from orbitmq.spark.reading.offsets import Offsets, read_stream_offset

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLag:
    """How far a query was behind its topics when a batch was done."""

    query: str
    batch: int
    queues: Mapping[MessageQueue, int]

    @property
    def rows(self) -> int:
        """Messages that the query has not read, of all queues."""
        return sum(self.queues.values())


class LagListener(StreamingQueryListener):
    """Tells how many messages of each queue a query has not read; logs it after each batch."""

    def __init__(self, on_lag: Callable[[QueryLag], None] | None = None) -> None:
        """Listen; `on_lag`, if given, is called after each batch and must not block."""
        self._on_lag = on_lag
        # By name of the query, or by its id where it has none; queries that run.
        self.lags: dict[str, QueryLag] = {}
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  # Spark's name
        """Know the query by its name."""
        self._names[str(event.id)] = event.name or str(event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  # Spark's name
        """Tell the lag that a batch left."""
        progress = event.progress
        queues = lag_of(progress.sources)
        if queues is None:
            return
        query = progress.name or str(progress.id)
        lag = QueryLag(query=query, batch=progress.batchId, queues=queues)
        self.lags[query] = lag
        worst = max(queues, key=lambda queue: queues[queue], default=None)
        log.info(
            "lag query=%s batch=%d rows=%d worst=%s rows_of_worst=%d",
            query,
            lag.batch,
            lag.rows,
            f"{worst.topic}/{worst.broker_name}/{worst.queue_id}" if worst else "-",
            queues[worst] if worst else 0,
        )
        if self._on_lag is not None:
            self._on_lag(lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802  # Spark's name
        """Nothing new: what the last batch left is still true."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802  # Spark's name
        """Forget the query."""
        self.lags.pop(self._names.pop(str(event.id), str(event.id)), None)


def lag_of(sources: Iterable[SourceProgress]) -> dict[MessageQueue, int] | None:
    """Messages of each queue that the sources of a query have not read.

    None if no source tells: there are only others than ours, or the batch was a repeated one, for
    which Spark does not ask where the topics end.
    """
    lag: dict[MessageQueue, int] | None = None
    for source in sources:
        end = _offsets(source.endOffset)
        latest = _offsets(source.latestOffset)
        if end is None or latest is None:
            continue
        lag = {} if lag is None else lag
        for queue, head in latest.items():
            # A queue that two sources read waits for the slower one.
            lag[queue] = max(lag.get(queue, 0), head - end.get(queue, 0))
    return lag


def _offsets(text: str | None) -> Offsets | None:
    """Read what one of our sources told; None for another's, and for nothing at all."""
    try:
        stored = json.loads(text or "null")
    except ValueError:
        return None
    if not isinstance(stored, dict):
        return None
    try:
        return read_stream_offset(stored).queues
    except StreamOffsetsError:
        return None
