"""Where a consumer resumes in a queue that is not the one it has read.

A topic that was deleted and created again numbers its messages from 0, and a broker that crashed
may have lost its newest ones. Asked for an offset after the end, brokers of RocketMQ suggest the
end, which skips what the queue has. So a consumer remembers when the last message that it pulled of
a queue was stored, and resumes at the first one stored later, as the master knows: slaves may lag.
The same is checked after the topic was missing, since the new queue may be longer than the old one,
and when another broker of the group sends the next messages: a slave that was promoted may have
lacked what was read.

If the consumer has pulled nothing yet, only its group knows how far the old queue was read. Then a
queue that still has its first message is read from there: rather twice than not at all.

Threads: belongs to the event loop of its consumer.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from orbitmq.model.queues import MessageQueue

log = logging.getLogger(__name__)


class TimeCalls(Protocol):
    """Calls to brokers about the times of messages."""

    async def offset_at(
        self,
        queue: MessageQueue,
        timestamp_ms: int,
        *,
        at_master: bool = False,
        address: str | None = None,
    ) -> int:
        """Fetch the offset of the first message stored at a time or later, maybe at one broker."""

    async def stored_ms_of(
        self, queue: MessageQueue, offset: int, *, group: str, address: str
    ) -> int | None:
        """Fetch when a message was stored, from one broker; None if it has none there."""


class PulledMessage(Protocol):
    """What is remembered of a message."""

    @property
    def queue_offset(self) -> int:
        """Its offset in the queue."""

    @property
    def store_ms(self) -> int:
        """When its broker stored it."""


class PulledFrom(Protocol):
    """The reply to a pull."""

    @property
    def next_offset(self) -> int:
        """Where the next pull starts."""


class MovedOffset(Protocol):
    """The reply of a broker that does not have the offset of a pull."""

    @property
    def next_offset(self) -> int:
        """Where the broker suggests to resume."""

    @property
    def min_offset(self) -> int:
        """The offset of the oldest message."""

    @property
    def max_offset(self) -> int:
        """The offset that the next message will have."""


@dataclass(slots=True)
class _Position:
    """How far a queue was read."""

    next_offset: int
    # The last message that was pulled. Not the message itself, which would keep its whole pull.
    last_offset: int = -1
    last_stored_ms: int | None = None
    # The broker that sent it.
    address: str | None = None
    was_missing: bool = False
    # Whether a user chose the offset, and nothing was pulled since.
    is_chosen: bool = False


class QueueLives:
    """What a consumer has read of its queues, to notice that one was replaced."""

    def __init__(self, group: str, calls: TimeCalls) -> None:
        self._group = group
        self._calls = calls
        self._positions: dict[MessageQueue, _Position] = {}
        self._chosen: dict[MessageQueue, int] = {}

    def choose(self, queue: MessageQueue, offset: int) -> None:
        """Record that a user chose where to resume: after the end means to skip the rest."""
        self._positions[queue] = _Position(offset, is_chosen=True)
        self._chosen[queue] = offset

    def note_start(self, queue: MessageQueue, offset: int) -> None:
        """Record where the group resumes in a queue."""
        is_chosen = self._chosen.pop(queue, None) == offset
        self._positions[queue] = _Position(offset, is_chosen=is_chosen)

    def note_pull(
        self,
        queue: MessageQueue,
        next_offset: int,
        last: PulledMessage | None,
        address: str | None = None,
    ) -> None:
        """Record a pull: where the next one starts, and the last message that a broker sent."""
        position = self._positions.get(queue)
        if position is None:
            position = self._positions[queue] = _Position(next_offset)
        if last is not None or next_offset > position.next_offset:
            position.address = address
        position.next_offset = next_offset
        position.is_chosen = False
        if last is not None:
            position.last_offset, position.last_stored_ms = last.queue_offset, last.store_ms

    def note_missing(self, queue: MessageQueue) -> None:
        """Record that its broker does not have the topic now."""
        position = self._positions.get(queue)
        if position is not None:
            position.was_missing = True

    def forget(self, queue: MessageQueue) -> None:
        """Forget a queue that was given up."""
        self._positions.pop(queue, None)

    async def resume_at(self, queue: MessageQueue, offset: int, moved: MovedOffset) -> int:
        """Return where to resume after a broker did not have an offset."""
        position = self._positions.get(queue)
        first, end = moved.min_offset, moved.max_offset
        if position is None or position.next_offset != offset or offset <= end or first == end:
            # An offset of unknown origin, deleted messages, or an empty queue.
            return moved.next_offset
        if position.is_chosen:
            return end
        if moved.next_offset not in (first, end):
            # An operator has reset the group.
            return moved.next_offset
        if position.last_stored_ms is not None:
            later = await self._calls.offset_at(queue, position.last_stored_ms + 1, at_master=True)
            found = min(max(later, first), end)
        else:
            found = first if first == 0 else moved.next_offset
        log.warning(
            "queue ends before the offset of the consumer: its topic was deleted and created again, "
            "or its broker lost messages group=%s topic=%s broker=%s queue=%d offset=%d end=%d "
            "next=%d",
            self._group,
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            offset,
            end,
            found,
        )
        return found

    async def replaced_at(self, queue: MessageQueue, offset: int) -> int | None:
        """Return where to resume if the queue was replaced while its topic was missing, else None.

        Asks the broker once after each time that the topic was missing.
        """
        position = self._positions.get(queue)
        if position is None or not position.was_missing:
            return None
        if position.last_stored_ms is None or position.next_offset != offset:
            position.was_missing = False
            return None
        later = await self._calls.offset_at(queue, position.last_stored_ms + 1, at_master=True)
        position.was_missing = False
        if later > position.last_offset:
            return None
        log.warning(
            "topic was deleted and created again, reading the new one group=%s topic=%s broker=%s "
            "queue=%d offset=%d next=%d",
            self._group,
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            offset,
            later,
        )
        return later

    async def differs_at(
        self, queue: MessageQueue, offset: int, pulled: PulledFrom, address: str
    ) -> int | None:
        """Return where to resume if a broker has other messages than were read, else None.

        To be asked about each pull before its messages are used. Asks the broker if another one sent
        those before.
        """
        position = self._positions.get(queue)
        if (
            position is None
            or position.address in (None, address)
            or position.last_stored_ms is None
            or position.next_offset != offset
            or pulled.next_offset <= offset
        ):
            return None
        later = await self._calls.offset_at(queue, position.last_stored_ms + 1, address=address)
        if later > position.last_offset:
            return None
        # Compat: RocketMQ 4 finds the nearest message, which may be the one that was read.
        stored_ms = await self._calls.stored_ms_of(
            queue, position.last_offset, group=self._group, address=address
        )
        if stored_ms == position.last_stored_ms:
            return None
        log.warning(
            "another broker has other messages there, reading them: a slave that lacked what was read "
            "became the master group=%s topic=%s broker=%s queue=%d address=%s offset=%d next=%d",
            self._group,
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            address,
            offset,
            later,
        )
        return later
