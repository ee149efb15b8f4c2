"""What a topic's route means to a producer and to a consumer."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from orbitmq.errors import ProtocolError
from orbitmq.model.queues import MessageQueue
from orbitmq.model.routes import MASTER_ID, QueueRoute, TopicRoute
from orbitmq.model.topics import Permission


class PublishRoute(NamedTuple):
    """The queues a producer may send to."""

    queues: tuple[MessageQueue, ...]
    # An operator fixed the number of queues per broker, so that order survives restarts.
    is_ordered: bool
    # The topic does not exist; the first send would create it with these queues.
    is_template: bool


class MissingQueues(NamedTuple):
    """Queues of a topic that cannot be read, since their broker is missing."""

    broker_name: str
    # Empty if it is not known which: the broker may have queues of any topic.
    queues: tuple[MessageQueue, ...]
    # None if no name server knows it.
    since_ms: int | None

    def __str__(self) -> str:
        name = self.broker_name
        if self.since_ms is None:
            text = f"{name} is not registered"
        else:
            since = datetime.datetime.fromtimestamp(self.since_ms // 1000, tz=datetime.UTC)
            text = f"{name} is missing since {since:%Y-%m-%d %H:%M:%S} UTC"
        if not self.queues:
            return f"{text} (its topics are not known)"
        numbers = ", ".join(str(queue.queue_id) for queue in self.queues[:8])
        more = f" and {len(self.queues) - 8} more" if len(self.queues) > 8 else ""
        noun = "queue" if len(self.queues) == 1 else "queues"
        return f"{text} ({noun} {numbers}{more} of topic {self.queues[0].topic!r})"


def missing_queues(topic: str, routes: Iterable[TopicRoute]) -> list[MissingQueues]:
    """List what the first route lacks of a topic, as far as it or the others know.

    The others are those of further name servers, one of which may know a broker that another,
    restarted one has not heard of yet.
    """
    first, *others = routes
    present = {part.broker_name for part in first.queues}
    found: dict[str, MissingQueues] = {}
    for route in (first, *others):
        since = {one.name: one.since_ms for one in route.missing_brokers or ()}
        parts = [
            (part.broker_name, part.read_queues)
            for part in (*(route.missing_queues or ()), *route.queues)
            if part.permission & Permission.READ
        ]
        unknown = [(one.name, 0) for one in route.missing_brokers or () if not one.topics_known]
        ordered = _ordered_counts(topic, route.order_config or "")
        for name, count in (*parts, *unknown, *ordered):
            if name not in present and name not in found:
                found[name] = MissingQueues(name, _queues(topic, name, count), since.get(name))
    return [found[name] for name in sorted(found)]


def publish_route(topic: str, route: TopicRoute) -> PublishRoute:
    """List the queues of a topic that accept messages."""
    if route.order_config:
        ordered = tuple(_ordered_queues(topic, route.order_config))
        return PublishRoute(ordered, is_ordered=True, is_template=False)
    queues = tuple(
        MessageQueue(broker_name=part.broker_name, queue_id=queue_id, topic=topic)
        for part in _writable(route)
        for queue_id in range(part.write_queues)
    )
    return PublishRoute(queues, is_ordered=False, is_template=False)


def masterless(route: TopicRoute) -> list[str]:
    """List the broker groups that have queues for messages and no master to take them."""
    masters = {group.name for group in route.brokers if MASTER_ID in group.addresses}
    return sorted(
        part.broker_name
        for part in route.queues
        if part.permission & Permission.WRITE
        and part.write_queues
        and part.broker_name not in masters
    )


def template_route(topic: str, template: TopicRoute, *, queues_max: int) -> PublishRoute:
    """List the queues that a topic will have once a broker creates it from the template."""
    queues = tuple(
        MessageQueue(broker_name=part.broker_name, queue_id=queue_id, topic=topic)
        for part in _writable(template)
        for queue_id in range(min(queues_max, part.read_queues))
    )
    return PublishRoute(queues, is_ordered=False, is_template=True)


def reading_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    """List the queues of a topic that can be read, in the order all clients agree on."""
    queues = [
        MessageQueue(broker_name=part.broker_name, queue_id=queue_id, topic=topic)
        for part in route.queues
        if part.permission & Permission.READ
        for queue_id in range(part.read_queues)
    ]
    return tuple(sorted(queues, key=queue_order))


def queue_order(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    """Sort key of queues: topic, broker, number."""
    # Compat: Java compares strings by UTF-16 unit; members of a group must sort the same way.
    return java_text_order(queue.topic), java_text_order(queue.broker_name), queue.queue_id


def java_text_order(text: str) -> bytes:
    """Sort key of a text, in the order of Java strings."""
    return text.encode("utf-16-be", "surrogatepass")


def _writable(route: TopicRoute) -> Iterator[QueueRoute]:
    """Yield the parts of a route with a master that accept messages, by broker name."""
    masters = {group.name for group in route.brokers if MASTER_ID in group.addresses}
    for part in sorted(route.queues, key=lambda part: java_text_order(part.broker_name)):
        if part.permission & Permission.WRITE and part.broker_name in masters:
            yield part


def _ordered_queues(topic: str, order_config: str) -> Iterator[MessageQueue]:
    for broker_name, count in _ordered_counts(topic, order_config):
        yield from _queues(topic, broker_name, count)


def _ordered_counts(topic: str, order_config: str) -> Iterator[tuple[str, int]]:
    """Parse `broker-a:4;broker-b:4`."""
    for part in order_config.split(";"):
        if not part:
            continue
        broker_name, _, count = part.partition(":")
        if not (count.isascii() and count.isdigit()):
            raise ProtocolError(
                f"the order config of topic {topic!r} is {order_config[:200]!r}",
                hint="set it again, in the form broker:queues;broker:queues",
            )
        yield broker_name, int(count)


def _queues(topic: str, broker_name: str, count: int) -> tuple[MessageQueue, ...]:
    return tuple(
        MessageQueue(broker_name=broker_name, queue_id=queue_id, topic=topic)
        for queue_id in range(count)
    )
