"""Verification of a range of the log, with the entries and keys that lead to it.

Ranges that touch, checked one by one and in any process, find together what one pass over the whole
store finds: each says where it starts by the same rule, at the first record from a position on.
Together with `queue_order` for each queue and `check_index_file` for each file of the index.

A broker may have the store open. What retention deletes meanwhile is left out, and what looks wrong
is looked at again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq.errors import RecordsDeletedError
from orbitmq.store.config import StoreConfig
from orbitmq.store.delay_levels import parse_delay_levels
from orbitmq.store.index.consume_queue import EXTENSION_FOLDER
from orbitmq.store.index.deleted_topics import DeletedTopics
from orbitmq.store.opening.parts import OWN_FOLDER
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from orbitmq.store.tools.findings import Scope
from orbitmq.store.tools.index_agreement import IndexAgreement
from orbitmq.store.tools.log_pass import LogPass, LostRanges
from orbitmq.store.tools.missing_files import add_missing_files, known_topics
from orbitmq.store.tools.queue_agreement import QueueAgreement
from orbitmq.store.tools.record_search import next_record
from orbitmq.store.tools.verification import Verification

if TYPE_CHECKING:
    from orbitmq.store.readonly.log_files import ReadOnlyLog

# Retention may delete the start of a range each time.
_ATTEMPTS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """A range within one file of the log, or one without a file."""

    start: int
    end: int
    # Where readers stopped, and until where entries were known, when ranges were chosen.
    log_end: int
    required_until: int


def verify_range(
    root: str,
    part: LogRange,
    *,
    log_path: str = "",
    delay_levels: str | None = None,
    index_slots: int | None = None,
) -> Verification:
    """Verify a range of the log of a store."""
    levels_ms = parse_delay_levels(
        StoreConfig().delay_levels if delay_levels is None else delay_levels
    )
    found = Verification(start=part.start, end=part.end)
    for attempt in range(_ATTEMPTS):
        with ReadOnlyStore(root, log_path=log_path) as store:
            log_start = store.start
            if part.end <= log_start:
                # Retention deleted it.
                return Verification(start=part.end, end=part.end)
            try:
                found = _Range(store, part, levels_ms, index_slots).run()
            except RecordsDeletedError:
                continue
            store.log.refresh()
            is_same = store.start == log_start or store.start <= part.start
            if is_same and (store.state.is_clean or found.is_fine or attempt):
                return found
    return found


def record_borders(log: ReadOnlyLog, start: int, end: int, log_end: int) -> tuple[int, int]:
    """Where the first record of a range within a file starts, and that of the next range."""
    file = log.find_file(start)
    if file is None:
        return max(start, log.start), end
    if start > file.first_offset:
        start = next_record(log, file, start)
    if end < min(file.end_offset, log_end):
        end = min(next_record(log, file, end), log_end)
    return min(start, end), end


class _Range:
    """One pass over a range."""

    def __init__(
        self,
        store: ReadOnlyStore,
        part: LogRange,
        delay_levels_ms: tuple[int, ...],
        index_slots: int | None,
    ) -> None:
        self._store = store
        start, end = record_borders(store.log, part.start, part.end, part.log_end)
        self._result = Verification(start=start, end=end, is_clean=store.state.is_clean)
        self._lost = LostRanges()
        scope = Scope(
            log_start=start,
            log_end=end,
            required_until=part.required_until,
            is_lost=self._lost.has,
            is_part=True,
        )
        self._records = LogPass(
            store.log,
            self._result.findings,
            end=part.log_end,
            lost=self._lost,
            delay_levels_ms=delay_levels_ms,
        )
        self._queues = QueueAgreement(
            store.on_disk,
            self._result.findings,
            scope=scope,
            topics=known_topics(store.root),
            deleted_topics=DeletedTopics(store.root / OWN_FOLDER),
            has_extensions=(store.root / EXTENSION_FOLDER).exists(),
            read_log=store.log.read,
        )
        self._index = IndexAgreement(
            store.root / "index",
            self._result.findings,
            scope=scope,
            slots=index_slots,
            is_clean=store.state.is_clean,
            is_expected=False,
        )

    def run(self) -> Verification:
        result, log = self._result, self._store.log
        if result.start < result.end:
            if log.find_file(result.start) is not None:
                self._records.run(result.start, result.end, self._queues, self._index)
            else:
                self._miss()
        self._queues.finish(self._store.folder_keys())
        self._index.finish()
        result.records = self._records.records
        result.record_bytes = self._records.record_bytes
        result.stand_ins = self._records.stand_ins
        result.entries = self._queues.entries
        result.keys = self._index.keys
        return result

    def _miss(self) -> None:
        """The range is a gap between files."""
        result, log = self._result, self._store.log
        self._lost.add(result.start, result.end)
        following = next((file for file in log.files if file.first_offset > result.start), None)
        if following is not None:
            add_missing_files(result.findings, result.start, following)
