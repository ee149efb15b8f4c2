"""What a topic's route means to a producer and to a consumer."""

from __future__ import annotations

from collections.abc import Iterator
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
        for queue_id in range(int(count)):
            yield MessageQueue(broker_name=broker_name, queue_id=queue_id, topic=topic)
