"""A scan of the log for the records of one topic, to fill its queues again.

Threads: any; below the given end the log does not change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from orbitmq.errors import StoreDamagedError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.record.codec import walk
from orbitmq.record.decode import Verdict
from orbitmq.record.layout import BLANK_BYTES_MIN
from orbitmq.store.index.consume_queue import ENTRY_BYTES

if TYPE_CHECKING:
    from orbitmq.record.scan import EntryRun
    from orbitmq.store.log.commit_log import CommitLog

# Larger than any record, and short enough that other threads do not wait long.
_PIECE_BYTES: Final = 16 * 1024 * 1024
# Of one topic, which are in memory until all are found: 200 MB.
ENTRIES_MAX: Final = 10_000_000


@dataclass(slots=True, eq=False)
class TopicScan:
    """The queue entries of one topic, as far as the log was scanned."""

    log: CommitLog
    topic: bytes
    # Records below are scanned.
    position: PhysicalOffset
    delay_levels_ms: tuple[int, ...]
    entries_max: int = ENTRIES_MAX
    # With their queue ids, in the order of the log.
    runs: list[tuple[int, EntryRun]] = field(default_factory=list, init=False)
    # Whether the topic was deleted and created again in between.
    has_restarts: bool = field(default=False, init=False)
    _ends: dict[int, int] = field(default_factory=dict, init=False)
    _count: int = field(default=0, init=False)

    def run(self, end: PhysicalOffset) -> None:
        """Scan up to an offset between two records."""
        while self.position < end:
            self._scan_piece(end)

    def _scan_piece(self, end: PhysicalOffset) -> None:
        file = self.log.file_at(self.position)
        if file is None:
            # Retention deleted the file.
            self.position = max(self.log.start, PhysicalOffset(self.position + 1))
            return
        first, file_end = file.first_offset, PhysicalOffset(file.end_offset)
        if file_end - self.position < BLANK_BYTES_MIN:
            self.position = file_end
            return
        piece_end = min(end, file_end, self.position + _PIECE_BYTES)
        found = walk(
            file.view,
            self.position - first,
            piece_end - first,
            first,
            check_body=False,
            delay_levels_ms=self.delay_levels_ms,
            with_keys=False,
            check_places=True,
        )
        for (name, queue_id), runs in found.runs.items():
            if name == self.topic:
                self._add(queue_id, runs)
        before, self.position = self.position, PhysicalOffset(first + found.position)
        verdict = found.stopped_by.verdict
        if self.position < piece_end and verdict is Verdict.BLANK:
            self.position = file_end
        elif self.position < piece_end and (
            verdict is not Verdict.CUT_OFF or self.position == before
        ):
            raise StoreDamagedError(
                f"{file.path} at offset {self.position}: {found.stopped_by}",
                hint="run: orbitmq store verify",
            )

    def _add(self, queue_id: int, runs: list[EntryRun]) -> None:
        for run in runs:
            self.runs.append((queue_id, run))
            self.has_restarts |= run.first < self._ends.get(queue_id, 0)
            self._ends[queue_id] = run.first + len(run.entries) // ENTRY_BYTES
        self._count += sum(len(run.entries) for run in runs) // ENTRY_BYTES
        if self._count > self.entries_max:
            raise StoreDamagedError(
                f"topic {self.topic.decode(errors='replace')!r} has more than {self.entries_max} "
                "messages, too many to fill its queues while the store is open",
                hint="stop the broker and run: orbitmq store rebuild",
            )
