"""The dispatcher: adds new records of the log to queues and key index.

Threads: any; `advance` holds a lock, so that records are added in order.
Crash: it resumes at the saved progress, which lags; queues and index skip what they have.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from orbitmq.errors import StoreDamagedError
from orbitmq.model.queues import PhysicalOffset, QueueOffset
from orbitmq.record.codec import walk
from orbitmq.record.decode import Verdict
from orbitmq.record.layout import BLANK_BYTES_MIN
from orbitmq.store.index.consume_queue import ENTRY, ENTRY_BYTES
from orbitmq.store.index.topic_scan import TopicScan

if TYPE_CHECKING:
    from orbitmq.clock import Clock
    from orbitmq.record.scan import EntryRun
    from orbitmq.store.index.consume_queue import ConsumeQueue
    from orbitmq.store.index.consume_queues import ConsumeQueues, QueueTotals
    from orbitmq.store.index.deleted_topics import DeletedTopics
    from orbitmq.store.index.key_indexes import KeyIndexes
    from orbitmq.store.log.commit_log import CommitLog

log = logging.getLogger(__name__)

# Saved as the index's name while the index is switched off.
NO_INDEX = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched:
    """How far queues and index follow the log."""

    position: PhysicalOffset
    last_store_ms: int
    index_name: int
    index_next: int
    queue_count: int
    queue_totals: QueueTotals


@dataclass(slots=True, eq=False)
class Dispatcher:
    """Adds records to queues and index, and knows how far these follow the log."""

    log: CommitLog
    queues: ConsumeQueues
    indexes: KeyIndexes | None
    _: KW_ONLY
    deleted_topics: DeletedTopics
    delay_levels_ms: tuple[int, ...]
    clock: Clock
    # The log was copied below: there a queue whose numbers restart belongs to a topic that the master
    # deleted and that was created again.
    copied_until: int = 0
    # Invariant: every record below is in its queue and in the index.
    position: PhysicalOffset = field(default=PhysicalOffset(0), init=False)
    last_store_ms: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def advance(self, end: PhysicalOffset) -> set[ConsumeQueue]:
        """Add the records below `end`; returns the queues that grew."""
        grown: set[ConsumeQueue] = set()
        with self._lock:
            while self.position < end:
                before = self.position
                self._advance_in_file(end, grown)
                # Invariant: every turn advances, or the loop would never end.
                assert self.position > before
        return grown

    def restore(self, scan: TopicScan, *, noted: int) -> bool:
        """Replace a deleted topic's queues by what a scan found, and finds up to here.

        Does nothing, and returns False, if it was deleted meanwhile elsewhere than noted.
        """
        topic = scan.topic.decode(errors="replace")
        with self._lock:
            scan.run(self.position)
            if scan.has_restarts or self.deleted_topics.end_of(topic) != noted:
                return False
            self.queues.replace_topic(topic, scan.runs)
        return True

    def delete_before(self, topic: str, at: PhysicalOffset) -> None:
        """Delete a topic's records below an offset, and keep the queues that it has above."""
        with self._lock:
            if any(
                queue.topic == topic and queue.physical_start < at < queue.max_physical_end
                for queue in self.queues
            ):
                scan = TopicScan(
                    self.log, topic.encode(), max(at, self.log.start), self.delay_levels_ms
                )
                scan.run(self.position)
                self.queues.replace_topic(topic, scan.runs)
                self.queues.sync()
            self._delete_before(topic, at)

    def lower_deletion(self, topic: str, end: PhysicalOffset, *, noted: int) -> None:
        """Note that a topic's records are deleted only below a lower end than the one noted."""
        with self._lock:
            if self.deleted_topics.end_of(topic) == noted:
                self.deleted_topics.lower(topic, end)

    def snapshot(self) -> Dispatched:
        """Take a snapshot of how far queues and index are."""
        with self._lock:
            newest = self.indexes.newest if self.indexes is not None else None
            return Dispatched(
                position=self.position,
                last_store_ms=self.last_store_ms,
                index_name=newest.name if newest else 0 if self.indexes is not None else NO_INDEX,
                index_next=newest.next if newest else 0,
                queue_count=self.queues.count,
                queue_totals=self.queues.totals(),
            )

    def _advance_in_file(self, end: PhysicalOffset, grown: set[ConsumeQueue]) -> None:
        file = self.log.file_at(self.position)
        if file is None:
            # Retention deleted the file first; deleted records need no index.
            assert self.log.start > self.position
            self.position = self.log.start
            return
        first_offset, file_end = file.first_offset, file.end_offset
        if file_end - self.position < BLANK_BYTES_MIN:
            self.position = PhysicalOffset(file_end)
            return
        walk_end = min(end, file_end)
        found = walk(
            file.view,
            self.position - first_offset,
            walk_end - first_offset,
            first_offset,
            check_body=False,
            delay_levels_ms=self.delay_levels_ms,
            with_keys=self.indexes is not None,
            check_places=True,
        )
        self._feed_queues(found.runs, grown)
        if self.indexes is not None and found.keys:
            self.indexes.put(found.keys, now_ms=self.clock.now_ms)
        self.last_store_ms = max(found.last_store_ms, self.last_store_ms)
        stopped_at = PhysicalOffset(first_offset + found.position)
        if stopped_at < walk_end:
            if found.stopped_by.verdict is not Verdict.BLANK:
                self.position = stopped_at
                raise StoreDamagedError(
                    f"{file.path} at offset {stopped_at}: {found.stopped_by}",
                    hint="run: orbitmq store verify",
                )
            stopped_at = PhysicalOffset(file_end)
        self.position = stopped_at

    def _delete_replaced(self, found: dict[tuple[bytes, int], list[EntryRun]]) -> None:
        """Delete what topics had before they were deleted and created again.

        The log does not say where that was. It was after all messages of a queue whose numbers
        restarted, and those of queues that were in use then; what is above these may be new, and
        stays. The master knows more: see `delete_before`.
        """
        replaced = {
            name
            for (name, queue_id), runs in found.items()
            if len(self._lives(name, queue_id, runs)) > 1
        }
        for name in replaced:
            topic = name.decode(errors="replace")
            keys = {(name, queue.queue_id) for queue in self.queues if queue.topic == topic}
            keys.update(key for key in found if key[0] == name)
            of_queues = [self._lives_from_start(*key, found.get(key, [])) for key in keys]
            at = max(end for lives in of_queues for _, end in lives[:-1])
            for begin, end in sorted(life for lives in of_queues for life in lives):
                if begin < at:
                    at = max(at, end)
            log.info("topic replaced, as at the master topic=%s from=%d", topic, at)
            self._delete_before(topic, PhysicalOffset(at))

    def _lives_from_start(
        self, name: bytes, queue_id: int, runs: list[EntryRun]
    ) -> list[tuple[int, int]]:
        """Where in the log each life of a queue begins and ends."""
        lives = self._lives(name, queue_id, runs)
        queue = self.queues.find(name.decode(errors="replace"), queue_id)
        if queue is not None and queue.end:
            lives[0] = queue.physical_start, lives[0][1]
        return lives

    def _lives(self, name: bytes, queue_id: int, runs: list[EntryRun]) -> list[tuple[int, int]]:
        """Where in the log each life of a queue begins and ends; numbers restart with each.

        Of a life that began in an earlier call only the end is known.
        """
        # Perf: done for all that a slave copies, so it reads no file of a queue.
        queue = self.queues.find(name.decode(errors="replace"), queue_id)
        known = queue.max_physical_end if queue is not None else 0
        number = queue.end if queue is not None else 0
        lives: list[tuple[int, int]] = []
        if queue is not None and number:
            lives.append((known, known))
        for run in runs:
            at: int = ENTRY.unpack_from(run.entries)[0]
            last, size, _ = ENTRY.unpack_from(run.entries, len(run.entries) - ENTRY_BYTES)
            if last < known or self.deleted_topics.is_deleted(name, last):
                continue
            if lives and (at < known or run.first >= number):
                lives[-1] = lives[-1][0], last + size
            else:
                lives.append((at, last + size))
            number = QueueOffset(run.first + len(run.entries) // ENTRY_BYTES)
        return lives

    def _delete_before(self, topic: str, at: PhysicalOffset) -> None:
        self.deleted_topics.add(topic, at, log_start=self.log.start)
        self.queues.delete_topic(topic, before=at)

    def _feed_queues(
        self, found: dict[tuple[bytes, int], list[EntryRun]], grown: set[ConsumeQueue]
    ) -> None:
        append, count_deleted = self.queues.append, self.deleted_topics.count_deleted
        if self.position < self.copied_until:
            self._delete_replaced(found)
        with self.queues.lock:
            for (name, queue_id), runs in found.items():
                topic = name.decode(errors="replace")
                for run in runs:
                    first, entries = run.first, run.entries
                    deleted = count_deleted(name, entries)
                    if deleted:
                        first, entries = first + deleted, entries[deleted * ENTRY_BYTES :]
                        if not entries:
                            continue
                    queue = append(topic, queue_id, QueueOffset(first), entries)
                    if queue is not None:
                        grown.add(queue)
