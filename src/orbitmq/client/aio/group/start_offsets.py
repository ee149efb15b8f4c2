"""Finds where a consumer starts to read a queue that it has just taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, assert_never

from orbitmq.client.core.consuming.start_offsets import CONSUME_FROM, StartPoint, start_point
from orbitmq.model.queues import MessageQueue
from orbitmq.model.subscriptions import ConsumeFrom

if TYPE_CHECKING:
    from orbitmq.client.aio.group.offset_stores import OffsetStore
    from orbitmq.client.aio.instance.client_instance import ClientInstance
    from orbitmq.client.options import MemberOptions

# How far back a group starts with `consume_from` "timestamp" if no time is set.
LOOKBACK_MS: Final = 30 * 60 * 1000


class BoundCalls(Protocol):
    """Calls to brokers about the offsets of queues."""

    async def min_offset(self, queue: MessageQueue) -> int:
        """Fetch the offset of the oldest message."""

    async def max_offset(self, queue: MessageQueue, *, at_master: bool = False) -> int:
        """Fetch the offset that the next message will have."""

    async def offset_at(
        self, queue: MessageQueue, timestamp_ms: int, *, at_master: bool = False
    ) -> int:
        """Fetch the offset of the first message stored at a time or later."""


class StartOffsets:
    """Starts at the committed offset of a queue, or where the consumer is configured to start."""

    def __init__(
        self,
        offsets: OffsetStore,
        calls: BoundCalls,
        *,
        consume_from: ConsumeFrom,
        timestamp_ms: int,
    ) -> None:
        self._offsets = offsets
        self._calls = calls
        self._consume_from = consume_from
        self._timestamp_ms = timestamp_ms

    async def of(self, queue: MessageQueue) -> int:
        """Find where to start; raises if a broker cannot be asked, and never guesses.

        A slave may not know yet what the group has committed. So without its master only a start
        that skips nothing is found: at a committed offset, or at the oldest message.
        """
        committed = await self._offsets.read(queue)
        if committed is not None:
            return committed
        start = await self._uncommitted(queue)
        # Committed before the first message: after a restart the group resumes here, and does not
        # skip messages that arrived in between.
        self._offsets.update(queue, start)
        return start

    async def _uncommitted(self, queue: MessageQueue) -> int:
        point = start_point(queue.topic, self._consume_from)
        match point:
            case StartPoint.START:
                return await self._calls.min_offset(queue)
            case StartPoint.END:
                return await self._end(queue)
            case StartPoint.TIME:
                return await self._calls.offset_at(queue, self._timestamp_ms, at_master=True)
            case _:
                assert_never(point)

    async def _end(self, queue: MessageQueue) -> int:
        end = await self._calls.max_offset(queue, at_master=True)
        if not end:
            return end
        # Compat: a broker of RocketMQ 5 knows no offset of a group in an empty queue. If the first
        # message arrives between that answer and the end asked for here, it would be skipped. Now
        # that the queue has a first message, and a recent one, the broker answers 0.
        committed = await self._offsets.read(queue)
        return end if committed is None else committed


def start_offsets_of(
    instance: ClientInstance, offsets: OffsetStore, options: MemberOptions
) -> StartOffsets:
    """Make the `StartOffsets` of a consumer that starts now."""
    return StartOffsets(
        offsets,
        instance.brokers,
        consume_from=CONSUME_FROM[options.consume_from],
        timestamp_ms=options.consume_timestamp_ms or instance.clock.now_ms() - LOOKBACK_MS,
    )
