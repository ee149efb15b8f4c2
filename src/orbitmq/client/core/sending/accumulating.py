"""Which small messages wait for others to be sent with, and until when.

A batch holds messages of one topic that go to the same place in the same way. It is full at its
limit of bytes; what all batches hold together is bounded too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from orbitmq.model import property_names
from orbitmq.model.messages import Message
from orbitmq.model.names import is_retry_topic
from orbitmq.model.queues import MessageQueue

# What a message takes in a batch beside its body, about: lengths, unique id, a tag.
_MESSAGE_EXTRA_BYTES: Final = 100

W = TypeVar("W")


class BatchKey(NamedTuple):
    """What messages of one batch have in common."""

    topic: str
    queue: MessageQueue | None
    wait_store_ok: bool
    timeout_ms: float | None


@dataclass(slots=True, eq=False)
class WaitingBatch(Generic[W]):
    """Messages that wait to be sent together, each with whoever waits for its result."""

    key: BatchKey
    messages: list[Message] = field(default_factory=list)
    waiting: list[W] = field(default_factory=list)
    held_bytes: int = 0


class Accumulating(Generic[W]):
    """The batches that wait, and those that are being sent."""

    def __init__(self, *, batch_bytes_max: int, held_bytes_max: int) -> None:
        self._batch_bytes_max = batch_bytes_max
        self._held_bytes_max = held_bytes_max
        self._open: dict[BatchKey, WaitingBatch[W]] = {}
        self.held_bytes = 0

    def takes(self, message: object) -> bool:
        """Whether this is a message that may wait for others; else it is to be sent by itself."""
        return (
            isinstance(message, Message)
            and not message.delay_level
            and len(message.body) < self._batch_bytes_max
            and self.held_bytes < self._held_bytes_max
            and not is_retry_topic(message.topic)
            # Half messages, and whatever else a producer group answers for.
            and property_names.PRODUCER_GROUP not in message.reserved_properties
        )

    def add(self, key: BatchKey, message: Message, waiting: W) -> WaitingBatch[W]:
        """Put the message into the open batch of its key; a first message opens one."""
        batch = self._open.get(key)
        if batch is None:
            batch = self._open[key] = WaitingBatch(key)
        message_bytes = len(message.body) + _MESSAGE_EXTRA_BYTES
        batch.messages.append(message)
        batch.waiting.append(waiting)
        batch.held_bytes += message_bytes
        self.held_bytes += message_bytes
        return batch

    def is_full(self, batch: WaitingBatch[W]) -> bool:
        """Whether the batch is to be sent without waiting any longer."""
        return batch.held_bytes >= self._batch_bytes_max

    def close(self, batch: WaitingBatch[W]) -> bool:
        """Take no more messages into a batch; False when that was said before."""
        if self._open.get(batch.key) is not batch:
            return False
        del self._open[batch.key]
        return True

    def release(self, batch: WaitingBatch[W]) -> None:
        """The messages of the batch were sent, or never will be."""
        self.held_bytes -= batch.held_bytes
        batch.held_bytes = 0

    def open_batches(self) -> list[WaitingBatch[W]]:
        """The batches that still take messages."""
        return list(self._open.values())
