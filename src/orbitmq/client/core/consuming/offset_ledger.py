"""How far a consumer has come in its queues, and what is still to be kept.

Invariant: the offset of a queue never falls, except by `reset`; and it comes from a window, so it
never passes an unfinished message.
Threads: a ledger belongs to the event loop of its consumer.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from orbitmq.model.queues import MessageQueue


class CommittableWindow(Protocol):
    """What a ledger needs to know of a window."""

    @property
    def dropped(self) -> bool:
        """Whether its queue was given up."""

    @property
    def committable(self) -> int:
        """The offset up to which everything is finished."""


@dataclass(slots=True)
class _LedgerEntry:
    offset: int
    kept: int | None  # what the store has, as far as is known
    is_reset: bool = False


class OffsetLedger:
    """The offsets of one consumer."""

    def __init__(self) -> None:
        self._entries: dict[MessageQueue, _LedgerEntry] = {}
        self._disowned: set[MessageQueue] = set()

    def __contains__(self, queue: MessageQueue) -> bool:
        return queue in self._entries

    def read(self, queue: MessageQueue) -> int | None:
        """The offset of a queue, if there is one."""
        entry = self._entries.get(queue)
        return None if entry is None else entry.offset

    def load(self, queue: MessageQueue, offset: int) -> None:
        """Take over the offset that the store has."""
        self._disowned.discard(queue)
        self._entries[queue] = _LedgerEntry(offset, kept=offset)

    def record(self, queue: MessageQueue, window: CommittableWindow) -> None:
        """Take over what the present window of a queue may commit."""
        if not window.dropped:
            self.update(queue, window.committable)

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = True) -> None:
        """Go on to an offset; a lower one counts only when asked for."""
        entry = self._entries.get(queue)
        if queue in self._disowned:
            return
        if entry is None:
            self._entries[queue] = _LedgerEntry(offset, kept=None)
        elif not entry.is_reset and (offset > entry.offset or not increase_only):
            entry.offset = offset

    def reset(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset from outside; what the old window still finishes no longer moves it.

        That lasts until the queue is removed, and comes back with a new window.
        """
        if queue in self._disowned:
            return
        kept = self._entries[queue].kept if queue in self._entries else None
        self._entries[queue] = _LedgerEntry(offset, kept=kept, is_reset=True)

    def disown(self, queue: MessageQueue) -> None:
        """Keep nothing more of a queue that is another client's by now, until it is removed."""
        self._entries.pop(queue, None)
        self._disowned.add(queue)

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue that was given up."""
        self._entries.pop(queue, None)
        self._disowned.discard(queue)

    def offsets(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """The offsets of all queues, or of those of one topic."""
        return {
            queue: entry.offset
            for queue, entry in self._entries.items()
            if topic is None or queue.topic == topic
        }

    def dirty(self, queues: Collection[MessageQueue] | None = None) -> dict[MessageQueue, int]:
        """The offsets that the store does not have, of these queues or of all."""
        return {
            queue: entry.offset
            for queue, entry in self._entries.items()
            if entry.offset != entry.kept and (queues is None or queue in queues)
        }

    def mark_stored(self, queue: MessageQueue, offset: int) -> None:
        """Note that the store has this offset now."""
        entry = self._entries.get(queue)
        if entry is not None:
            entry.kept = offset

    def mark_all_dirty(self) -> None:
        """Note that the store may have lost what it was told: all offsets are to be kept again."""
        for entry in self._entries.values():
            entry.kept = None
