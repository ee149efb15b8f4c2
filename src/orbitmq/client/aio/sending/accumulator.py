"""Sends small messages in batches: each waits a few milliseconds for others.

A batch holds messages of one topic with the same queue, durability and timeout. It is sent when
its time is over or it reaches its limit of bytes; the bytes of all batches together are bounded
too. Every caller gets the result of its own message. A message that cannot join a batch is sent at
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from orbitmq.client.core.sending.send_results import SendResult
from orbitmq.clock import Clock
from orbitmq.errors import MessageError, StateError
from orbitmq.lifecycle import OwnedTasks
from orbitmq.model import property_names
from orbitmq.model.messages import Message
from orbitmq.model.names import is_retry_topic
from orbitmq.model.queues import MessageQueue

# Sends a message or a batch: to this queue if not None, within this many milliseconds.
Send = Callable[
    [Message | Sequence[Message], MessageQueue | None, float | None], Awaitable[SendResult]
]

W = TypeVar("W")
_Waiting = asyncio.Future[SendResult]

# Roughly what a message adds to a batch besides its body: lengths, unique id, a tag.
_MESSAGE_EXTRA_BYTES: Final = 100


class BatchKey(NamedTuple):
    """What the messages of one batch share."""

    topic: str
    queue: MessageQueue | None
    wait_store_ok: bool
    timeout_ms: float | None


@dataclass(slots=True, eq=False)
class WaitingBatch(Generic[W]):
    """Messages that wait to be sent together, each with its caller."""

    key: BatchKey
    messages: list[Message] = field(default_factory=list)
    waiting: list[W] = field(default_factory=list)
    held_bytes: int = 0


class WaitingBatches(Generic[W]):
    """The batches that still take messages, and the bytes of all that are not sent yet."""

    def __init__(self, *, batch_bytes_max: int, held_bytes_max: int) -> None:
        self._batch_bytes_max = batch_bytes_max
        self._held_bytes_max = held_bytes_max
        self._open: dict[BatchKey, WaitingBatch[W]] = {}
        self.held_bytes = 0

    def takes(self, message: object) -> bool:
        """Whether a message may wait for others; if not, it is sent by itself."""
        return (
            isinstance(message, Message)
            and not message.delay_level
            and not message.has_due_time
            and len(message.body) < self._batch_bytes_max
            and self.held_bytes < self._held_bytes_max
            and not is_retry_topic(message.topic)
            # Half messages, for which a producer group answers.
            and property_names.PRODUCER_GROUP not in message.reserved_properties
        )

    def add(self, key: BatchKey, message: Message, waiting: W) -> WaitingBatch[W]:
        """Put a message into the open batch of its key; the first message opens one."""
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
        """Whether the batch must be sent now."""
        return batch.held_bytes >= self._batch_bytes_max

    def close(self, batch: WaitingBatch[W]) -> bool:
        """Close a batch to further messages; False if it was closed before."""
        if self._open.get(batch.key) is not batch:
            return False
        del self._open[batch.key]
        return True

    def release(self, batch: WaitingBatch[W]) -> None:
        """Count the bytes of a batch as no longer held."""
        self.held_bytes -= batch.held_bytes
        batch.held_bytes = 0

    def open_batches(self) -> list[WaitingBatch[W]]:
        """List the batches that still take messages."""
        return list(self._open.values())


class Accumulator:
    """Collects messages of one producer and sends them in batches."""

    def __init__(
        self,
        send: Send,
        clock: Clock,
        *,
        delay_ms: float = 10,
        batch_bytes_max: int = 32 * 1024,
        held_bytes_max: int = 32 * 1024 * 1024,
    ) -> None:
        self._send = send
        self._clock = clock
        self._delay_ms = delay_ms
        self._batches: WaitingBatches[_Waiting] = WaitingBatches(
            batch_bytes_max=batch_bytes_max, held_bytes_max=held_bytes_max
        )
        self._sends = OwnedTasks()
        self._stopped = False

    async def add(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout_ms: float | None = None,
    ) -> SendResult:
        """Send a message together with others; it is not sent if the caller is cancelled first."""
        if self._stopped:
            raise StateError("the producer is stopped", hint="make a new one")
        if not self._batches.takes(message):
            return await self._send(message, queue, timeout_ms)
        waiting: _Waiting = asyncio.get_running_loop().create_future()
        key = BatchKey(message.topic, queue, message.wait_store_ok, timeout_ms)
        batch = self._batches.add(key, message, waiting)
        if self._batches.is_full(batch):
            self._begin_send(batch)
        elif len(batch.messages) == 1:
            # Perf: timers are not cancelled; one that fires late finds its batch closed.
            self._clock.call_later(self._delay_ms, partial(self._begin_send, batch))
        return await waiting

    async def stop(self) -> None:
        """Send the waiting messages, and return once all have ended."""
        self._stopped = True
        for batch in self._batches.open_batches():
            self._begin_send(batch)
        await self._sends.all_done()

    def _begin_send(self, batch: WaitingBatch[_Waiting]) -> None:
        if self._batches.close(batch):
            self._sends.start(self._send_batch(batch), name="send accumulated messages")

    async def _send_batch(self, batch: WaitingBatch[_Waiting]) -> None:
        wanted = [
            (message, waiting)
            for message, waiting in zip(batch.messages, batch.waiting, strict=True)
            if not waiting.done()
        ]
        try:
            await self._send_together(batch.key, wanted)
        finally:
            self._batches.release(batch)

    async def _send_together(self, key: BatchKey, wanted: list[tuple[Message, _Waiting]]) -> None:
        if not wanted:
            return
        messages = [message for message, _ in wanted]
        try:
            result = await self._send(
                messages if len(messages) > 1 else messages[0], key.queue, self._left_ms(key)
            )
        except MessageError as error:
            if len(wanted) == 1:
                _fail(wanted, error)
                return
            # One message cannot be sent; send each alone, so that the others still are.
            for each in wanted:
                await self._send_together(key, [each])
        except Exception as error:  # noqa: BLE001  # it goes to the callers
            _fail(wanted, error)
        else:
            for (_, waiting), own in zip(wanted, result.each(len(wanted)), strict=True):
                if not waiting.done():
                    waiting.set_result(own)

    def _left_ms(self, key: BatchKey) -> float | None:
        """The time left for a send after it waited here."""
        return None if key.timeout_ms is None else max(1, key.timeout_ms - self._delay_ms)


def _fail(wanted: list[tuple[Message, _Waiting]], error: Exception) -> None:
    for _, waiting in wanted:
        if not waiting.done():
            waiting.set_exception(error)
