"""What Spark reports about a batch, in our terms."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from orbitmq.model.queues import MessageQueue
from orbitmq.pipelines.watching.events import Batch
from orbitmq.spark.reading.lag_listener import lag_of, reported_offset

# Under this name the reasons of a quarantine are counted.
REASONS: Final = "orbitmq_reasons"


class Position(NamedTuple):
    """Where a query is in a queue: its next message, and when the last one was stored, if known."""

    offset: int
    last_stored_ms: int | None


def batch_of(query: str, progress: Mapping[str, Any]) -> Batch:
    """A batch, of what Spark's progress says."""
    lag = lag_of(progress["sources"])
    operators = progress["stateOperators"]
    reasons = progress["observedMetrics"].get(REASONS)
    return Batch(
        at_ms=_ended_ms(progress),
        query=query,
        number=progress["batchId"],
        rows=progress["numInputRows"],
        rejected={
            reason: count
            for reason, count in (reasons.asDict() if reasons else {}).items()
            if count
        },
        took_ms=progress["batchDuration"],
        phases_ms=dict(progress["durationMs"]),
        input_rows_per_s=_rate(progress["inputRowsPerSecond"]),
        processed_rows_per_s=_rate(progress["processedRowsPerSecond"]),
        lag=None if lag is None else sum(lag.values()),
        state_rows=sum(one["numRowsTotal"] for one in operators),
        state_bytes=sum(one["memoryUsedBytes"] for one in operators),
        late_rows=sum(one["numRowsDroppedByWatermark"] for one in operators),
        watermark=progress["eventTime"].get("watermark", ""),
    )


def _ended_ms(progress: Mapping[str, Any]) -> int:
    """When a batch ended, in milliseconds since the epoch: Spark says when it began."""
    began = datetime.datetime.fromisoformat(progress["timestamp"])
    return int(began.timestamp() * 1000) + int(progress["batchDuration"])


def positions_after(progress: Mapping[str, Any]) -> dict[MessageQueue, Position]:
    """Where a query is after a batch; if two of its sources read a queue, the slower one counts."""
    found: dict[MessageQueue, Position] = {}
    for source in progress["sources"]:
        stream = reported_offset(source["endOffset"])
        if stream is None:
            continue
        for queue, offset in stream.queues.items():
            seen = stream.seen.get(queue)
            stored_ms = seen.stored_ms if seen is not None else None
            if queue not in found or offset < found[queue].offset:
                found[queue] = Position(offset, stored_ms)
    return found


def _rate(value: float | None) -> float:
    # Spark leaves out what it cannot divide.
    return round(value, 3) if value is not None and value == value else 0.0  # noqa: PLR0124
