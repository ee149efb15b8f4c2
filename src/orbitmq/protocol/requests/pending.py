"""Messages that are not due yet, for tools: listed, counted, brought forward."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header, Long


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPending(Header):
    """List messages that are not due yet; the body of the reply is a `PendingPage`."""

    CODE = RequestCode.LIST_PENDING
    # Only the message with this id, or only those of a topic.
    message_id: str | None = None
    topic: str | None = None
    # Only those due in this range; 0 leaves an end open.
    due_from_ms: Long
    due_until_ms: Long
    # Where the page before ended.
    cursor: str | None = None
    limit: int


class PendingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is not due yet."""

    message_id: str
    topic: str
    due_ms: int
    stored_ms: int
    keys: str
    body_bytes: int
    recall_handle: str


class PendingPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some pending messages, those of earlier seconds first."""

    messages: list[PendingMessage]
    # Where to continue, which a page without messages may say, too; empty at the end.
    cursor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountPending(Header):
    """Count messages that are not due yet by time; the body of the reply is `PendingCounts`."""

    CODE = RequestCode.COUNT_PENDING
    due_from_ms: Long
    due_until_ms: Long
    span_ms: Long


class PendingCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages are due in each span of time."""

    # Begin of the span, and messages.
    counts: list[tuple[int, int]]
    # Where to continue; 0 at the end.
    next_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverPending(Header):
    """Deliver a message now, and not at its due time; without reply fields."""

    CODE = RequestCode.DELIVER_PENDING
    message_id: str
    topic: str
