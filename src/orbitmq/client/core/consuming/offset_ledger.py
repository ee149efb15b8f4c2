"""The offsets of a consumer's queues, and which of them are not stored yet.

Invariant: the offset of a queue never decreases, except by `reset` or on request; and it comes from
a window, so it never passes an unfinished message.
Threads: a ledger belongs to the event loop of its consumer.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from orbitmq.model.queues import MessageQueue


class CommittableWindow(Protocol):
    """What a ledger needs to know about a window."""

    @property
    def dropped(self) -> bool:
        """Whether its queue was given up."""

    @property
    def committable(self) -> int:
        """The offset before which everything is finished."""


@dataclass(slots=True)
class _LedgerEntry:
    offset: int
    stored: int | None  # what the store has, if known
    is_reset: bool = False


class OffsetLedger:
    """The offsets of one consumer."""

    def __init__(self) -> None:
        self._entries: dict[MessageQueue, _LedgerEntry] = {}
        self._disowned: set[MessageQueue] = set()

    def __contains__(self, queue: MessageQueue) -> bool:
        return queue in self._entries

    def read(self, queue: MessageQueue) -> int | None:
        """Return the offset of a queue; None if there is none."""
        entry = self._entries.get(queue)
        return None if entry is None else entry.offset

    def load(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset that the store has."""
        self._disowned.discard(queue)
        self._entries[queue] = _LedgerEntry(offset, stored=offset)

    def record(self, queue: MessageQueue, window: CommittableWindow) -> None:
        """Record the committable offset of a queue's current window."""
        if not window.dropped:
            self.update(queue, window.committable)

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = True) -> None:
        """Set the offset of a queue; a lower one only with `increase_only=False`."""
        entry = self._entries.get(queue)
        if queue in self._disowned:
            return
        if entry is None:
            self._entries[queue] = _LedgerEntry(offset, stored=None)
        elif not entry.is_reset and (offset > entry.offset or not increase_only):
            entry.offset = offset

    def reset(self, queue: MessageQueue, offset: int) -> None:
        """Fix the offset of a queue: what its old window still finishes does not change it.

        This lasts until the queue is removed. If it comes back, it has a new window.
        """
        if queue in self._disowned:
            return
        stored = self._entries[queue].stored if queue in self._entries else None
        self._entries[queue] = _LedgerEntry(offset, stored=stored, is_reset=True)

    def disown(self, queue: MessageQueue) -> None:
        """Drop the offset of a queue that another client now has; ignore updates until removed."""
        self._entries.pop(queue, None)
        self._disowned.add(queue)

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue that was given up."""
        self._entries.pop(queue, None)
        self._disowned.discard(queue)

    def offsets(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """Return the offsets of all queues, or of one topic's."""
        return {
            queue: entry.offset
            for queue, entry in self._entries.items()
            if topic is None or queue.topic == topic
        }

    def dirty(self, queues: Collection[MessageQueue] | None = None) -> dict[MessageQueue, int]:
        """Return the offsets that the store does not have, of these queues or of all."""
        return {
            queue: entry.offset
            for queue, entry in self._entries.items()
            if entry.offset != entry.stored and (queues is None or queue in queues)
        }

    def mark_stored(self, queue: MessageQueue, offset: int) -> None:
        """Record that the store has this offset now."""
        entry = self._entries.get(queue)
        if entry is not None:
            entry.stored = offset

    def mark_all_dirty(self) -> None:
        """Mark all offsets as not stored: the store may have lost them."""
        for entry in self._entries.values():
            entry.stored = None
