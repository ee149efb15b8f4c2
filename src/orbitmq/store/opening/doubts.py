"""Doubts about queues and index: found at the opening, resolved from the log.

Threads: one; no other thread uses the directory yet.
Crash: doubtful queues are dropped in memory only; their files go once a note of their ends is on
disk (see `rebuild_note`). Doubtful files of the index are deleted at once.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from orbitmq.model.queues import PhysicalOffset, QueueOffset
from orbitmq.store.files.record_checks import (
    HEAD_BYTES,
    damage_of,
    physical_offset_of,
    queue_offset_of,
    store_ms_of,
)
from orbitmq.store.opening.log_scans import has_keys

if TYPE_CHECKING:
    from orbitmq.store.index.consume_queue import ConsumeQueue
    from orbitmq.store.index.consume_queues import ConsumeQueues, QueueTotals
    from orbitmq.store.index.key_indexes import KeyIndexes
    from orbitmq.store.log.commit_log import CommitLog
    from orbitmq.store.opening.checkpoint import Checkpoint
    from orbitmq.store.opening.progress import SavedProgress
    from orbitmq.store.opening.rebuild_note import Ends
    from orbitmq.store.opening.recovery import Known

log = logging.getLogger(__name__)

# Compat: entries of these queues point to records of other topics.
_SHARED_RECORDS: Final = "%LMQ%"


@dataclass(slots=True, eq=False, kw_only=True)
class Doubts:
    """Compares queues and index with the log and with what was saved."""

    commit_log: CommitLog
    queues: ConsumeQueues
    indexes: KeyIndexes | None
    saved: SavedProgress
    checkpoint: Checkpoint
    # Whether the saved progress describes this store, and whether its last user stopped cleanly.
    ours: bool
    clean: bool
    # The ends of queues before a rebuild that was interrupted; None if none was.
    interrupted: Ends | None

    def resolve(self, known: Known) -> PhysicalOffset:
        """Bring queues and index to a known state; returns where to resume dispatching.

        Dispatching a record twice does no harm, so in doubt it restarts at the beginning.
        """
        start, end = self.commit_log.start, self.commit_log.end
        saved = self.saved
        good_until = end if known.queued_until is None else min(known.queued_until, end)
        doubtful = self.queues.load(
            good_until,
            # Whoever stopped cleanly left zero bytes after the newest entry.
            all_written=self.clean and (not self.ours or saved.dispatched == end),
            names_synced=self.ours,
            is_consistent=self._is_consistent,
            log_start=start,
        )
        if self.interrupted is not None:
            log.warning("rebuilding queues reason=an earlier rebuild was interrupted")
            self.queues.drop_again(self.interrupted)
            doubtful += 1
        if self.ours and not doubtful and self.queues.count < saved.queue_count:
            log.warning(
                "rebuilding missing queues found=%d expected=%d",
                self.queues.count,
                saved.queue_count,
            )
            doubtful += 1
        if known.queued_until is None:
            # Another broker stopped cleanly: its queues follow the log up to their newest entry.
            good_until = max((queue.max_physical_end for queue in self.queues), default=start)
        if self.ours and not doubtful and saved.queue_totals is not None:
            doubtful += self._compare_totals(saved.queue_totals)
        if doubtful or not self.queues.count:
            good_until = start
        return max(start, min(good_until, self._index_until()))

    def _compare_totals(self, saved: QueueTotals) -> bool:
        """Whether queues lost entries since they were saved, so that the log must fill them."""
        found = self.queues.totals()
        doubt = saved.doubt(found)
        if not doubt:
            return False
        log.warning("rebuilding queues reason=%s", doubt)
        if found.ends < saved.ends:
            # The log fills up what is missing, unless it was deleted there.
            self.queues.drop_cut()
        else:
            self.queues.drop_all()
        return True

    def _index_until(self) -> PhysicalOffset:
        """Open the index and drop doubtful files; returns how far it follows the log."""
        indexes, end = self.indexes, self.commit_log.end
        if indexes is None:
            return end
        doubt = indexes.load() or indexes.missing_part(
            self.commit_log.start, partial(has_keys, self.commit_log)
        )
        saved = self.saved
        newest = indexes.newest
        until = end
        if doubt:
            trusted = False
        elif self.ours and self.clean:
            found = (newest.name, newest.next) if newest is not None else (0, 0)
            trusted = found == (saved.index_name, saved.index_next)
        elif self.ours:
            trusted = (
                indexes.restore(saved.index_name, saved.index_next, self._store_ms_at)
                and indexes.end_offset <= saved.dispatched
            )
        elif self.clean:
            trusted = newest is not None
        else:
            indexes.keep_full(self.checkpoint.index_ms)
            trusted, until = True, min(indexes.end_offset, end)
        if trusted:
            doubt = indexes.disagreement(self.commit_log.start, self._store_ms_at)
            if not doubt:
                return until
        if newest is not None or doubt:
            log.warning(
                "rebuilding the key index newest=%s reason=%s",
                newest.path if newest is not None else "none",
                doubt or "it is not where the saved progress left it",
            )
        indexes.delete_all()
        return PhysicalOffset(0)

    def _is_consistent(self, queue: ConsumeQueue) -> bool:
        """Whether the newest entry of a queue points to a record that agrees."""
        entry = queue.entry(QueueOffset(queue.end - 1))
        if entry is None:
            return False
        physical_offset, record_bytes, _ = entry
        if physical_offset < self.commit_log.start:
            older = queue.entry(QueueOffset(queue.end - 2))
            is_behind = older is None or older[0] < physical_offset
            return is_behind and 0 < record_bytes <= self.commit_log.start - physical_offset
        if queue.topic.startswith(_SHARED_RECORDS):
            return True
        record = self.commit_log.pread(physical_offset, record_bytes)
        if record is None:
            return False
        number = queue.end - 1
        if not self._damage(queue, physical_offset, record, named=True):
            # Java leaves stale entries after a cut, which may point to records of the same queue.
            return self.ours or queue_offset_of(record) == number
        # Entries and records that our saved progress covers agreed once. A record with the right
        # number and another name is damaged, and reading it reports that. Rebuilding the queue
        # would trust the record, and end before it.
        return (
            self.ours
            and not self._damage(queue, physical_offset, record, named=False)
            and queue_offset_of(record) == number
        )

    def _damage(
        self, queue: ConsumeQueue, physical_offset: int, record: bytes, *, named: bool
    ) -> str:
        return damage_of(
            record,
            physical_offset,
            topic=queue.topic.encode() if named else None,
            queue_id=queue.queue_id,
            check_body=False,
        )

    def _store_ms_at(self, physical_offset: int) -> int | None:
        head = self.commit_log.pread(physical_offset, HEAD_BYTES)
        if head is None or physical_offset_of(head) != physical_offset:
            return None
        return store_ms_of(head)
