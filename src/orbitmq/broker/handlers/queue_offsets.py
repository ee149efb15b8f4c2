"""Queue offsets: first, last, and at a given time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.disk import off_loop
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.offsets import (
    GetMaxOffset,
    GetMinOffset,
    GetOldestTime,
    OffsetReply,
    OldestTimeReply,
    SearchOffset,
)
from orbitmq.store.reading.queue_times import Boundary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.protocol.command import Command
    from orbitmq.store.message_store import MessageStore
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler


@dataclass(slots=True, eq=False)
class QueueOffsetRequests:
    """Returns offsets and times of queues."""

    store: MessageStore

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.oldest_time,
        }

    async def search(self, _: Connection, request: Command) -> Command:
        """Find the offset at a given time."""
        asked = SearchOffset.decode(request.fields)
        boundary = Boundary.UPPER if asked.wants_last_before else Boundary.LOWER
        offset = await off_loop(
            self.store.offset_at, asked.topic, asked.queue_id, asked.timestamp_ms, boundary
        )
        return request.reply(OffsetReply(offset=Long(offset)))

    def max_offset(self, _: Connection, request: Command) -> Command:
        """Return the end of a queue."""
        asked = GetMaxOffset.decode(request.fields)
        end = self.store.end_of(asked.topic, asked.queue_id, committed=asked.committed)
        return request.reply(OffsetReply(offset=Long(end)))

    def min_offset(self, _: Connection, request: Command) -> Command:
        """Return the start of a queue."""
        asked = GetMinOffset.decode(request.fields)
        start = self.store.start_of(asked.topic, asked.queue_id)
        return request.reply(OffsetReply(offset=Long(start)))

    async def oldest_time(self, _: Connection, request: Command) -> Command:
        """Return when the oldest message of a queue was stored."""
        asked = GetOldestTime.decode(request.fields)
        oldest_ms = await off_loop(self.store.earliest_ms, asked.topic, asked.queue_id)
        return request.reply(OldestTimeReply(timestamp_ms=Long(oldest_ms)))
