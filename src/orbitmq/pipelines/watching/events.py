"""What happens while a pipeline runs, as events.

Encoded by `encode`, each is a line of `--events`: `event` says its kind, the other fields are those
below. docs/pipelines.md lists them for users.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

Outcome = Literal["done", "stopped", "failed"]


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    # Milliseconds since the epoch.
    at_ms: int


class RunStarted(_Event, frozen=True, kw_only=True, tag="run_started"):
    """A run begins."""

    pipeline: str
    # By the name of each query, where its rows go.
    queries: Mapping[str, str]


class QueryStarted(_Event, frozen=True, kw_only=True, tag="query_started"):
    """A query begins."""

    query: str


class Batch(_Event, frozen=True, kw_only=True, tag="batch"):
    """What one batch of a query did, as Spark counts it."""

    query: str
    number: int
    # Rows that were read; of those of a quarantine, `rejected` were written, by their reasons.
    rows: int
    rejected: Mapping[str, int]
    took_ms: int
    # What the time went to, as Spark names it.
    phases_ms: Mapping[str, int]
    input_rows_per_s: float
    processed_rows_per_s: float
    # Messages that were stored when the batch was planned, and that it did not read.
    lag: int | None
    # What stateful operators keep, and what came too late for them.
    state_rows: int
    state_bytes: int
    late_rows: int
    # The time before which rows are late, in ISO 8601; empty without a watermark.
    watermark: str


class Lag(_Event, frozen=True, kw_only=True, tag="lag"):
    """How far a query is behind its topics, by the brokers' ends of queues."""

    query: str
    messages: int
    # Since the oldest message was stored that is not processed; None if nobody knows.
    behind_s: float | None
    # Queues that lag, as TOPIC/BROKER/ID.
    queues: Mapping[str, int]


class QueryRestarted(_Event, frozen=True, kw_only=True, tag="query_restarted"):
    """A query failed for a reason that says nothing about the pipeline, and began again."""

    query: str
    reason: str


class QueryFailed(_Event, frozen=True, kw_only=True, tag="query_failed"):
    """A query failed, and the run with it."""

    query: str
    reason: str


class Stopping(_Event, frozen=True, kw_only=True, tag="stopping"):
    """The run was asked to stop; batches at hand are finished."""


class RunEnded(_Event, frozen=True, kw_only=True, tag="run_ended"):
    """The run is over."""

    outcome: Outcome
    # Rows that each query read.
    rows: Mapping[str, int]


Event = (
    RunStarted
    | QueryStarted
    | Batch
    | Lag
    | QueryRestarted
    | QueryFailed
    | Stopping
    | RunEnded
)  # fmt: skip
EVENTS: Final = (
    RunStarted,
    QueryStarted,
    Batch,
    Lag,
    QueryRestarted,
    QueryFailed,
    Stopping,
    RunEnded,
)


def encode(event: Event) -> bytes:
    """One line of JSON, with its end."""
    return msgspec.json.encode(event) + b"\n"
