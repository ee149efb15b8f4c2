"""Positions of consumers that read what a promotion lost, at the new master.

The log of a promoted slave may end before the positions of consumers. Once its queues have grown
beyond them, such a position looks like any other, and leads past the messages stored since. So for a
while after a promotion, a member that has not read a queue here yet may start only at what its group
has committed, or at the end that the queue had: it is sent back there. Until it has, what it commits
beyond is refused, since it consumed that from another log. Reading twice is better than not at all.

Only groups that had committed offsets of a topic are checked: the clients of others, and those that
choose their offsets themselves, may well start after that end.

Threads: the event loop's.
Crash: nothing is kept; a master that starts again trusts all positions.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from orbitmq.protocol.requests.pulling import PullFlag

if TYPE_CHECKING:
    from orbitmq.clock import Clock

log = logging.getLogger(__name__)

# Clients look up routes every 30 s, and reconnect within a minute or two.
CHECKED_MS: Final = 600_000.0
# Queues of members that are known to read this log.
MEMBER_QUEUES_MAX: Final = 250_000
_SUBSCRIPTION: Final = int(PullFlag.SUBSCRIPTION)
_LITE_PULL: Final = int(PullFlag.LITE_PULL)


class GroupQueue(NamedTuple):
    """A queue, as one group reads it."""

    group: str
    topic: str
    queue_id: int


class StalePositions:
    """Which consumers may resume where they say, at a master that was just promoted."""

    def __init__(self, clock: Clock, *, member_queues_max: int = MEMBER_QUEUES_MAX) -> None:
        self._clock = clock
        self._member_queues_max = member_queues_max
        self._until_ms: float | None = None
        self._ends: Mapping[tuple[str, int], int] = {}
        # The groups that had committed offsets of a topic.
        self._checked: frozenset[tuple[str, str]] = frozenset()
        # Offsets above the end that a group has reached here, or an operator has set.
        self._reached: dict[GroupQueue, int] = {}
        self._reading: set[tuple[str, GroupQueue]] = set()
        # From which offset, and on which connection.
        self._sent_back: dict[tuple[str, GroupQueue], tuple[int, str]] = {}

    def begin(
        self, ends: Mapping[tuple[str, int], int], checked: frozenset[tuple[str, str]]
    ) -> None:
        """Check positions from now on; `ends` are those of the log at the promotion, by queue."""
        self._ends, self._checked = ends, checked
        self._until_ms = self._clock.monotonic_ms() + CHECKED_MS

    @property
    def are_checked(self) -> bool:
        """Whether positions are checked now."""
        # Perf: asked with each pull, and nearly always None.
        if self._until_ms is None:
            return False
        if self._clock.monotonic_ms() < self._until_ms:
            return True
        self._end()
        return False

    def sent_back(
        self, queue: GroupQueue, member: str | None, address: str, offset: int, flags: int
    ) -> int | None:
        """Where a pull has to start that would skip messages; None if it may start at its offset.

        A member that insists on the offset gets its way: it may have chosen it. On another
        connection it does not insist, as it may not have got the reply. Until its first heartbeat,
        which may come after its first pulls, it is known by its address only.
        """
        if queue[:2] not in self._checked or _chooses_offsets(flags):
            return None
        key = member or address, queue
        if key in self._reading:
            return None
        if (address, queue) in self._reading:
            self._note_reading(key)
            return None
        limit = self._limit(queue)
        if offset <= limit or self._sent_back.get(key) == (offset, address):
            self._sent_back.pop(key, None)
            self._note_reading(key)
            return None
        self._sent_back[key] = offset, address
        self._check_bound()
        log.warning(
            "consumer has read messages that the promotion lost, sent back group=%s topic=%s "
            "queue=%d member=%s offset=%d next=%d",
            *queue, member or address, offset, limit,
        )  # fmt: skip
        return limit

    def refuses(self, queue: GroupQueue, member: str, offset: int) -> bool:
        """Whether a commit of a member is about messages that the promotion lost."""
        if queue[:2] not in self._checked:
            return False
        if (member, queue) not in self._reading:
            return offset > self._limit(queue)
        self.allow(queue, offset)
        return False

    def allow(self, queue: GroupQueue, offset: int) -> None:
        """Let members of a group start at an offset that it has here."""
        if offset > self._limit(queue):
            self._reached[queue] = offset

    def _limit(self, queue: GroupQueue) -> int:
        reached = self._reached.get(queue)
        return self._ends.get(queue[1:], 0) if reached is None else reached

    def _note_reading(self, key: tuple[str, GroupQueue]) -> None:
        self._reading.add(key)
        self._check_bound()

    def _check_bound(self) -> None:
        count = len(self._reading) + len(self._sent_back)
        if count >= self._member_queues_max:
            log.warning(
                "positions of consumers are not checked any more reason=%d queues of members are "
                "known, the most that are",
                count,
            )
            self._end()

    def _end(self) -> None:
        self._until_ms = None
        self._ends, self._checked = {}, frozenset()
        for kept in (self._reached, self._reading, self._sent_back):
            kept.clear()


def _chooses_offsets(flags: int) -> bool:
    """Whether a pull is of a consumer that keeps its offsets itself."""
    return bool(flags & _SUBSCRIPTION) and not flags & _LITE_PULL
