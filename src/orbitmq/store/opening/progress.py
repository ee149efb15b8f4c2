"""Progress on disk: puts queues and index there, then marks and checkpoint.

Threads: one at a time; the upkeep thread, and whoever opens or closes the store.
Crash: the order is what counts: queues and index first, then the mark that tells of them and of
the checkpoint to come, then the checkpoint. Each is on disk before the next is written.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.opening.marks import Mark

if TYPE_CHECKING:
    from orbitmq.store.index.consume_queues import ConsumeQueues
    from orbitmq.store.index.dispatcher import Dispatched, Dispatcher
    from orbitmq.store.index.key_indexes import KeyIndexes
    from orbitmq.store.opening.checkpoint import Checkpoint
    from orbitmq.store.opening.marks import Marks


class Progress:
    """Saves how far queues and index are on disk."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        queues: ConsumeQueues,
        indexes: KeyIndexes | None,
        marks: Marks,
        checkpoint: Checkpoint,
        checkpoint_path: Path,
    ) -> None:
        self._dispatcher = dispatcher
        self._queues = queues
        self._indexes = indexes
        self._marks = marks
        self._checkpoint = checkpoint
        self._checkpoint_path = checkpoint_path
        self._saved: Dispatched | None = None

    def save(self, flush_log: Callable[[PhysicalOffset], PhysicalOffset]) -> None:
        """Save; `flush_log` puts the log on disk up to an offset and says how far it is."""
        dispatched = self._dispatcher.snapshot()
        if dispatched == self._saved and not self._queues.unsynced_count:
            return
        # Invariant: a mark never tells of queues or an index beyond the log that is on disk.
        flushed = flush_log(dispatched.position)
        self._queues.sync()
        if self._indexes is not None:
            self._indexes.sync()
        before = self._checkpoint.fingerprint
        self._advance_checkpoint(dispatched)
        self._marks.write(
            Mark(
                flushed=max(flushed, self._marks.mark.flushed) if self._saved else flushed,
                dispatched=dispatched.position,
                index_name=dispatched.index_name,
                index_next=dispatched.index_next,
                queue_count=dispatched.queue_count,
                checkpoint_before=before,
                checkpoint_after=self._checkpoint.fingerprint,
            )
        )
        self._checkpoint.write(self._checkpoint_path)
        self._saved = dispatched

    def _advance_checkpoint(self, dispatched: Dispatched) -> None:
        checkpoint = self._checkpoint
        checkpoint.log_ms = max(checkpoint.log_ms, dispatched.last_store_ms)
        checkpoint.queues_ms = max(checkpoint.queues_ms, dispatched.last_store_ms)
        if self._indexes is not None:
            checkpoint.index_ms = max(checkpoint.index_ms, self._indexes.full_until_ms)
