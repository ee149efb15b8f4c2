"""The messages of one queue that were pulled and are not finished.

Concurrent consumption finishes them in any order. Ordered consumption takes some from the front,
then commits or rolls them back.

Invariant: `committable` never passes an unfinished message, and never decreases.
Threads: a window belongs to the event loop of its consumer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from orbitmq.clock import Clock

LOCK_TRUST_MS: Final = 10_000
PULL_SILENCE_MS_MAX: Final = 120_000


class PulledMessage(Protocol):
    """What a window needs to know about a message."""

    @property
    def queue_offset(self) -> int:
        """Its offset in the queue."""

    @property
    def size(self) -> int:
        """Its size in bytes."""


M = TypeVar("M", bound=PulledMessage)


class InflightWindow(Generic[M]):
    """Unfinished messages of one queue, and the state of its lock and pulls.

    A dropped window stays readable, but its offset is no longer committed. A queue that comes back
    gets a new window.
    """

    def __init__(
        self, start_offset: int, clock: Clock, *, lock_trust_ms: float = LOCK_TRUST_MS
    ) -> None:
        self._clock = clock
        self._lock_trust_ms = lock_trust_ms
        # After everything that was pulled, including messages that the filter left out.
        self._next_offset = start_offset
        self._messages: dict[int, M] = {}
        # Their offsets, ascending. Finished ones are removed once they reach an end.
        self._order: deque[int] = deque()
        self._taken_count = 0
        self._bytes = 0
        self._dropped = False
        self._locked = False
        self._lock_monotonic_ms = clock.monotonic_ms()
        self._pull_monotonic_ms = clock.monotonic_ms()
        # Times of day, for tools that ask a consumer about its queues.
        self.last_lock_ms = self.last_pull_ms = self.last_consume_ms = clock.now_ms()

    @property
    def count(self) -> int:
        """The number of unfinished messages."""
        return len(self._messages)

    @property
    def bytes(self) -> int:
        """Their size in bytes."""
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
        """The distance from the first unfinished offset to the last."""
        first, last = self.first_offset, self.last_offset
        return 0 if first is None or last is None else last - first

    @property
    def next_offset(self) -> int:
        """The offset of the next pull."""
        return self._next_offset

    @property
    def committable(self) -> int:
        """The offset before which everything is finished."""
        first = self.first_offset
        return self._next_offset if first is None else first

    def add(self, messages: Iterable[M], *, next_offset: int | None = None) -> list[M]:
        """Add the messages of a pull, in order; returns those that are new.

        `next_offset` is the offset of the next pull. It can be higher than the last message plus
        one if the filter left messages out, even with no message at all.
        """
        added: list[M] = []
        for message in messages:
            offset = message.queue_offset
            if offset < self._next_offset:
                continue  # It is in the window already, or finished.
            self._messages[offset] = message
            self._order.append(offset)
            self._bytes += message.size
            self._next_offset = offset + 1
            added.append(message)
        if next_offset is not None and next_offset > self._next_offset:
            self._next_offset = next_offset
        return added

    def finish(self, messages: Iterable[M]) -> int:
        """Remove finished messages, in any order; returns the committable offset."""
        assert not self._taken_count, "what was taken in order is committed in order"
        for message in messages:
            self._remove(message.queue_offset)
        self.last_consume_ms = self._clock.now_ms()
        return self.committable

    def take(self, count_max: int) -> list[M]:
        """Take the next messages in order, to commit or roll back later."""
        if len(self._order) != len(self._messages):
            self._order = deque(offset for offset in self._order if offset in self._messages)
        taken_before = self._taken_count
        offsets = islice(self._order, taken_before, taken_before + count_max)
        taken = [self._messages[offset] for offset in offsets]
        self._taken_count += len(taken)
        self.last_consume_ms = self._clock.now_ms()
        return taken

    def commit(self, count: int | None = None) -> int:
        """Finish the first `count` taken messages, or all; returns the committable offset."""
        if count is None:
            count = self._taken_count
        assert count <= self._taken_count, "what was not taken cannot be committed"
        for _ in range(count):
            self._remove(self._order.popleft())
        self._taken_count -= count
        return self.committable

    def roll_back(self) -> None:
        """Return all taken messages to the front, to be taken again."""
        self._taken_count = 0

    @property
    def taken(self) -> list[M]:
        """The messages that were taken and not yet committed or rolled back, in order."""
        return [self._messages[offset] for offset in islice(self._order, self._taken_count)]

    def __contains__(self, message: M) -> bool:
        return message.queue_offset in self._messages

    @property
    def dropped(self) -> bool:
        """Whether the queue was given up."""
        return self._dropped

    def drop(self) -> None:
        """Give the queue up: consume and commit nothing more of it."""
        self._dropped = True

    def note_pull(self) -> None:
        """Record that a pull is sent now."""
        self.last_pull_ms = self._clock.now_ms()
        self._pull_monotonic_ms = self._clock.monotonic_ms()

    @property
    def pull_expired(self) -> bool:
        """Whether no pull was sent for longer than `PULL_SILENCE_MS_MAX`, which is a fault."""
        return self._clock.monotonic_ms() - self._pull_monotonic_ms > PULL_SILENCE_MS_MAX

    @property
    def locked(self) -> bool:
        """Whether this client holds the lock of the queue, renewed not too long ago."""
        age_ms = self._clock.monotonic_ms() - self._lock_monotonic_ms
        return self._locked and age_ms <= self._lock_trust_ms

    def note_lock(self) -> None:
        """Record that the broker has just granted or renewed the lock."""
        self._locked = True
        self._lock_monotonic_ms = self._clock.monotonic_ms()
        self.last_lock_ms = self._clock.now_ms()

    def _remove(self, offset: int) -> None:
        message = self._messages.pop(offset, None)
        if message is not None:
            self._bytes -= message.size
