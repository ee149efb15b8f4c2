"""Long polls: pulls of empty queues, held until there is a message.

Held pulls lie by queue. When a queue grows, those held for it are tried again; one whose filter
lets nothing through stays.

Threads: the event loop's; `grown` may be called from any.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from orbitmq.clock import Clock

_Queue = tuple[str, int]


class HeldConnection(Protocol):
    """What is used of a connection."""

    @property
    def closed(self) -> bool:
        """Whether nobody waits any more."""


class HeldPull(Protocol):
    """A pull that can be held."""

    # When it must be answered, whatever there is to say.
    deadline_ms: float

    @property
    def connection(self) -> HeldConnection:
        """Who asks."""

    @property
    def topic(self) -> str:
        """The topic asked for."""

    @property
    def queue_id(self) -> int:
        """The queue asked for."""


class GrownQueue(Protocol):
    """A queue that has new messages."""

    @property
    def topic(self) -> str:
        """The topic."""

    @property
    def queue_id(self) -> int:
        """The number of the queue in its topic."""


P = TypeVar("P", bound=HeldPull)


class LongPolls(Generic[P]):
    """Holds pulls, and has them answered."""

    def __init__(
        self,
        *,
        answer: Callable[[P, bool], bool],
        held_max: Callable[[], int],
        clock: Clock,
    ) -> None:
        # Given whether it is the last try, answer a pull; False when it should stay.
        self._answer = answer
        self._held_max = held_max
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._held: dict[_Queue, list[P]] = {}
        self._count = 0
        self._grown: deque[_Queue] = deque()
        self._wake_is_due = False
        self._closed = False

    def __len__(self) -> int:
        return self._count

    def hold(self, pull: P) -> bool:
        """Hold a pull; False when it must be answered now."""
        if self._closed or self._count >= self._held_max():
            return False
        self._held.setdefault((pull.topic, pull.queue_id), []).append(pull)
        self._count += 1
        return True

    def grown(self, queues: Iterable[GrownQueue]) -> None:
        """Have the pulls of queues tried again, since they have new messages."""
        # Perf: one hop to the loop for all that grows before it is taken.
        self._grown.extend((queue.topic, queue.queue_id) for queue in queues)
        if not self._wake_is_due:
            self._wake_is_due = True
            try:
                self._loop.call_soon_threadsafe(self._try_grown)
            except RuntimeError:
                # The loop is gone, and everybody who waited with it.
                return

    def expire(self) -> None:
        """Answer those whose time is over, and forget those whose connection is gone."""
        now_ms = self._clock.monotonic_ms()
        for queue in list(self._held):
            self._visit(queue, now_ms)

    def close(self) -> None:
        """Answer everybody, and hold nobody any more."""
        self._closed = True
        for queue in list(self._held):
            self._visit(queue, float("inf"))

    def _try_grown(self) -> None:
        self._wake_is_due = False
        queues: set[_Queue] = set()
        while self._grown:
            queues.add(self._grown.popleft())
        now_ms = self._clock.monotonic_ms()
        for queue in queues:
            if queue in self._held:
                self._visit(queue, now_ms, has_news=True)

    def _visit(self, queue: _Queue, now_ms: float, *, has_news: bool = False) -> None:
        held = self._held.pop(queue)
        self._count -= len(held)
        staying = [pull for pull in held if not self._settle(pull, now_ms, has_news=has_news)]
        if staying:
            # Answers may have brought new pulls of the same queue.
            self._held.setdefault(queue, []).extend(staying)
            self._count += len(staying)

    def _settle(self, pull: P, now_ms: float, *, has_news: bool) -> bool:
        if pull.connection.closed:
            return True
        is_last = pull.deadline_ms <= now_ms
        return self._answer(pull, is_last) if is_last or has_news else False
