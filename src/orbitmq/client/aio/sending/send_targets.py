"""Where a producer sends to: topics, their queues, what is kept ready for each.

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

# Topics whose queues are kept at hand; the oldest makes room for another.
_TARGETS_MAX: Final = 10_000
# A topic whose sends fail is asked for again this often at most.
_REFRESH_PAUSE_MS: Final = 1000.0
# An error names so many queues at most.
_NAMED_MAX: Final = 20


class Way:
    """One queue that a producer sends to."""

    __slots__ = ("broker_name", "frames", "shown")

    def __init__(self, shown: MessageQueue, frames: SendFrames) -> None:
        # As the user knows it, without its namespace.
        self.shown = shown
        self.broker_name = shown.broker_name
        self.frames = frames


class Target:
    """The queues of one topic that a producer sends to."""

    __slots__ = ("choice", "route", "shown", "topic", "ways")

    def __init__(self, topic: str, route: PublishRoute, ways: tuple[Way, ...]) -> None:
        # With its namespace, as brokers know it.
        self.topic = topic
        self.route = route
        self.ways = ways
        self.shown = tuple(way.shown for way in ways)
        self.choice = QueueChoice(route.queues)

    def way_to(self, queue: MessageQueue) -> Way | None:
        """Find a queue, whose topic may be named with or without the namespace."""
        for way, wrapped in zip(self.ways, self.route.queues, strict=True):
            if queue in (way.shown, wrapped):
                return way
        return None

    def is_topic_of(self, queue: MessageQueue) -> bool:
        """Whether a queue is one of this topic, if it exists."""
        return queue.topic in (self.shown[0].topic, self.topic)

    def no_such(self, queue: MessageQueue) -> NoQueueError:
        """Make the error for a queue that is none of these."""
        known = ", ".join(
            f"{shown.broker_name}:{shown.queue_id}" for shown in self.shown[:_NAMED_MAX]
        )
        more = len(self.shown) - _NAMED_MAX
        of = "" if self.is_topic_of(queue) else f" of topic {queue.topic!r}"
        return NoQueueError(
            f"queue {queue.broker_name}:{queue.queue_id}{of} takes no messages of topic "
            f"{self.shown[0].topic!r}; those that do: {known}"
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
        self._targets: dict[str, Target] = {}
        self._refreshed_ms: dict[str, float] = {}
        self._refreshing = OwnedTasks()

    @property
    def topics(self) -> list[str]:
        """The topics, as brokers know them."""
        return list(self._targets)

    def known(self, topic: str) -> Target | None:
        """Give the queues of a topic, as far as known; the topic has its namespace."""
        route = self._routes.cached_publishing(topic)
        target = self._targets.get(topic)
        if target is not None and target.route is route:
            return target
        return None if route is None else self._new_target(topic, route)

    async def find(self, topic: str, *, timeout_ms: float) -> Target:
        """Find the queues of a topic; raises RouteNotFoundError and its like."""
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

    async def find_way(self, target: Target, queue: MessageQueue, *, timeout_ms: float) -> Way:
        """Find a queue of the user's choice, which may be newer than the route."""
        way = target.way_to(queue)
        if way is None and target.is_topic_of(queue) and not target.route.is_template:
            await self._routes.refresh(target.topic, timeout_ms=timeout_ms)
            target = self.known(target.topic) or target
            way = target.way_to(queue)
        if way is None:
            raise target.no_such(queue)
        return way

    def address_of(self, broker_name: str) -> str | None:
        """Give the address that sends to a broker go to."""
        address = self._routes.master_of(broker_name)
        return None if address is None else self._brokers.sending_address(address)

    def refresh_soon(self, topic: str) -> None:
        """Ask for the route of a topic again, beside the sends."""
        now_ms = self._clock.monotonic_ms()
        refreshed_ms = self._refreshed_ms.get(topic)
        if refreshed_ms is not None and now_ms < refreshed_ms + _REFRESH_PAUSE_MS:
            return
        if len(self._refreshed_ms) >= _TARGETS_MAX:
            self._refreshed_ms.clear()
        self._refreshed_ms[topic] = now_ms
        self._refreshing.start(self._refresh(topic), name=f"route of {topic} after a failed send")

    async def stop(self) -> None:
        """Give up what is asked beside the sends."""
        await self._refreshing.cancel()

    async def _refresh(self, topic: str) -> None:
        try:
            await self._routes.refresh(topic)
        except OrbitError as error:
            log.debug("route not renewed after a failed send topic=%s reason=%s", topic, error)

    def _new_target(self, topic: str, route: PublishRoute) -> Target:
        shown_topic = namespaces.unwrap(self._options.namespace, topic)
        ways = tuple(
            Way(
                MessageQueue(
                    broker_name=queue.broker_name, queue_id=queue.queue_id, topic=shown_topic
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
        target = self._targets[topic] = Target(topic, route, ways)
        return target
