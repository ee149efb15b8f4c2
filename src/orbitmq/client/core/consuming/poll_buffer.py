"""Messages between pull and poll: buffered, handed out, and done.

Each queue has three offsets, in this order:

    consumed        everything before it is done; this is what may be committed
    position        the next message that a poll returns
    next_offset     the start of the next pull

A poll marks the messages of earlier polls as done (`finish`): `consumed` moves up to `position`.
Invariant: it never passes a message that was not handed out, nor one handed out since.

A seek sets all three, drops the buffered messages, and starts a new generation of the queue: pulls
of an older generation are discarded when they arrive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.errors import StateError

if TYPE_CHECKING:
    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.model.queues import MessageQueue


class NextPull(NamedTuple):
    """The next pull of a queue."""

    generation: int
    # None until it is known where the group starts in the queue.
    offset: int | None
    messages_max: int


@dataclass(slots=True, eq=False)
class _BufferedQueue:
    """The state of one queue."""

    generation: int
    messages: deque[ReceivedMessage] = field(default_factory=deque)
    bytes: int = 0
    next_offset: int | None = None
    consumed: int | None = None
    paused: bool = False

    @property
    def position(self) -> int | None:
        return self.messages[0].queue_offset if self.messages else self.next_offset

    def reset_to(self, offset: int) -> None:
        self.messages.clear()
        self.bytes = 0
        self.next_offset = self.consumed = offset


class PollBuffer:
    """The queues that a pull consumer reads, and their messages pulled ahead of polls."""

    def __init__(self, *, queue_count_max: int, queue_bytes_max: int, count_max: int) -> None:
        """Limit the buffer: by count and bytes per queue, and by count for all queues."""
        self._queue_count_max = queue_count_max
        self._queue_bytes_max = queue_bytes_max
        self._count_max = count_max
        self._queues: dict[MessageQueue, _BufferedQueue] = {}
        # Queues with messages to hand out; the first one is next.
        self._ready: dict[MessageQueue, _BufferedQueue] = {}
        # Queues whose messages were handed out since the last `finish`.
        self._handed_out: dict[MessageQueue, _BufferedQueue] = {}
        self._generations = 0
        self.count = 0

    # --- which queues ---------------------------------------------------------------------------

    def __contains__(self, queue: MessageQueue) -> bool:
        return queue in self._queues

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that the consumer reads."""
        return list(self._queues)

    def add(self, queue: MessageQueue, offset: int | None = None) -> None:
        """Add a queue, to be read from an offset, or from the one that `start_at` sets."""
        if queue not in self._queues:
            state = self._queues[queue] = _BufferedQueue(self._next_generation())
            if offset is not None:
                state.reset_to(offset)

    def remove(self, queue: MessageQueue) -> None:
        """Remove a queue, and drop what is buffered of it."""
        state = self._queues.pop(queue, None)
        if state is not None:
            self._forget_messages(queue, state)

    # --- pulling --------------------------------------------------------------------------------

    def next_pull(self, queue: MessageQueue, count: int) -> NextPull | None:
        """Return what to pull next, up to `count` messages; None while there is no room."""
        state = self._queues.get(queue)
        if state is None or state.paused or state.bytes >= self._queue_bytes_max:
            return None
        room = min(count, self._queue_count_max - len(state.messages), self._count_max - self.count)
        return NextPull(state.generation, state.next_offset, room) if room > 0 else None

    def start_at(self, queue: MessageQueue, generation: int, offset: int) -> None:
        """Set where to start in a queue, unless a seek came first."""
        state = self._current(queue, generation)
        if state is not None and state.next_offset is None:
            state.reset_to(offset)

    def add_pulled(
        self,
        queue: MessageQueue,
        generation: int,
        messages: Sequence[ReceivedMessage],
        next_offset: int,
    ) -> bool:
        """Add the result of a pull; False if its generation is over."""
        state = self._current(queue, generation)
        if state is None:
            return False
        state.next_offset = next_offset
        if state.consumed is not None and state.consumed > next_offset:
            # The queue ends before what was consumed: its broker has lost messages.
            state.consumed = next_offset
        if messages:
            state.messages.extend(messages)
            state.bytes += sum(message.size for message in messages)
            self.count += len(messages)
            if not state.paused:
                self._ready.setdefault(queue, state)
        return True

    def _current(self, queue: MessageQueue, generation: int) -> _BufferedQueue | None:
        state = self._queues.get(queue)
        return state if state is not None and state.generation == generation else None

    # --- polling --------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether `take` would find a message."""
        return bool(self._ready)

    def take(self, count: int) -> list[ReceivedMessage]:
        """Hand out messages: those of a queue in order, the queues in turn."""
        taken: list[ReceivedMessage] = []
        while self._ready and len(taken) < count:
            queue = next(iter(self._ready))
            state = self._ready.pop(queue)
            for _ in range(min(count - len(taken), len(state.messages))):
                message = state.messages.popleft()
                state.bytes -= message.size
                taken.append(message)
            if state.messages:
                self._ready[queue] = state
            self._handed_out[queue] = state
        self.count -= len(taken)
        return taken

    def finish(self) -> None:
        """Mark everything that was handed out as done."""
        for state in self._handed_out.values():
            state.consumed = state.position
        self._handed_out.clear()

    def committable(self) -> dict[MessageQueue, int]:
        """Return the offsets that may be committed."""
        offsets: dict[MessageQueue, int] = {}
        for queue, state in self._queues.items():
            # If no message is handed out, those that the filter left out count as done.
            done = state.consumed if queue in self._handed_out else state.position
            if done is not None:
                offsets[queue] = done
        return offsets

    def position(self, queue: MessageQueue) -> int | None:
        """Return the offset of the next message that a poll returns; None if not known yet."""
        return self._state(queue).position

    # --- control --------------------------------------------------------------------------------

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Resume reading a queue at another offset."""
        state = self._state(queue)
        self._forget_messages(queue, state)
        state.generation = self._next_generation()
        state.reset_to(offset)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop pulling these queues and handing out what is buffered of them."""
        for queue in self._all_state(queues):
            self._queues[queue].paused = True
            self._ready.pop(queue, None)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Resume queues that were paused."""
        for queue in self._all_state(queues):
            state = self._queues[queue]
            state.paused = False
            if state.messages:
                self._ready.setdefault(queue, state)

    def buffered(self, queue: MessageQueue) -> Sequence[ReceivedMessage]:
        """Return the buffered messages of a queue; they stay in the buffer."""
        return self._state(queue).messages

    def _all_state(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Check all queues before the first one is changed."""
        checked = list(queues)
        for queue in checked:
            self._state(queue)
        return checked

    def _state(self, queue: MessageQueue) -> _BufferedQueue:
        state = self._queues.get(queue)
        if state is None:
            raise StateError(
                f"queue {queue.queue_id} of topic {queue.topic!r} at {queue.broker_name} "
                "is not read by this consumer",
                hint="assignment() lists its queues; another member of the group may have this one",
            )
        return state

    def _forget_messages(self, queue: MessageQueue, state: _BufferedQueue) -> None:
        self.count -= len(state.messages)
        self._ready.pop(queue, None)
        self._handed_out.pop(queue, None)

    def _next_generation(self) -> int:
        self._generations += 1
        return self._generations
