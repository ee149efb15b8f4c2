"""Runs of pipelines as records, without Spark."""

from __future__ import annotations

from orbitmq.clock import ManualClock
from orbitmq.pipelines.watching.events import Batch, Lag, QueryStarted, RunStarted
from orbitmq.pipelines.watching.run_record import RunRecord

BEGAN_MS = 1_700_000_000_000
QUARANTINE = "quarantine of orders"


def started_run(*queries: str) -> RunRecord:
    """A run whose queries have started."""
    record = RunRecord(clock=ManualClock(BEGAN_MS))
    targets = {name: f"files /shop/{name}" for name in queries}
    record.note(RunStarted(at_ms=BEGAN_MS, pipeline="shop", queries=targets))
    for name in queries:
        record.note(QueryStarted(at_ms=BEGAN_MS, query=name))
    return record


def batch(
    query: str = "table",
    number: int = 0,
    *,
    after_ms: int = 0,
    rows: int = 10,
    took_ms: int = 500,
    lag: int | None = 0,
    rejected: dict[str, int] | None = None,
    state_rows: int = 0,
    late_rows: int = 0,
) -> Batch:
    return Batch(
        at_ms=BEGAN_MS + after_ms,
        query=query,
        number=number,
        rows=rows,
        rejected=rejected or {},
        took_ms=took_ms,
        phases_ms={"addBatch": took_ms},
        input_rows_per_s=2.5,
        processed_rows_per_s=20.0,
        lag=lag,
        state_rows=state_rows,
        state_bytes=state_rows * 100,
        late_rows=late_rows,
        watermark="",
    )


def lag(query: str = "table", *, after_ms: int = 0, messages: int = 7) -> Lag:
    queues = {"orders/broker-a/0": messages}
    return Lag(
        at_ms=BEGAN_MS + after_ms, query=query, messages=messages, behind_s=1.5, queues=queues
    )
