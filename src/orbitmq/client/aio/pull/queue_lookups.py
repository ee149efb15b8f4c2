"""Queries of pull consumers about queues: the queues of a topic and their bounds."""

from __future__ import annotations

import msgspec

from orbitmq.client.aio.instance.client_lifecycle import ClientLifecycle
from orbitmq.client.core.namespaces import unwrap, wrap
from orbitmq.client.core.topic_routes import MissingQueues, missing_queues
from orbitmq.errors import MessageTypeError
from orbitmq.model.queues import MessageQueue


class QueueLookups(ClientLifecycle):
    """Queries about queues, whose topics are named without the namespace."""

    _namespace: str

    async def queues(self, topic: str) -> list[MessageQueue]:
        """List the queues of a topic that can be read."""
        wrapped = wrap(self._namespace, topic)
        return [
            self._without_namespace(queue)
            for queue in await self._running().routes.reading(wrapped)
        ]

    async def missing_queues(self, topic: str) -> list[MissingQueues]:
        """List the brokers whose queues of a topic `queues` leaves out, as they are missing.

        All name servers are asked. RocketMQ's do not remember brokers: they tell only of those
        that another name server lists, or that the topic's order config names.
        """
        wrapped = wrap(self._namespace, topic)
        routes = await self._running().name_servers.routes_everywhere(wrapped)
        return self._outer(missing_queues(wrapped, routes))

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message of a queue."""
        return await self._running().brokers.min_offset(self._with_namespace(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message of a queue will have."""
        return await self._running().brokers.max_offset(self._with_namespace(queue))

    async def offset_for_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message that was stored at a time or later."""
        return await self._running().brokers.offset_at(self._with_namespace(queue), timestamp_ms)

    async def oldest_ms(self, queue: MessageQueue) -> int | None:
        """Return when the oldest message of a queue was stored; None if the queue is empty."""
        return await self._running().brokers.oldest_ms(self._with_namespace(queue))

    def _outer(self, missing: list[MissingQueues]) -> list[MissingQueues]:
        """Return missing queues as users name them."""
        return [
            found._replace(queues=tuple(map(self._without_namespace, found.queues)))
            for found in missing
        ]

    def _with_namespace(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue as brokers name it."""
        if not isinstance(queue, MessageQueue):
            raise MessageTypeError("queue", queue, takes="a MessageQueue, one of queues(topic)")
        return _with_topic(queue, wrap(self._namespace, queue.topic))

    def _without_namespace(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue as users name it."""
        return _with_topic(queue, unwrap(self._namespace, queue.topic))


def _with_topic(queue: MessageQueue, topic: str) -> MessageQueue:
    return queue if queue.topic == topic else msgspec.structs.replace(queue, topic=topic)
