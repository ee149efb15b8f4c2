"""Where a producer sends to: topics and their queues, with prepared frames.

Threads: one event loop.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from orbitmq.client.core import namespaces
from orbitmq.client.core.sending.queue_choice import QueueChoice
from orbitmq.errors import NoQueueError, OrbitError
from orbitmq.lifecycle import OwnedTasks
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.send_frames import SendFrames

if TYPE_CHECKING:
    from orbitmq.client.aio.instance.client_instance import ClientInstance
    from orbitmq.client.core.topic_routes import PublishRoute
    from orbitmq.client.options import ProducerOptions

log = logging.getLogger(__name__)

# Topics whose queues are cached; a new one replaces the oldest.
_TARGETS_MAX: Final = 10_000
# The route of a topic whose sends fail is looked up again this often at most.
_REFRESH_PAUSE_MS: Final = 1000.0
# Queues that an error lists at most.
_NAMED_MAX: Final = 20


class SendQueue:
    """One queue that a producer sends to."""

    __slots__ = ("broker_name", "frames", "queue")

    def __init__(self, queue: MessageQueue, frames: SendFrames) -> None:
        # As the user knows it, without its namespace.
        self.queue = queue
        self.broker_name = queue.broker_name
        self.frames = frames


class SendTarget:
    """One topic that a producer sends to: its queues, and which of them is next."""

    __slots__ = ("choice", "queues", "route", "send_queues", "topic")

    def __init__(self, topic: str, route: PublishRoute, send_queues: tuple[SendQueue, ...]) -> None:
        # With its namespace, as brokers know it.
        self.topic = topic
        self.route = route
        self.send_queues = send_queues
        # As the user knows them.
        self.queues = tuple(send_queue.queue for send_queue in send_queues)
        self.choice = QueueChoice(route.queues)

    def find_queue(self, queue: MessageQueue) -> SendQueue | None:
        """Find a queue; its topic may have the namespace or not."""
        for send_queue, wrapped in zip(self.send_queues, self.route.queues, strict=True):
            if queue in (send_queue.queue, wrapped):
                return send_queue
        return None

    def is_topic_of(self, queue: MessageQueue) -> bool:
        """Whether a queue, existing or not, names this topic."""
        return queue.topic in (self.queues[0].topic, self.topic)

    def no_such(self, queue: MessageQueue) -> NoQueueError:
        """Make the error for a queue that this topic does not have."""
        known = ", ".join(f"{one.broker_name}:{one.queue_id}" for one in self.queues[:_NAMED_MAX])
        more = len(self.queues) - _NAMED_MAX
        of = "" if self.is_topic_of(queue) else f" of topic {queue.topic!r}"
        return NoQueueError(
            f"queue {queue.broker_name}:{queue.queue_id}{of} takes no messages of topic "
            f"{self.queues[0].topic!r}; the queues that do: {known}"
            f"{f' and {more} more' if more > 0 else ''}",
            hint="choose one of producer.queues(topic)",
        )


class SendTargets:
    """The topics that one producer sends to."""

    def __init__(self, instance: ClientInstance, *, group: str, options: ProducerOptions) -> None:
        self._clock = instance.clock
        self._routes = instance.routes
        self._brokers = instance.brokers
        self._group = group
        self._options = options
        self._targets: dict[str, SendTarget] = {}
        self._refreshed_ms: dict[str, float] = {}
        self._refreshing = OwnedTasks()

    @property
    def topics(self) -> list[str]:
        """The topics, as brokers know them."""
        return list(self._targets)

    def known(self, topic: str) -> SendTarget | None:
        """Return the cached queues of a topic, which is given with its namespace."""
        route = self._routes.cached_publishing(topic)
        target = self._targets.get(topic)
        if target is not None and target.route is route:
            return target
        return None if route is None else self._new_target(topic, route)

    async def find(self, topic: str, *, timeout_ms: float) -> SendTarget:
        """Return the queues of a topic, looking it up if needed; raises as `Routes.publishing`."""
        known = self.known(topic)
        if known is not None:
            return known
        route = await self._routes.publishing(
            topic,
            timeout_ms=timeout_ms,
            template_queues=self._options.template_queues,
            template_topic=self._options.template_topic,
        )
        return self.known(topic) or self._new_target(topic, route)

    async def resolve_queue(
        self, target: SendTarget, queue: MessageQueue, *, timeout_ms: float
    ) -> SendQueue:
        """Find the queue that the user chose; it may be newer than the cached route."""
        send_queue = target.find_queue(queue)
        if send_queue is None and target.is_topic_of(queue) and not target.route.is_template:
            await self._routes.refresh(target.topic, timeout_ms=timeout_ms)
            target = self.known(target.topic) or target
            send_queue = target.find_queue(queue)
        if send_queue is None:
            raise target.no_such(queue)
        return send_queue

    def address_of(self, broker_name: str) -> str | None:
        """Return the address for sends to a broker."""
        address = self._routes.master_of(broker_name)
        return None if address is None else self._brokers.sending_address(address)

    def refresh_soon(self, topic: str) -> None:
        """Look up the route of a topic again, in the background."""
        now_ms = self._clock.monotonic_ms()
        refreshed_ms = self._refreshed_ms.get(topic)
        if refreshed_ms is not None and now_ms < refreshed_ms + _REFRESH_PAUSE_MS:
            return
        if len(self._refreshed_ms) >= _TARGETS_MAX:
            self._refreshed_ms.clear()
        self._refreshed_ms[topic] = now_ms
        self._refreshing.start(self._refresh(topic), name=f"route of {topic} after a failed send")

    async def stop(self) -> None:
        """Cancel the lookups in the background."""
        await self._refreshing.cancel()

    async def _refresh(self, topic: str) -> None:
        try:
            await self._routes.refresh(topic)
        except OrbitError as error:
            log.debug("route not refreshed after a failed send topic=%s reason=%s", topic, error)

    def _new_target(self, topic: str, route: PublishRoute) -> SendTarget:
        user_topic = namespaces.unwrap(self._options.namespace, topic)
        send_queues = tuple(
            SendQueue(
                MessageQueue(
                    broker_name=queue.broker_name, queue_id=queue.queue_id, topic=user_topic
                ),
                SendFrames(
                    group=self._group,
                    topic=topic,
                    template_topic=self._options.template_topic,
                    template_queues=self._options.template_queues,
                    queue_id=queue.queue_id,
                    broker_name=queue.broker_name,
                ),
            )
            for queue in route.queues
        )
        if topic not in self._targets and len(self._targets) >= _TARGETS_MAX:
            del self._targets[next(iter(self._targets))]
        target = self._targets[topic] = SendTarget(topic, route, send_queues)
        return target
