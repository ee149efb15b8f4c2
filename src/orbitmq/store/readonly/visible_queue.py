"""The entries of one queue that readers outside the broker may see.

Older entries are on disk; the newest may not be written yet, so they come from the log. `disk_end`
and `tail` stay valid as long as the records exist, so another process can read the same entries
later.

Threads: any. Crash: nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orbitmq.model.queues import QueueOffset
from orbitmq.store.index.consume_queue import ENTRY, ENTRY_BYTES
from orbitmq.store.readonly.queue_files import Entry, ReadOnlyQueue, begins_at, first_where


@dataclass(frozen=True, slots=True)
class VisibleQueue:
    """The visible entries of one queue: those on disk, then those read from the log."""

    on_disk: ReadOnlyQueue
    start: QueueOffset
    disk_end: QueueOffset
    tail: bytes

    @property
    def end(self) -> QueueOffset:
        """The number after the last entry."""
        return QueueOffset(self.disk_end + len(self.tail) // ENTRY_BYTES)

    def entry(self, number: int) -> Entry:
        """One entry, which must exist: physical offset, record bytes, tag hash."""
        if number < self.disk_end:
            return self.on_disk.entry(number)
        physical_offset, record_bytes, tag_hash = ENTRY.unpack_from(
            self.tail, (number - self.disk_end) * ENTRY_BYTES
        )
        return physical_offset, record_bytes, tag_hash

    def entries(self, first: int, count: int) -> Iterator[Entry]:
        """Entries from `first` on, at most `count`."""
        end = min(first + count, self.end)
        while first < min(end, self.disk_end):
            content = self.on_disk.entries(first, min(end, self.disk_end) - first)
            yield from ENTRY.iter_unpack(content)
            first += len(content) // ENTRY_BYTES
        at = (first - self.disk_end) * ENTRY_BYTES
        if first < end:
            yield from ENTRY.iter_unpack(self.tail[at : (end - self.disk_end) * ENTRY_BYTES])

    def first_from(self, physical_offset: int) -> QueueOffset:
        """The number of the first entry whose record starts at or after a physical offset."""
        return QueueOffset(
            first_where(self.start, self.end, lambda n: begins_at(self.entry(n)) >= physical_offset)
        )
