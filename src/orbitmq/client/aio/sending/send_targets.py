"""Where a producer sends to: topics and their queues, with prepared frames.

Threads: one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from orbitmq.client.core import namespaces
from orbitmq.client.core.sending.queue_choice import QueueChoice
from orbitmq.clock import time_limit
from orbitmq.errors import NoMasterError, NoQueueError, OrbitError, TopicBrokersMissingError
from orbitmq.lifecycle import OwnedTasks
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.send_frames import SendFrames

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orbitmq.client.aio.instance.client_instance import ClientInstance
    from orbitmq.client.core.topic_routes import PublishRoute
    from orbitmq.client.options import ProducerOptions

log = logging.getLogger(__name__)

# Topics whose queues are cached; a new one replaces the oldest.
_TARGETS_MAX: Final = 10_000
# The route of a topic whose sends fail is looked up again this often at most.
_REFRESH_PAUSE_MS: Final = 1000.0
# Before it is looked up again while sends wait for a master.
_LOOKUP_PAUSE_MS: Final = 250.0
# Instead of a broker's name: the send may be to a queue of any.
_ANY_BROKER: Final = ""
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
        # By topic, what to call after its next lookup.
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        # By topic, brokers of queues that users chose for sends that wait.
        self._awaited: dict[str, set[str]] = {}

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
        """Return the queues of a topic, looking it up if needed; raises as `Routes.publishing`.

        While its brokers have no master, it is looked up again until the time is over.
        """
        known = self.known(topic)
        if known is not None:
            return known
        end_ms = self._clock.monotonic_ms() + timeout_ms
        while True:
            try:
                route = await self._routes.publishing(
                    topic,
                    timeout_ms=end_ms - self._clock.monotonic_ms(),
                    template_queues=self._options.template_queues,
                    template_topic=self._options.template_topic,
                )
            except NoMasterError as error:
                if not await self._next_lookup(topic, end_ms):
                    raise self._no_master(topic, error.broker_names, timeout_ms) from None
            except TopicBrokersMissingError:
                # A slave that becomes the master is gone for a moment.
                if not await self._next_lookup(topic, end_ms):
                    raise
            else:
                return self.known(topic) or self._new_target(topic, route)

    async def resolve_queue(
        self, target: SendTarget, queue: MessageQueue, *, timeout_ms: float
    ) -> SendQueue:
        """Find the queue that the user chose; it may be newer than the cached route.

        While its broker has no master, the route is looked up again until the time is over.
        """
        end_ms = self._clock.monotonic_ms() + timeout_ms
        send_queue = target.find_queue(queue)
        if send_queue is None and target.is_topic_of(queue) and not target.route.is_template:
            await self._routes.refresh(target.topic, timeout_ms=timeout_ms)
            target = self.known(target.topic) or target
            send_queue = target.find_queue(queue)
            while send_queue is None and queue.broker_name in self._routes.masterless(target.topic):
                if not await self._next_lookup(target.topic, end_ms, queue.broker_name):
                    raise self._no_master(target.topic, [queue.broker_name], timeout_ms)
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

    def after_lookup(
        self, topic: str, resume: Callable[[], None], *, chosen_broker: str | None = None
    ) -> None:
        """Look up the route of a topic again in a moment, and call `resume` then.

        All sends that wait for a topic share the lookup, and resume in the order in which they came.
        Give the broker if the user chose its queue: later sends there must not overtake this one.
        """
        waiting = self._waiting.get(topic)
        if waiting is None:
            waiting = self._waiting[topic] = []
            self._refreshing.start(self._look_up_again(topic), name=f"new master for {topic}")
        waiting.append(resume)
        if chosen_broker is not None:
            self._awaited.setdefault(topic, set()).add(chosen_broker)

    def is_awaited(self, topic: str, broker_name: str) -> bool:
        """Whether sends to chosen queues of a broker wait for the next lookup of a topic."""
        awaited = self._awaited.get(topic, ())
        return broker_name in awaited or _ANY_BROKER in awaited

    async def _look_up_again(self, topic: str) -> None:
        try:
            await self._clock.sleep_ms(_LOOKUP_PAUSE_MS)
            await self._refresh(topic)
        finally:
            self._awaited.pop(topic, None)
            for resume in self._waiting.pop(topic):
                resume()

    async def _next_lookup(
        self, topic: str, end_ms: float, chosen_broker: str = _ANY_BROKER
    ) -> bool:
        """Wait for the next lookup; returns False once the time is over."""
        looked_up = asyncio.Event()
        self.after_lookup(topic, looked_up.set, chosen_broker=chosen_broker)
        try:
            async with time_limit(self._clock, end_ms - self._clock.monotonic_ms()):
                await looked_up.wait()
        except TimeoutError:
            return False
        return True

    def _no_master(self, topic: str, brokers: Sequence[str], waited_ms: float) -> NoMasterError:
        name = namespaces.unwrap(self._options.namespace, topic)
        return NoMasterError(name, brokers, waited_ms=waited_ms)

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
