"""Rows that count once: staged, decided on, then moved to their queues."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header, Long
from orbitmq.protocol.requests.sending import SendMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRows(SendMessage):
    """Keep the rows of the body, packed like a batch, for the queue that a send would name.

    They are numbered from `first_sequence` on within the write, so that a request that is sent
    again names the same rows.
    """

    CODE = RequestCode.STAGE_ROWS
    write_id: str
    first_sequence: Long


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedReply(Header):
    """Where the rows lie in the staging queue of the broker: from `start` to before `end`."""

    start: Long
    end: Long


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What a decision says of one broker: how many rows each write has there, and between what."""

    writes: dict[str, int]
    start: int
    end: int


class BatchDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The writes that count for one batch of a query, by the names of the brokers."""

    query: str
    batch: int
    parts: dict[str, Part]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideWrites(Header):
    """Store the `BatchDecision` of the body unless there is one; the reply's body is a `Standing`.

    Answered when the one that stands is complete, or after `wait_ms`.
    """

    CODE = RequestCode.DECIDE_WRITES
    wait_ms: int


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a batch, and of the decision that was sent."""

    # Whether the decision that was sent is the one that stands, by this or an earlier request;
    # None when that is no longer known, since later batches are decided.
    counts: bool | None
    complete: bool
    # Why brokers have not confirmed yet, by name.
    problems: dict[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class AppointCoordinator(Header):
    """Keep the coordinator of a query, unless there is one; without a candidate, only ask."""

    CODE = RequestCode.APPOINT_COORDINATOR
    query: str
    candidate: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorReply(Header):
    """The broker that decides for a query; None when there is none yet."""

    coordinator: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRows(Header):
    """Move the rows of the `Part` in the body to their queues; answered when they are on disk."""

    CODE = RequestCode.MOVE_ROWS
    query: str
    batch: Long
    coordinator: str
