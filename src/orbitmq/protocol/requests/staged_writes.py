"""Exactly-once writes: rows are staged, decided on, then moved to their queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header, Long
from orbitmq.protocol.requests.sending import SendMessage

# The ids of queries that write one batch, under a name of the user's choice, start with this.
BATCH_PREFIX: Final = "batch/"
# The namespaces of name servers that record the coordinator of each query, and its first batch.
COORDINATORS: Final = "ORBITMQ_COORDINATORS"
FIRST_BATCHES: Final = "ORBITMQ_FIRST_BATCHES"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRows(SendMessage):
    """Stage the rows in the body, packed like a batch, for the queue that the header names.

    They are numbered from `first_sequence` on within the write, so that a retried request names
    the same rows.
    """

    CODE = RequestCode.STAGE_ROWS
    write_id: str
    first_sequence: Long


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedReply(Header):
    """Where the rows are in the broker's staging queue: from `start` to before `end`."""

    start: Long
    end: Long


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One broker's part of a decision: the rows of each write, and the offsets they are between."""

    writes: dict[str, int]
    start: int
    end: int


class SourceRange(msgspec.Struct, frozen=True, kw_only=True):
    """Digests of where a batch of a stream starts and ends, as its checkpoint has it."""

    # Empty if it is not known.
    start: str = ""
    end: str


class BatchDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The writes that count for one batch of a query, by broker name."""

    query: str
    batch: int
    parts: dict[str, Part]
    # What the rows were made from; None if it is not known.
    source: SourceRange | None = None
    # The topic of all rows; empty if each row names its own.
    target: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideWrites(Header):
    """Store the `BatchDecision` in the body unless there is one; the reply's body is a `BatchStatus`.

    Answered when the decision in effect is complete, or after `wait_ms`.
    """

    CODE = RequestCode.DECIDE_WRITES
    wait_ms: int
    # The first batch that was ever decided for the query; None if that is not known.
    first_batch: Long | None = None


class BatchStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a batch, and of the decision that was sent."""

    # Whether the decision that was sent is the one in effect, by this or an earlier request. Older
    # brokers say None for a batch below the newest that is decided.
    counts: bool | None
    complete: bool
    # Why brokers have not confirmed yet, by name.
    problems: dict[str, str] = {}
    # Whether one of them never will: it has moved rows of another decision for this batch.
    refused: bool = False
    # Whether both decisions are known to be about the same rows of the source; None if the source
    # of either is not known.
    same_source: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppointCoordinator(Header):
    """Set the coordinator of a query, unless it has one; without a candidate, only ask."""

    CODE = RequestCode.APPOINT_COORDINATOR
    query: str
    candidate: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorReply(Header):
    """The broker that decides for a query; None if there is none yet."""

    coordinator: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRows(Header):
    """Move the rows of the `Part` in the body to their queues; answered once they are on disk."""

    CODE = RequestCode.MOVE_ROWS
    query: str
    batch: Long
    coordinator: str
    # Identifies the decision among those of its batch.
    digest: str | None = None
    # The batch that the broker confirmed before, and its digest; None if it is not known.
    previous_batch: Long | None = None
    previous_digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQueries(Header):
    """List one query, or those after a given one in order of their ids; the body is a `QueryPage`."""

    CODE = RequestCode.LIST_QUERIES
    query: str | None = None
    after: str | None = None
    limit: int


class Confirmed(msgspec.Struct, frozen=True, array_like=True):
    """A batch whose rows a broker has moved, and the digest of its decision."""

    batch: int
    digest: str


class QuerySummary(msgspec.Struct, frozen=True, kw_only=True):
    """What one broker knows of a query that writes exactly once."""

    query: str
    # The broker that decides for the query.
    coordinator: str
    # The newest batch that the broker has rows of, -1 if none; how many, and their bytes as staged.
    batch: int = -1
    rows: int = 0
    staged_bytes: int = 0
    # At the coordinator: the newest decided batch, when that was, and its target.
    decided: int = -1
    decided_ms: int = 0
    target: str = ""
    # Whether the broker has nothing left to do for the newest batch.
    complete: bool = True
    # Whether all rows of `batch` are in their queues.
    moved: bool = True
    # Identify the decision that `batch` belongs to, and that on `decided`; empty if not known.
    part_digest: str = ""
    digest: str = ""
    # At the coordinator: the newest complete batch of each broker, by name, as far as it is known.
    confirmed: dict[str, Confirmed] = {}


class QueryPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some queries of a broker."""

    queries: list[QuerySummary]
    # Whether they were read from the log, by a slave or a broker that starts; it may lag.
    from_log: bool = False
    # What such a broker could not read.
    damage: list[str] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetQuery(Header):
    """Forget a query; without `force`, only one whose newest batch is complete."""

    CODE = RequestCode.FORGET_QUERY
    query: str
    force: bool = False
