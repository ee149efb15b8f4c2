"""Topics for tests: created, filled and read."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Self

from orbitmq.client import Admin, Message, MessageQueue, Producer, PullConsumer, ReceivedMessage
from orbitmq.embedded import Cluster
from tests.interop.timeouts import CLIENT_TIMEOUT_S
from tests.waiting import wait_until

_numbers = itertools.count(1)
_BATCH_MESSAGES = 500
_BATCH_BYTES = 1 << 20
# Time limits of clients: a broker on a machine that stalls has not failed.
PATIENCE_MS = 60_000


class Topics:
    """The topics of one cluster, with a producer that fills them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._opened = ExitStack()
        self._producer: Producer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @property
    def producer(self) -> Producer:
        """A producer of the cluster, started on first use."""
        if self._producer is None:
            producer = Producer(
                "spark-tests",
                namesrv=self.cluster.namesrv,
                send_timeout_ms=PATIENCE_MS,
                call_timeout_ms=PATIENCE_MS,
            )
            self._producer = self._opened.enter_context(producer)
        return self._producer

    def create(self, *, queues: int = 4) -> str:
        """Make a topic that no other test uses, with this many queues on each broker."""
        name = f"topic-{next(_numbers)}"
        self.cluster.create_topic(name, queues=queues)
        return name

    def filled(self, count: int, *, queues: int = 4) -> str:
        """Make a topic of messages `message 0`, `message 1`, …, sent to its queues in turn."""
        topic = self.create(queues=queues)
        self.send(topic, (f"message {number}" for number in range(count)))
        return topic

    def create_again(self, topic: str, *, queues: int = 4) -> None:
        """Delete a topic, and make another of the same name."""
        with Admin(namesrv=self.cluster.namesrv, call_timeout_ms=PATIENCE_MS) as admin:
            admin.topics.delete(topic)
        self.cluster.create_topic(topic, queues=queues)

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic, in order."""
        return sorted(self.producer.queues(topic))

    def send(self, topic: str, bodies: Iterable[bytes | str]) -> int:
        """Send messages with these bodies; its queues take them in turn. Returns how many."""
        return self.send_messages(Message(topic, body) for body in bodies)

    def send_messages(
        self, messages: Iterable[Message], *, queue: MessageQueue | None = None
    ) -> int:
        """Send messages of one topic to one queue, or in turn to all. Returns how many.

        They are stored when this returns, in their order within a queue.
        """
        sent = list(messages)
        if not sent:
            return 0
        queues = [queue] if queue is not None else self.queues(sent[0].topic)
        for number, to in enumerate(queues):
            for batch in _batches(sent[number :: len(queues)]):
                self.producer.send(batch, queue=to)
        return len(sent)

    def delete_oldest(self, topic: str, *, more_than: int) -> int:
        """Make the broker delete its oldest files, as soon as it no longer needs them.

        Returns the first message left in a topic of one queue, once more than this many are gone.
        """
        with Admin(namesrv=self.cluster.namesrv, call_timeout_ms=PATIENCE_MS) as admin:

            def first() -> int:
                (bounds,) = admin.topics.bounds(topic).values()
                return bounds.min_offset

            def are_gone() -> bool:
                admin.brokers.delete_expired_logs("broker-a")
                return first() > more_than

            wait_until(are_gone, timeout_s=CLIENT_TIMEOUT_S, what="files to be deleted")
            return first()

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """Everything that consumers can see in a topic, queue by queue."""
        with PullConsumer(
            "spark-tests", namesrv=self.cluster.namesrv, call_timeout_ms=PATIENCE_MS
        ) as consumer:
            return [
                message
                for queue in sorted(consumer.queues(topic))
                for message in _messages_of(consumer, queue)
            ]


def _messages_of(consumer: PullConsumer, queue: MessageQueue) -> Iterator[ReceivedMessage]:
    offset, end = consumer.min_offset(queue), consumer.max_offset(queue)
    while offset < end:
        pulled = consumer.pull(queue, "*", offset)
        yield from pulled.messages
        offset = pulled.next_offset


def _batches(messages: list[Message]) -> Iterator[list[Message]]:
    """Split into lists that fit one request each."""
    batch: list[Message] = []
    size = 0
    for message in messages:
        if batch and (len(batch) == _BATCH_MESSAGES or size + len(message.body) > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += len(message.body)
    if batch:
        yield batch
