"""Messages to pull, sent to queues that the test chooses."""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.client.aio import LitePullConsumer
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.clock import SystemClock
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.sending import SendMessageShort
from orbitmq.record.properties import encode_properties
from tests.integration.client.conftest import Cluster


def queue_of(topic: str, queue_id: int = 0, broker_name: str = "broker-a") -> MessageQueue:
    return MessageQueue(broker_name=broker_name, queue_id=queue_id, topic=topic)


async def send(
    cluster: Cluster,
    topic: str,
    *bodies: str,
    queue_id: int = 0,
    broker: str = "broker-a",
    **properties: str,
) -> None:
    """Send messages to one queue, and wait until they can be read."""
    for body in bodies:
        header = SendMessageShort(
            producer_group="by-hand",
            topic=topic,
            template_topic="TBW102",
            template_queues=4,
            queue_id=queue_id,
            system_flag=0,
            born_timestamp_ms=Long(SystemClock().now_ms()),
            flag=0,
            properties=encode_properties(properties).decode(),
        )
        await cluster.rpc.call(cluster.address(broker), header, body.encode())


def bodies(messages: Iterable[ReceivedMessage]) -> list[str]:
    return [message.body.decode() for message in messages]


async def polled(consumer: LitePullConsumer, count: int) -> list[str]:
    """Poll until this many messages arrived; returns any further ones too."""
    found: list[str] = []
    while len(found) < count:
        messages = await consumer.poll(60_000)
        assert messages, f"only {found} of {count}"
        found += bodies(messages)
    return found
