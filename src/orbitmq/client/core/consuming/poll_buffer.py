"""Messages between pull and poll: what is buffered, handed out, and done.

Of each queue three offsets are known, in this order:

    consumed        everything before it is done; this is what may be committed
    position        where the next message lies that a poll will get
    next_offset     where the next pull begins

A poll says that what earlier polls returned is done (`finish`): `consumed` comes up to `position`
then. Invariant: it never passes a message that was not handed out, nor one handed out since.

A seek sets all three, throws away what is buffered, and begins a new generation of the queue:
what was pulled for an older generation is refused when it comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.errors import StateError

if TYPE_CHECKING:
    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.model.queues import MessageQueue


class NextPull(NamedTuple):
    """What to pull next of a queue."""

    generation: int
    # None as long as nobody has said where the queue begins for this group.
    offset: int | None
    messages_max: int


class _BufferedQueue:
    """What is known of one queue."""

    __slots__ = ("bytes", "consumed", "generation", "messages", "next_offset", "paused")

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.messages: deque[ReceivedMessage] = deque()
        self.bytes = 0
        self.next_offset: int | None = None
        self.consumed: int | None = None
        self.paused = False

    @property
    def position(self) -> int | None:
        return self.messages[0].queue_offset if self.messages else self.next_offset

    def reset_to(self, offset: int) -> None:
        self.messages.clear()
        self.bytes = 0
        self.next_offset = self.consumed = offset


class PollBuffer:
    """The queues that a pull consumer reads, and what was pulled of them ahead of its polls."""

    def __init__(self, *, queue_count_max: int, queue_bytes_max: int, count_max: int) -> None:
        """Bound what is buffered: by count and bytes for each queue, by count for all of them."""
        self._queue_count_max = queue_count_max
        self._queue_bytes_max = queue_bytes_max
        self._count_max = count_max
        self._queues: dict[MessageQueue, _BufferedQueue] = {}
        # Those with messages to hand out, the one whose turn it is first.
        self._ready: dict[MessageQueue, _BufferedQueue] = {}
        # Those that a poll took messages of, since the poll before said that all is done.
        self._handed_out: dict[MessageQueue, _BufferedQueue] = {}
        self._generations = 0
        self.count = 0

    # --- which queues ---------------------------------------------------------------------------

    def __contains__(self, queue: MessageQueue) -> bool:
        return queue in self._queues

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are read."""
        return list(self._queues)

    def add(self, queue: MessageQueue, offset: int | None = None) -> None:
        """Read a queue too, from an offset on, or from where `start_at` will say."""
        if queue not in self._queues:
            known = self._queues[queue] = _BufferedQueue(self._next_generation())
            if offset is not None:
                known.reset_to(offset)

    def remove(self, queue: MessageQueue) -> None:
        """Read a queue no more, and forget what is buffered of it."""
        known = self._queues.pop(queue, None)
        if known is not None:
            self._forget_messages(queue, known)

    # --- pulling --------------------------------------------------------------------------------

    def wanted(self, queue: MessageQueue, count: int) -> NextPull | None:
        """Say what to pull next, `count` messages at most; None while there is no room for any."""
        known = self._queues.get(queue)
        if known is None or known.paused or known.bytes >= self._queue_bytes_max:
            return None
        room = min(count, self._queue_count_max - len(known.messages), self._count_max - self.count)
        return NextPull(known.generation, known.next_offset, room) if room > 0 else None

    def start_at(self, queue: MessageQueue, generation: int, offset: int) -> None:
        """Begin to read a queue here, unless somebody has sought an offset in it meanwhile."""
        known = self._current(queue, generation)
        if known is not None and known.next_offset is None:
            known.reset_to(offset)

    def pulled(
        self,
        queue: MessageQueue,
        generation: int,
        messages: Sequence[ReceivedMessage],
        next_offset: int,
    ) -> bool:
        """Take what a pull brought; False when it comes too late to be of use."""
        known = self._current(queue, generation)
        if known is None:
            return False
        known.next_offset = next_offset
        if known.consumed is not None and known.consumed > next_offset:
            # The queue ends before what was consumed: its broker has lost the rest.
            known.consumed = next_offset
        if messages:
            known.messages.extend(messages)
            known.bytes += sum(message.size for message in messages)
            self.count += len(messages)
            if not known.paused:
                self._ready.setdefault(queue, known)
        return True

    def _current(self, queue: MessageQueue, generation: int) -> _BufferedQueue | None:
        known = self._queues.get(queue)
        return known if known is not None and known.generation == generation else None

    # --- polling --------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether `take` would find a message."""
        return bool(self._ready)

    def take(self, count: int) -> list[ReceivedMessage]:
        """Hand out messages: of each queue in its order, the queues in turn."""
        taken: list[ReceivedMessage] = []
        while self._ready and len(taken) < count:
            queue = next(iter(self._ready))
            known = self._ready.pop(queue)
            for _ in range(min(count - len(taken), len(known.messages))):
                message = known.messages.popleft()
                known.bytes -= message.size
                taken.append(message)
            if known.messages:
                self._ready[queue] = known
            self._handed_out[queue] = known
        self.count -= len(taken)
        return taken

    def finish(self) -> None:
        """Note that everything that was handed out is done."""
        for known in self._handed_out.values():
            known.consumed = known.position
        self._handed_out.clear()

    def committable(self) -> dict[MessageQueue, int]:
        """Give the offsets that may be committed."""
        offsets: dict[MessageQueue, int] = {}
        for queue, known in self._queues.items():
            # Without a message under way, those that a filter left out meanwhile count as done.
            done = known.consumed if queue in self._handed_out else known.position
            if done is not None:
                offsets[queue] = done
        return offsets

    def position(self, queue: MessageQueue) -> int | None:
        """Give the offset of the next message that a poll will get, if it is known yet."""
        return self._known(queue).position

    # --- control --------------------------------------------------------------------------------

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on reading a queue at another offset."""
        known = self._known(queue)
        self._forget_messages(queue, known)
        known.generation = self._next_generation()
        known.reset_to(offset)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Neither pull these queues nor hand out what is buffered of them."""
        for queue in self._all_known(queues):
            self._queues[queue].paused = True
            self._ready.pop(queue, None)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with queues that were paused."""
        for queue in self._all_known(queues):
            known = self._queues[queue]
            known.paused = False
            if known.messages:
                self._ready.setdefault(queue, known)

    def is_paused(self, queue: MessageQueue) -> bool:
        """Whether a queue is paused."""
        return self._known(queue).paused

    def buffered(self, queue: MessageQueue) -> Sequence[ReceivedMessage]:
        """Give what is buffered of a queue, to look at."""
        return self._known(queue).messages

    def _all_known(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Check all before the first one changes."""
        checked = list(queues)
        for queue in checked:
            self._known(queue)
        return checked

    def _known(self, queue: MessageQueue) -> _BufferedQueue:
        known = self._queues.get(queue)
        if known is None:
            raise StateError(
                f"queue {queue.queue_id} of topic {queue.topic!r} at {queue.broker_name} "
                "is not read by this consumer",
                hint="another member of the group may have it by now; assignment() lists its own",
            )
        return known

    def _forget_messages(self, queue: MessageQueue, known: _BufferedQueue) -> None:
        self.count -= len(known.messages)
        self._ready.pop(queue, None)
        self._handed_out.pop(queue, None)

    def _next_generation(self) -> int:
        self._generations += 1
        return self._generations
