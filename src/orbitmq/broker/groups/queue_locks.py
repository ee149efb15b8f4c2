"""Locks on queues, for groups that consume in order: one client per queue.

A lock ends at once when its client releases it, or leaves the group and says nothing else. Otherwise
it ends 60 s after it was last taken or renewed, or 5 s after its client stops to trust it, counted
from the loss of the client's connection, whichever comes first. Until then the client, or a listener
of it, may still be at work: nobody can tell a killed client from a cut connection. A Java client
trusts a lock for 30 s without the broker; ours say how long.

Threads: the event loop's.
Crash: `lock_file` keeps the owners; after a start their connections count as lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq.errors import GroupRefusedError
from orbitmq.model.queues import MessageQueue

if TYPE_CHECKING:
    from orbitmq.clock import Clock

LEASE_MS: Final = 60_000
# How long clients trust a lock that they cannot renew, unless they say so; and what is added to it.
TRUST_MS: Final = 30_000
TRUST_MARGIN_MS: Final = 5_000
LEASE_AFTER_LOSS_MS: Final = TRUST_MS + TRUST_MARGIN_MS
LOCKS_MAX: Final = 250_000

# A lock: group, queue, and the client id of its owner; None if it was released.
Owner = tuple[str, MessageQueue, str | None]


@dataclass(slots=True)
class _Lock:
    client_id: str
    ends_ms: float
    trust_ms: float = TRUST_MS


class QueueLocks:
    """All locks, by group and queue."""

    def __init__(
        self,
        *,
        clock: Clock,
        lease_ms: float = LEASE_MS,
        locks_max: int = LOCKS_MAX,
    ) -> None:
        self._clock = clock
        self._lease_ms = lease_ms
        self._locks_max = locks_max
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0
        # How often a queue was given to another owner, or released.
        self.changes = 0
        self._changed: dict[tuple[str, MessageQueue], str | None] = {}
        self.on_change: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        """How many queues are locked."""
        return self._count

    def take_changes(self) -> list[Owner]:
        """The owners that changed since the last call."""
        changed = [(group, queue, owner) for (group, queue), owner in self._changed.items()]
        self._changed.clear()
        return changed

    def owners(self) -> Iterator[Owner]:
        """All locks."""
        for group, locks in self._groups.items():
            for queue, lock in locks.items():
                yield group, queue, lock.client_id

    def restore(self, group: str, queue: MessageQueue, client_id: str) -> None:
        """Restore a lock from before a restart; its client has to renew it soon."""
        locks = self._groups.setdefault(group, {})
        if queue not in locks:
            self._count += 1
            ends_ms = self._clock.monotonic_ms() + LEASE_AFTER_LOSS_MS
            locks[queue] = _Lock(client_id, ends_ms)

    def lock(
        self,
        group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        *,
        trust_ms: float = TRUST_MS,
    ) -> list[MessageQueue]:
        """Take or renew locks; returns the queues that the client now holds.

        `trust_ms` is how long the client consumes without a renewal.
        """
        now_ms = self._clock.monotonic_ms()
        trust_ms = min(max(trust_ms, 0), TRUST_MS)
        locks = self._groups.setdefault(group, {})
        taken = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None:
                self._check_room(group)
                self._count += 1
                self._note_change(group, queue, client_id)
                locks[queue] = _Lock(client_id, now_ms + self._lease_ms, trust_ms)
            elif lock.client_id == client_id or lock.ends_ms <= now_ms:
                if lock.client_id != client_id:
                    self._note_change(group, queue, client_id)
                lock.client_id = client_id
                lock.ends_ms = now_ms + self._lease_ms
                lock.trust_ms = trust_ms
            else:
                continue
            taken.append(queue)
        self._drop_if_empty(group)
        return taken

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> bool:
        """Release locks; those of other clients stay. Returns whether one was released."""
        locks = self._groups.get(group, {})
        before = len(locks)
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
                self._count -= 1
                self._note_change(group, queue, None)
        self._drop_if_empty(group)
        return len(locks) < before

    def unlock_all(self, group: str, client_id: str) -> None:
        """Release all locks of a client that has left a group."""
        self.unlock(group, client_id, list(self._groups.get(group, {})))

    def shorten(self, group: str, client_id: str) -> None:
        """Shorten the locks of a client that is away, or leaves listeners at work; it may renew."""
        now_ms = self._clock.monotonic_ms()
        for lock in self._groups.get(group, {}).values():
            if lock.client_id == client_id:
                lock.ends_ms = min(lock.ends_ms, now_ms + lock.trust_ms + TRUST_MARGIN_MS)

    def owner(self, group: str, queue: MessageQueue) -> str | None:
        """The client id that holds the lock of a queue."""
        lock = self._groups.get(group, {}).get(queue)
        return lock.client_id if lock and lock.ends_ms > self._clock.monotonic_ms() else None

    def has_any(self, group: str) -> bool:
        """Whether a group has a locked queue, so that it consumes in order."""
        now_ms = self._clock.monotonic_ms()
        return any(lock.ends_ms > now_ms for lock in self._groups.get(group, {}).values())

    def expire(self) -> list[str]:
        """Drop expired locks; returns the groups that had one."""
        now_ms = self._clock.monotonic_ms()
        groups = []
        for group, locks in list(self._groups.items()):
            expired = [queue for queue, lock in locks.items() if lock.ends_ms <= now_ms]
            for queue in expired:
                del locks[queue]
                self._count -= 1
            if expired:
                groups.append(group)
            self._drop_if_empty(group)
        return groups

    def _note_change(self, group: str, queue: MessageQueue, owner: str | None) -> None:
        self.changes += 1
        self._changed[group, queue] = owner
        self.on_change()

    def _check_room(self, group: str) -> None:
        if self._count >= self._locks_max:
            self._drop_if_empty(group)
            raise GroupRefusedError(
                f"{self._count} queues are locked, the limit; cannot lock more for {group[:255]!r}",
                hint="locks that are not renewed expire after a minute",
            )

    def _drop_if_empty(self, group: str) -> None:
        if not self._groups.get(group, True):
            del self._groups[group]
