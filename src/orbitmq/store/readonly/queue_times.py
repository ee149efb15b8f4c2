"""Store times of a queue's messages, for readers outside the broker.

An entry has no checksum. One that leads to another record would give a wrong time, and a search by
time would then skip messages. So the record must be that of the entry; if it is not, the next sound
one tells as much.

Threads: any. Crash: nothing is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq.errors import StoreDamagedError, StoreError
from orbitmq.store.files.record_checks import (
    HEAD_BYTES,
    is_head_of,
    physical_offset_of,
    store_ms_of,
)

if TYPE_CHECKING:
    from orbitmq.store.readonly.log_files import ReadOnlyLog
    from orbitmq.store.readonly.visible_queue import VisibleQueue

# Damaged entries in a row that are passed over: more than 64 KiB of them.
_DAMAGED_MAX: Final = 4096
# Compat: entries of these queues point to records of other topics.
_SHARED_RECORDS: Final = "%LMQ%"


@dataclass(frozen=True, slots=True)
class QueueTimes:
    """The store times of one queue."""

    log: ReadOnlyLog
    queue: VisibleQueue
    topic: str
    queue_id: int

    def from_number(self, number: int) -> int:
        """The store time of a message, or of the next one whose entry is sound."""
        end = min(number + _DAMAGED_MAX, self.queue.end)
        for other in range(number, end):
            store_ms = self._of(other)
            if store_ms is not None:
                return store_ms
        raise StoreDamagedError(
            f"entries {number} to {end - 1} of topic {self.topic!r} queue {self.queue_id} lead to no "
            "messages of it",
            hint="rebuild the queues from the log: orbitmq store rebuild",
        )

    def _of(self, number: int) -> int | None:
        physical_offset, record_bytes, _ = self.queue.entry(number)
        if physical_offset < 0 or record_bytes < HEAD_BYTES:
            return None
        try:
            head = self.log.read(physical_offset, HEAD_BYTES)
        except StoreError:
            return None
        is_known = is_head_of(head, physical_offset, self.queue_id, number)
        if not is_known and not self._fits(number, head, physical_offset, record_bytes):
            return None
        return store_ms_of(head)

    def _fits(self, number: int, head: bytes, physical_offset: int, record_bytes: int) -> bool:
        """Whether an entry leads to a record between those of its neighbours.

        Compat: after a loss, a record may have another number than its entry.
        """
        if physical_offset_of(head) != physical_offset:
            return False
        if self.topic.startswith(_SHARED_RECORDS):
            return True
        before = self.queue.entry(number - 1) if number > self.queue.start else (0, 0, 0)
        after = self.queue.entry(number + 1) if number + 1 < self.queue.end else None
        record_end = physical_offset + record_bytes
        return before[0] + before[1] <= physical_offset and (
            after is None or record_end <= after[0]
        )
