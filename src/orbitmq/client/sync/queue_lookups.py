"""What blocking pull consumers can be asked about queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from orbitmq.client.sync.blocking_client import AsyncClient, BlockingClient

if TYPE_CHECKING:
    from orbitmq.model.queues import MessageQueue


class AsyncLookups(AsyncClient, Protocol):
    """The same questions on asyncio."""

    async def queues(self, topic: str) -> list[MessageQueue]:
        """List queues."""

    async def min_offset(self, queue: MessageQueue) -> int:
        """Give the first offset."""

    async def max_offset(self, queue: MessageQueue) -> int:
        """Give the offset behind the last."""

    async def offset_for_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Find an offset by time."""

    async def oldest_ms(self, queue: MessageQueue) -> int | None:
        """Give the time of the first message."""


L = TypeVar("L", bound=AsyncLookups)


class QueueLookups(BlockingClient[L]):
    """Questions about queues; queues are named as users of the namespace know them."""

    def queues(self, topic: str) -> list[MessageQueue]:
        """List the queues of a topic that can be read."""
        return self._call(self._client.queues(topic))

    def min_offset(self, queue: MessageQueue) -> int:
        """Give the offset of the oldest message of a queue."""
        return self._call(self._client.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """Give the offset that the next message of a queue will have."""
        return self._call(self._client.max_offset(queue))

    def offset_for_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Give the offset of the first message that was stored at a time or later."""
        return self._call(self._client.offset_for_time(queue, timestamp_ms))

    def oldest_ms(self, queue: MessageQueue) -> int | None:
        """Say when the oldest message of a queue was stored; None when there is none."""
        return self._call(self._client.oldest_ms(queue))
