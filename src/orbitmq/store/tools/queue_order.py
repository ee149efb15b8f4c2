"""Whether the entries of a queue are in the order of the log, without a gap.

What `queue_agreement` finds by halving relies on it.

Threads: one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.errors import StoreDamagedError
from orbitmq.store.index.consume_queue import ENTRY, ENTRY_BYTES
from orbitmq.store.readonly.queue_files import begins_at
from orbitmq.store.tools.findings import Finding, FindingKind, Findings

if TYPE_CHECKING:
    from orbitmq.store.readonly.queue_files import ReadOnlyQueue


class QueueOrder:
    """Checks a range of entries of one queue."""

    def __init__(
        self,
        on_disk: ReadOnlyQueue,
        findings: Findings,
        *,
        topic: str,
        queue_id: int,
        log_start: int,
        log_end: int,
    ) -> None:
        """Entries count that lead to offsets from `log_start` to `log_end`."""
        self._on_disk = on_disk
        self._findings = findings
        self._topic = topic
        self._queue_id = queue_id
        self._log_start = log_start
        self._log_end = log_end

    def check(self, first: int, end: int) -> int:
        """Check entries `first` to `end`, each against the one before it; returns their number."""
        on_disk = self._on_disk
        number = max(first, on_disk.first)
        end = min(end, on_disk.end)
        count = max(end - number, 0)
        before = self._end_before(number)
        while number < end:
            try:
                content = on_disk.entries(number, end - number)
            except StoreDamagedError:
                per_file = on_disk.file_bytes // ENTRY_BYTES
                next_number = min((number // per_file + 1) * per_file, end)
                self._add(
                    FindingKind.MISSING_ENTRY,
                    "a file is missing in the queue",
                    number,
                    next_number - 1,
                )
                number, before = next_number, 0
                continue
            for entry in ENTRY.iter_unpack(content):
                if self._log_start <= begins_at(entry) < self._log_end and entry[1]:
                    if entry[0] < before:
                        self._add(
                            FindingKind.WRONG_ENTRY,
                            "entries are not in the order of the log",
                            number - 1,
                            number,
                        )
                    before = entry[0] + entry[1]
                number += 1
        return count

    def _end_before(self, number: int) -> int:
        """Where the record of the entry before a number ends."""
        if number <= self._on_disk.first:
            return 0
        try:
            offset, record_bytes, _ = entry = self._on_disk.entry(number - 1)
        except StoreDamagedError:
            return 0
        return offset + record_bytes if 0 <= begins_at(entry) < self._log_end else 0

    def _add(self, kind: FindingKind, text: str, first: int, last: int) -> None:
        self._findings.add(
            Finding(
                kind=kind,
                text=text,
                file=str(self._on_disk.folder),
                topic=self._topic,
                queue_id=self._queue_id,
                first_number=first,
                last_number=last,
                count=last - first + 1,
            )
        )
