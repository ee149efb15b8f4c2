"""Long polls: pulls of empty queues, held until a message arrives.

Held pulls are indexed by queue. When a queue grows, its pulls are tried again; one whose filter
accepts nothing stays. They are also indexed by deadline, so that a check for expired ones does not
visit the others. Pulls that cannot be tried within a slice of the loop's time wait for their turn
(`Rounds`).

Threads: the event loop's; `wake` may be called from any.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from orbitmq.broker.delivery.rounds import SLICE_MS

if TYPE_CHECKING:
    from orbitmq.broker.delivery.rounds import Rounds
    from orbitmq.clock import Clock

log = logging.getLogger(__name__)

_Queue = tuple[str, int]
_SLOT_MS: Final = 100
# Closed connections are looked for in one part of the pulls per check, in turn.
_SWEEP_PARTS: Final = 10


class HeldConnection(Protocol):
    """What long polls need of a connection."""

    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""


class HeldPull(Protocol):
    """A pull that can be held."""

    # When it must be answered, even if there is nothing new.
    deadline_ms: float

    @property
    def connection(self) -> HeldConnection:
        """The connection of the client."""

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
K = TypeVar("K")


class LongPolls(Generic[P]):
    """Holds pulls, and has them answered."""

    def __init__(
        self,
        *,
        answer: Callable[[P, bool], bool],
        release: Callable[[P], None],
        held_max: Callable[[], int],
        rounds: Rounds,
        clock: Clock,
    ) -> None:
        # Answers a pull, given whether this is the last try; returns False if it should stay held.
        self._answer = answer
        # Called once for every pull that is no longer held.
        self._release = release
        self._rounds = rounds
        self._held_max = held_max
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        # By queue, and by the time slot of their deadline; within each by a unique number.
        self._held: dict[_Queue, dict[int, P]] = {}
        self._ending: dict[int, dict[int, P]] = {}
        self._numbers = itertools.count()
        # Numbers of pulls that wait for their turn to be tried.
        self._in_rounds: set[int] = set()
        self._count = 0
        self._swept = 0
        self._grown: deque[_Queue] = deque()
        self._wake_is_due = False
        # Whether no pulls are held any more, because the broker stops.
        self.is_closed = False

    def __len__(self) -> int:
        return self._count

    def hold(self, pull: P) -> bool:
        """Hold a pull; returns False if it must be answered now."""
        if self.is_closed or self._count >= self._held_max():
            return False
        number = next(self._numbers)
        self._held.setdefault((pull.topic, pull.queue_id), {})[number] = pull
        self._ending.setdefault(_slot(pull.deadline_ms), {})[number] = pull
        self._count += 1
        return True

    def wake(self, queues: Iterable[GrownQueue]) -> None:
        """Retry the pulls held for queues that have new messages."""
        # Perf: one hop to the loop for all queues that grow before it runs.
        self._grown.extend((queue.topic, queue.queue_id) for queue in queues)
        if not self._wake_is_due:
            self._wake_is_due = True
            try:
                self._loop.call_soon_threadsafe(self._try_grown)
            except RuntimeError:
                # The loop is closed, and nothing waits any more.
                return

    def expire(self) -> None:
        """Answer expired pulls, and drop some whose connection is closed."""
        now_ms = self._clock.monotonic_ms()
        for slot in sorted(slot for slot in self._ending if slot <= _slot(now_ms)):
            for number, pull in list(self._ending.get(slot, {}).items()):
                if pull.deadline_ms <= now_ms:
                    self._try(number, pull, is_last=True)
                    if self._clock.monotonic_ms() > now_ms + SLICE_MS:
                        self._loop.call_soon(self.expire)
                        return
        self._forget_closed()

    def close(self) -> None:
        """Answer all pulls, and hold no new ones."""
        self.is_closed = True
        for pulls in list(self._held.values()):
            for number, pull in list(pulls.items()):
                self._try(number, pull, is_last=True)

    def _try_grown(self) -> None:
        self._wake_is_due = False
        queues: set[_Queue] = set()
        while self._grown:
            queues.add(self._grown.popleft())
        ends_ms = self._clock.monotonic_ms() + SLICE_MS
        for queue in queues:
            # A reply may bring a new pull of the same queue, which is not tried here.
            for number, pull in list(self._held.get(queue, {}).items()):
                if self._clock.monotonic_ms() < ends_ms:
                    self._try(number, pull, is_last=False)
                elif number not in self._in_rounds:
                    self._in_rounds.add(number)
                    self._rounds.add(pull.connection, partial(self._try_in_turn, number, pull))

    def _try_in_turn(self, number: int, pull: P) -> None:
        self._in_rounds.discard(number)
        # It may have been answered meanwhile.
        if number in self._held.get((pull.topic, pull.queue_id), {}):
            self._try(number, pull, is_last=False)

    def _try(self, number: int, pull: P, *, is_last: bool) -> None:
        if pull.connection.closed:
            self._forget(number, pull)
            return
        try:
            is_answered = self._answer(pull, is_last)
        except Exception:
            # The border: other pulls are still answered; this client repeats its pull in time.
            log.exception("held pull failed topic=%s queue=%d", pull.topic, pull.queue_id)
            is_answered = True
        if is_answered:
            self._forget(number, pull)

    def _forget(self, number: int, pull: P) -> None:
        _remove(self._held, (pull.topic, pull.queue_id), number)
        _remove(self._ending, _slot(pull.deadline_ms), number)
        self._count -= 1
        self._release(pull)

    def _forget_closed(self) -> None:
        self._swept = (self._swept + 1) % _SWEEP_PARTS
        gone = [
            (number, pull)
            for slot, pulls in self._ending.items()
            if slot % _SWEEP_PARTS == self._swept
            for number, pull in pulls.items()
            if pull.connection.closed
        ]
        for number, pull in gone:
            self._forget(number, pull)


def _slot(deadline_ms: float) -> int:
    return int(deadline_ms // _SLOT_MS)


def _remove(table: dict[K, dict[int, P]], key: K, number: int) -> None:
    """Remove a pull from a table, and its row if that is empty then."""
    row = table[key]
    del row[number]
    if not row:
        del table[key]
