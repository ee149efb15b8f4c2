"""What pull consumers can be asked about queues: which there are, and how long."""

from __future__ import annotations

import msgspec

from orbitmq.client.aio.instance.client_lifecycle import ClientLifecycle
from orbitmq.client.core.namespaces import unwrap, wrap
from orbitmq.errors import MessageTypeError
from orbitmq.model.queues import MessageQueue


class QueueLookups(ClientLifecycle):
    """Questions about queues; queues are named as users of the namespace know them."""

    _namespace: str

    async def queues(self, topic: str) -> list[MessageQueue]:
        """List the queues of a topic that can be read."""
        wrapped = wrap(self._namespace, topic)
        return [
            self._without_namespace(queue)
            for queue in await self._running().routes.reading(wrapped)
        ]

    async def min_offset(self, queue: MessageQueue) -> int:
        """Give the offset of the oldest message of a queue."""
        return await self._running().brokers.min_offset(self._with_namespace(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """Give the offset that the next message of a queue will have."""
        return await self._running().brokers.max_offset(self._with_namespace(queue))

    async def offset_for_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Give the offset of the first message that was stored at a time or later."""
        return await self._running().brokers.offset_at(self._with_namespace(queue), timestamp_ms)

    async def oldest_ms(self, queue: MessageQueue) -> int | None:
        """Say when the oldest message of a queue was stored; None when there is none."""
        return await self._running().brokers.oldest_ms(self._with_namespace(queue))

    def _with_namespace(self, queue: MessageQueue) -> MessageQueue:
        """Name a queue as brokers know it."""
        if not isinstance(queue, MessageQueue):
            raise MessageTypeError("queue", queue, takes="a MessageQueue, one of queues(topic)")
        return _with_topic(queue, wrap(self._namespace, queue.topic))

    def _without_namespace(self, queue: MessageQueue) -> MessageQueue:
        """Name a queue as users know it."""
        return _with_topic(queue, unwrap(self._namespace, queue.topic))


def _with_topic(queue: MessageQueue, topic: str) -> MessageQueue:
    return queue if queue.topic == topic else msgspec.structs.replace(queue, topic=topic)
