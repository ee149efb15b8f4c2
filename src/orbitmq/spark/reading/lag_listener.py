"""Lag of streaming queries, queue by queue.

    listener = LagListener()
    spark.streams.addListener(listener)
    ...
    listener.lags["orders to table"].rows

Threads: Spark calls a listener in a thread of its own. It replaces each lag as a whole, so any
thread may read them.
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
from orbitmq.spark.reading.offsets import StreamOffset, read_stream_offset

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLag:
    """The lag of a query after a batch."""

    query: str
    batch: int
    queues: Mapping[MessageQueue, int]

    @property
    def rows(self) -> int:
        """Messages not yet read, summed over all queues."""
        return sum(self.queues.values())


class LagListener(StreamingQueryListener):
    """Tracks how many messages of each queue a query has not read; logs it after each batch."""

    def __init__(self, on_lag: Callable[[QueryLag], None] | None = None) -> None:
        """Listen; `on_lag`, if given, is called after each batch and must not block."""
        self._on_lag = on_lag
        # Running queries, by name, or by id if they have none.
        self.lags: dict[str, QueryLag] = {}
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  # Spark's name
        """Remember the name of the query."""
        self._names[str(event.id)] = event.name or str(event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  # Spark's name
        """Update the lag after a batch."""
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
        """Nothing new: the lag of the last batch still holds."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802  # Spark's name
        """Forget the query."""
        self.lags.pop(self._names.pop(str(event.id), str(event.id)), None)


def lag_of(sources: Iterable[SourceProgress]) -> dict[MessageQueue, int] | None:
    """Messages of each queue that the sources of a query have not read.

    None if no source reports it: none of them is ours, or the batch was a repeated one, for which
    Spark does not ask where the topics end.
    """
    lag: dict[MessageQueue, int] | None = None
    for source in sources:
        end = reported_offset(source.endOffset)
        latest = reported_offset(source.latestOffset)
        if end is None or latest is None:
            continue
        lag = {} if lag is None else lag
        for queue, head in latest.queues.items():
            # If two sources read a queue, the slower one counts.
            lag[queue] = max(lag.get(queue, 0), head - end.queues.get(queue, 0))
    return lag


def reported_offset(text: str | None) -> StreamOffset | None:
    """Parse the offset that one of our sources reported; None for other sources or no offset."""
    try:
        stored = json.loads(text or "null")
    except ValueError:
        return None
    if not isinstance(stored, dict):
        return None
    try:
        return read_stream_offset(stored)
    except StreamOffsetsError:
        return None
