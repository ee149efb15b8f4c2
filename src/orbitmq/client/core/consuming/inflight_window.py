"""Messages of one queue that were pulled and are not finished.

Concurrent consumption finishes them in any order. Ordered consumption takes some from the front,
then commits them or rolls them back.

Invariant: `committable` never passes an unfinished message, and never falls.
Threads: a window belongs to the event loop of its consumer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from orbitmq.clock import Clock

LOCK_LIFE_MS: Final = 30_000
PULL_SILENCE_MS_MAX: Final = 120_000


class PulledMessage(Protocol):
    """What a window needs to know of a message."""

    @property
    def queue_offset(self) -> int:
        """Its number in the queue."""

    @property
    def size(self) -> int:
        """The bytes it takes."""


M = TypeVar("M", bound=PulledMessage)


class InflightWindow(Generic[M]):
    """Unfinished messages of one queue, and what rebalancing knows of the queue.

    A window that was dropped stays readable, but what it says is no longer committed; a queue that
    comes back gets a new window.
    """

    def __init__(self, start_offset: int, clock: Clock) -> None:
        self._clock = clock
        # Behind everything that was pulled: messages, and those that nobody asked for.
        self._next_offset = start_offset
        self._messages: dict[int, M] = {}
        # Their offsets, rising. Finished ones leave once they stand at an end.
        self._order: deque[int] = deque()
        self._taken_count = 0
        self._bytes = 0
        self._begun_ms: dict[int, float] = {}
        self._dropped = False
        self._locked = False
        self._lock_monotonic_ms = clock.monotonic_ms()
        self._pull_monotonic_ms = clock.monotonic_ms()
        # Times of day, for those who ask a consumer about its queues.
        self.last_lock_ms = self.last_pull_ms = self.last_consume_ms = clock.now_ms()

    @property
    def count(self) -> int:
        """How many messages are unfinished."""
        return len(self._messages)

    @property
    def bytes(self) -> int:
        """How many bytes they take."""
        return self._bytes

    @property
    def first_offset(self) -> int | None:
        """The first unfinished offset."""
        while self._order:
            if self._order[0] in self._messages:
                return self._order[0]
            self._order.popleft()
        return None

    @property
    def last_offset(self) -> int | None:
        """The last unfinished offset."""
        while self._order:
            if self._order[-1] in self._messages:
                return self._order[-1]
            self._order.pop()
        return None

    @property
    def span(self) -> int:
        """How far the last unfinished offset is from the first."""
        first, last = self.first_offset, self.last_offset
        return 0 if first is None or last is None else last - first

    @property
    def next_offset(self) -> int:
        """The offset behind everything that was pulled."""
        return self._next_offset

    @property
    def committable(self) -> int:
        """The offset up to which everything is finished."""
        first = self.first_offset
        return self._next_offset if first is None else first

    def add(self, messages: Iterable[M], *, next_offset: int | None = None) -> list[M]:
        """Take in what a pull brought, in order; returns the messages that were not here before.

        `next_offset` is where the next pull begins. It may lie behind the last message when those
        between are not for this consumer, and nothing may be brought at all.
        """
        added: list[M] = []
        for message in messages:
            offset = message.queue_offset
            if offset < self._next_offset:
                continue  # It is in the window, or finished.
            self._messages[offset] = message
            self._order.append(offset)
            self._bytes += message.size
            self._next_offset = offset + 1
            added.append(message)
        if next_offset is not None and next_offset > self._next_offset:
            self._next_offset = next_offset
        return added

    def begin(self, messages: Iterable[M]) -> None:
        """Note that a listener is given messages now."""
        now_ms = self._clock.monotonic_ms()
        self.last_consume_ms = self._clock.now_ms()
        for message in messages:
            self._begun_ms[message.queue_offset] = now_ms

    def overdue(self, limit_ms: float) -> list[M]:
        """Messages that hold up the window: the first ones, as far as a listener has them too long."""
        held: list[M] = []
        now_ms = self._clock.monotonic_ms()
        for offset in self._order:
            message = self._messages.get(offset)
            if message is None:
                continue
            if now_ms - self._begun_ms.get(offset, now_ms) <= limit_ms:
                break
            held.append(message)
        return held

    def finish(self, messages: Iterable[M]) -> int:
        """Remove messages that are done, in any order; returns what may be committed."""
        assert not self._taken_count, "what was taken in order is committed in order"
        for message in messages:
            self._remove(message.queue_offset)
        self.last_consume_ms = self._clock.now_ms()
        return self.committable

    def take(self, count_max: int) -> list[M]:
        """Take the next messages in order, to be committed or rolled back together."""
        if len(self._order) != len(self._messages):
            self._order = deque(offset for offset in self._order if offset in self._messages)
        taken_before = self._taken_count
        offsets = islice(self._order, taken_before, taken_before + count_max)
        taken = [self._messages[offset] for offset in offsets]
        self._taken_count += len(taken)
        self.last_consume_ms = self._clock.now_ms()
        return taken

    def commit(self, count: int | None = None) -> int:
        """Finish the first `count` that were taken, or all; returns what may be committed."""
        if count is None:
            count = self._taken_count
        assert count <= self._taken_count, "what was not taken cannot be committed"
        for _ in range(count):
            self._remove(self._order.popleft())
        self._taken_count -= count
        return self.committable

    def roll_back(self) -> None:
        """Put all that was taken back to the front, to be taken again."""
        for offset in islice(self._order, self._taken_count):
            self._begun_ms.pop(offset, None)
        self._taken_count = 0

    @property
    def taken(self) -> list[M]:
        """The messages that were taken and neither committed nor rolled back, in order."""
        return [self._messages[offset] for offset in islice(self._order, self._taken_count)]

    @property
    def waiting_count(self) -> int:
        """How many messages nobody has taken."""
        return len(self._messages) - self._taken_count

    def __contains__(self, message: M) -> bool:
        return message.queue_offset in self._messages

    @property
    def dropped(self) -> bool:
        """Whether the queue was given up."""
        return self._dropped

    def drop(self) -> None:
        """Give the queue up: nothing of it is begun or committed any more."""
        self._dropped = True

    def note_pull(self) -> None:
        """Note that a pull is sent now."""
        self.last_pull_ms = self._clock.now_ms()
        self._pull_monotonic_ms = self._clock.monotonic_ms()

    @property
    def pull_expired(self) -> bool:
        """Whether no pull was sent for so long that something must be wrong."""
        return self._clock.monotonic_ms() - self._pull_monotonic_ms > PULL_SILENCE_MS_MAX

    @property
    def locked(self) -> bool:
        """Whether this client holds the lock of the queue, renewed not too long ago."""
        age_ms = self._clock.monotonic_ms() - self._lock_monotonic_ms
        return self._locked and age_ms <= LOCK_LIFE_MS

    def note_lock(self) -> None:
        """Note that the broker has just given or renewed the lock."""
        self._locked = True
        self._lock_monotonic_ms = self._clock.monotonic_ms()
        self.last_lock_ms = self._clock.now_ms()

    def lose_lock(self) -> None:
        """Note that the lock belongs to another client, or to nobody."""
        self._locked = False

    def _remove(self, offset: int) -> None:
        message = self._messages.pop(offset, None)
        if message is not None:
            self._bytes -= message.size
            self._begun_ms.pop(offset, None)
