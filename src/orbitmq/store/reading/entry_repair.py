"""Repairing damaged queue entries of an open store, from the log.

The log is the truth: the records between those of the nearest sound entries tell what the entries
in between must be. What the log cannot tell is left as it is, and reading it stays an error.

Threads: any that may wait for the disk; one repair at a time.
Crash: an entry is overwritten in place with what it was; a torn write is damage that is found again.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from orbitmq.model.queues import QueueOffset
from orbitmq.record.codec import is_sound, walk
from orbitmq.record.decode import Verdict
from orbitmq.record.layout import BLANK_BYTES_MIN
from orbitmq.store.files.record_checks import queue_offset_of
from orbitmq.store.index.consume_queue import ENTRY, ENTRY_BYTES
from orbitmq.store.reading.queue_reader import expected_topic

if TYPE_CHECKING:
    from orbitmq.errors import QueueDamagedError
    from orbitmq.store.index.consume_queue import ConsumeQueue
    from orbitmq.store.index.consume_queues import ConsumeQueues
    from orbitmq.store.log.commit_log import CommitLog

log = logging.getLogger(__name__)

# So many neighbours are looked at for a sound entry, on each side.
_NEIGHBOURS_MAX: Final = 4096
# So much of the log is searched for the records of damaged entries.
_SEARCH_BYTES_MAX: Final = 1024 * 1024 * 1024
_CHUNK_BYTES: Final = 1024 * 1024
# Entries that are remembered: each is logged once, and not tried again.
_TRIED_MAX: Final = 1000


class EntryRepair:
    """Repairs entries when a read meets damage."""

    def __init__(
        self, commit_log: CommitLog, queues: ConsumeQueues, delay_levels_ms: tuple[int, ...]
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._delay_levels_ms = delay_levels_ms
        self._lock = threading.Lock()
        self._tried: dict[tuple[ConsumeQueue, int], None] = {}

    def was_tried(self, queue: ConsumeQueue, damage: QueueDamagedError) -> bool:
        """Whether an entry was repaired before, or could not be."""
        return (queue, damage.queue_offset) in self._tried

    def repair(self, queue: ConsumeQueue, damage: QueueDamagedError) -> bool:
        """Repair an entry and its damaged neighbours; returns whether reading it again can help."""
        number = damage.queue_offset
        with self._lock:
            if self.was_tried(queue, damage):
                return False
            is_repaired = number >= queue.start and self._repair(queue, number)
            if not is_repaired and number < queue.start:
                # Retention has deleted the message meanwhile.
                return True
            if len(self._tried) >= _TRIED_MAX:
                del self._tried[next(iter(self._tried))]
            self._tried[queue, number] = None
        if is_repaired:
            log.warning(
                "queue entry repaired topic=%s queue=%d entry=%d damage=%s",
                queue.topic,
                queue.queue_id,
                number,
                damage.args[0],
            )
        else:
            log.error(
                "queue cannot be read beyond damage topic=%s queue=%d message=%d damage=%s",
                queue.topic,
                queue.queue_id,
                number,
                damage,
            )
        return is_repaired

    def _repair(self, queue: ConsumeQueue, number: int) -> bool:
        low = self._sound_before(queue, number)
        high = self._sound_after(queue, number)
        if low is None or high is None:
            return False
        (low_number, low_offset), (high_number, high_offset) = low, high
        found = self._search(queue, low_offset, high_offset)
        if found is None:
            return False
        first, entries = low_number + 1, [found.get(n) for n in range(low_number + 1, high_number)]
        is_start = low_number < queue.start
        while is_start and entries and entries[0] is None and not self._finds_any(queue, first):
            # What the log does not have from its start on was deleted.
            first, entries = first + 1, entries[1:]
        known = [entry for entry in entries if entry is not None]
        offsets = [ENTRY.unpack(entry)[0] for entry in known]
        if len(known) < len(entries) or offsets != sorted(offsets):
            return False
        content = b"".join(known)
        if number >= first and content == queue.entries(QueueOffset(first), len(known)):
            return False
        self._queues.rewrite(queue, QueueOffset(first), content, is_start=is_start)
        return True

    def _sound_before(self, queue: ConsumeQueue, number: int) -> tuple[int, int] | None:
        """The nearest sound entry before a number, and where its record ends."""
        for other in range(number - 1, number - 1 - _NEIGHBOURS_MAX, -1):
            if other < queue.start:
                return queue.start - 1, max(self._log.start, queue.min_physical_offset)
            place = self._sound_place(queue, other)
            if place is not None:
                return other, sum(place)
        return None

    def _sound_after(self, queue: ConsumeQueue, number: int) -> tuple[int, int] | None:
        """The nearest sound entry after a number, and where its record begins."""
        end = queue.end
        for other in range(number + 1, number + 1 + _NEIGHBOURS_MAX):
            if other >= end:
                return end, queue.max_physical_end
            place = self._sound_place(queue, other)
            if place is not None:
                return other, place[0]
        return None

    def _sound_place(self, queue: ConsumeQueue, number: int) -> tuple[int, int] | None:
        """Where the record of an entry begins, and its size; None unless the two agree."""
        topic = expected_topic(queue)
        place, record = self._record_of(queue, number)
        if record is None or topic is None or not is_sound(record, place[0], topic, queue.queue_id):
            return None
        return place if queue_offset_of(record) == number else None

    def _finds_any(self, queue: ConsumeQueue, number: int) -> bool:
        """Whether an entry leads to a record, be it of another queue."""
        place, record = self._record_of(queue, number)
        return record is not None and is_sound(record, place[0], None, 0)

    def _record_of(self, queue: ConsumeQueue, number: int) -> tuple[tuple[int, int], bytes | None]:
        physical_offset, record_bytes, _ = queue.entry(QueueOffset(number)) or (0, 0, 0)
        record = self._log.pread(physical_offset, record_bytes)
        return (physical_offset, record_bytes), record

    def _search(self, queue: ConsumeQueue, start: int, end: int) -> dict[int, bytes] | None:
        """Find the entries of a queue's records in a range of the log; None if it is damaged."""
        key = queue.topic.encode(), queue.queue_id
        found: dict[int, bytes] = {}
        if not 0 <= end - start <= _SEARCH_BYTES_MAX:
            return None
        chunk_bytes = _CHUNK_BYTES
        while start < end:
            file_end = (start // self._log.file_bytes + 1) * self._log.file_bytes
            stop = min(end, file_end)
            content = self._log.pread(start, min(chunk_bytes, stop - start))
            if content is None:
                return None
            walked = walk(
                content,
                0,
                len(content),
                start,
                check_body=False,
                delay_levels_ms=self._delay_levels_ms,
                with_keys=False,
                check_places=True,
            )
            for run in walked.runs.get(key, ()):
                for at in range(0, len(run.entries), ENTRY_BYTES):
                    number = run.first + at // ENTRY_BYTES
                    found[number] = bytes(run.entries[at : at + ENTRY_BYTES])
            start += walked.position
            chunk_bytes = _CHUNK_BYTES
            if walked.stopped_by.verdict is Verdict.BLANK or file_end - start < BLANK_BYTES_MIN:
                start = file_end
            elif not walked.position:
                # A record larger than the chunk, or none.
                if len(content) == stop - start:
                    return None
                chunk_bytes = len(content) * 4
        return found
