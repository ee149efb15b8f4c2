"""The memory log: the newest records of topics that are not kept on disk.

Records have the bytes that the commit log would hold, so that a reply carries them unchanged. Their
physical offsets are in a range of their own, above those of any commit log. The log is bounded: to
make room, the oldest records of all queues are dropped, and the starts of their queues rise.

Threads: one writer at a time; any number of readers. A lock separates them, held only briefly.
Crash: every record is lost, as after a stop; `reserved_offsets` keeps numbers from being reused.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection
from typing import Final

from orbitmq.errors import MessageError
from orbitmq.model.queues import PhysicalOffset, QueueOffset
from orbitmq.store.index.consume_queue import ENTRY, ENTRY_BYTES, decode_entry

FIRST_OFFSET: Final = PhysicalOffset(2**62)
# Memory of a record beside its bytes: its entries in the tables, its number, its queue entry.
RECORD_OVERHEAD_BYTES: Final = 320


class MemoryQueue:
    """One queue of one topic: entries that point into the memory log."""

    __slots__ = ("_entries", "_lock", "end", "opened_end", "queue_id", "start", "topic")

    min_physical_offset: Final = FIRST_OFFSET

    def __init__(self, topic: str, queue_id: int, first: QueueOffset, lock: threading.Lock) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self._lock = lock
        # Invariant: the entries are those from `start` to `end`.
        self.start = first
        self.end = first
        self.opened_end = first
        self._entries = bytearray()

    def entry(self, number: QueueOffset) -> tuple[int, int, int] | None:
        """Read one entry: physical offset, record bytes, tag hash; None if it does not exist."""
        return decode_entry(self.entries(number, 1))

    def entries(self, first: QueueOffset, count: int) -> bytes:
        """Read up to `count` entries from `first`; none if that one does not exist."""
        with self._lock:
            at = (first - self.start) * ENTRY_BYTES
            return bytes(self._entries[at : at + count * ENTRY_BYTES]) if at >= 0 else b""

    def all_entries(self) -> bytes:
        """A snapshot of every entry."""
        with self._lock:
            return bytes(self._entries)

    # --- called by the log, which holds the lock ---

    def add(self, physical_offset: int, record_bytes: int, tag_hash: int) -> None:
        """Add the entry of a record."""
        self._entries += ENTRY.pack(physical_offset, record_bytes, tag_hash)
        self.end = QueueOffset(self.end + 1)

    def drop(self, count: int) -> None:
        """Drop the oldest entries."""
        del self._entries[: count * ENTRY_BYTES]
        self.start = QueueOffset(self.start + count)


class MemoryLog:
    """The records of all queues in memory, in order of arrival."""

    # A reader that misses a record skips the rest of its file; here records are dropped singly.
    file_bytes: Final = 1

    def __init__(self, bytes_max: int, first_offset: PhysicalOffset = FIRST_OFFSET) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._records: dict[int, bytes] = {}
        # The offset and the queue of each record, oldest first. Perf: two deques of existing
        # objects; a pair for each record would add an object for the garbage collector.
        self._offsets: deque[int] = deque()
        self._owners: deque[MemoryQueue] = deque()
        self.end = first_offset
        # Bytes of the records with their overhead; never above the bound.
        self.used_bytes = 0

    def queue(self, topic: str, queue_id: int, first: QueueOffset) -> MemoryQueue:
        """Make an empty queue whose first record will have the number `first`."""
        return MemoryQueue(topic, queue_id, first, self._lock)

    def check_fits(self, record_sizes: Collection[int]) -> None:
        """Raise MessageError if records do not fit the log together."""
        wanted = sum(record_sizes) + len(record_sizes) * RECORD_OVERHEAD_BYTES
        if wanted > self._bytes_max:
            raise MessageError(
                f"{len(record_sizes)} messages of {wanted} bytes do not fit the memory log of "
                f"{self._bytes_max}",
                hint="send smaller messages or batches, or raise memoryLogBytesMax",
            )

    def append(self, queue: MemoryQueue, records: Collection[tuple[bytes, int]]) -> None:
        """Add records, encoded for the end of the log and of the queue, with their tag hashes.

        The oldest records are dropped to make room.
        """
        sizes = [len(record) for record, _ in records]
        self.check_fits(sizes)
        wanted = sum(sizes) + len(sizes) * RECORD_OVERHEAD_BYTES
        with self._lock:
            while self.used_bytes + wanted > self._bytes_max:
                self._owners.popleft().drop(1)
                self._drop_record(self._offsets.popleft())
            self.used_bytes += wanted
            for record, tag_hash in records:
                self._records[self.end] = record
                self._offsets.append(self.end)
                self._owners.append(queue)
                queue.add(self.end, len(record), tag_hash)
                self.end = PhysicalOffset(self.end + len(record))

    def clear(self, queues: Collection[MemoryQueue]) -> None:
        """Drop the records of some queues; their ends stay."""
        gone = set(queues)
        with self._lock:
            for _ in range(len(self._offsets)):
                physical_offset, owner = self._offsets.popleft(), self._owners.popleft()
                if owner in gone:
                    self._drop_record(physical_offset)
                else:
                    self._offsets.append(physical_offset)
                    self._owners.append(owner)
            for queue in gone:
                queue.drop(queue.end - queue.start)

    def _drop_record(self, physical_offset: int) -> None:
        self.used_bytes -= len(self._records.pop(physical_offset)) + RECORD_OVERHEAD_BYTES

    # --- reading ------------------------------------------------------------------------------

    def record_at(self, physical_offset: int) -> bytes | None:
        """The record that begins at a physical offset; None if there is none, or it was dropped."""
        return self._records.get(physical_offset)

    def pread(self, physical_offset: int, record_bytes: int) -> bytes | None:
        """Read the first bytes of a record, as from the commit log; None if it was dropped."""
        record = self._records.get(physical_offset)
        return record[:record_bytes] if record is not None else None

    # Reads from memory never wait.
    pread_nowait = pread

    def newest_view(self) -> tuple[None, int]:
        """Records are separate objects, so there is no view of several."""
        return None, 0

    def deleted_until(self, physical_offset: int, _since: int) -> int:
        """Records are dropped one by one."""
        return physical_offset + 1

    def file_at(self, _physical_offset: int) -> None:
        """No file holds a record."""
