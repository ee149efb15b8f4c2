"""The newest messages of a topic: what a first file, or a test, is made of."""

from __future__ import annotations

from typing import Final

from orbitmq.client import PullConsumer, ReceivedMessage

SAMPLE_MAX: Final = 1000
_PULL_MAX: Final = 32
_GROUP: Final = "orbitmq-pipeline"


def newest_messages(namesrv: str, topic: str, *, count: int = SAMPLE_MAX) -> list[ReceivedMessage]:
    """The newest messages of all queues of a topic, about so many."""
    found: list[ReceivedMessage] = []
    with PullConsumer(_GROUP, namesrv=namesrv) as consumer:
        queues = consumer.queues(topic)
        each = max(count // max(len(queues), 1), 1)
        for queue in queues:
            end = consumer.max_offset(queue)
            offset = max(consumer.min_offset(queue), end - each)
            while offset < end and len(found) < count:
                pulled = consumer.pull(queue, "*", offset, _PULL_MAX)
                found += pulled.messages[: count - len(found)]
                if pulled.next_offset <= offset:
                    break
                offset = pulled.next_offset
    return found
