"""Verification: is every record whole, do queues and index agree with the log.

One pass over the log, with queues and index read alongside. Damage is skipped: verification resumes
at the next record (see `record_search`). It stops where readers stop, so a store may be verified
while a broker writes it; what the broker has not put on disk yet is then no problem.

It changes nothing and takes no lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.config import StoreConfig
from orbitmq.store.delay_levels import parse_delay_levels
from orbitmq.store.index.consume_queue import EXTENSION_FOLDER
from orbitmq.store.index.deleted_topics import DeletedTopics
from orbitmq.store.log.stand_ins import LOST_FOLDER
from orbitmq.store.opening.parts import OWN_FOLDER
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from orbitmq.store.readonly.visible_end import Writer
from orbitmq.store.tools.findings import Findings, Scope
from orbitmq.store.tools.index_agreement import IndexAgreement
from orbitmq.store.tools.log_pass import LogPass, LostRanges
from orbitmq.store.tools.missing_files import (
    add_missing_files,
    check_log_files,
    check_topics_file,
    known_topics,
)
from orbitmq.store.tools.queue_agreement import QueueAgreement

OnProgress = Callable[[int, int], None]


@dataclass(kw_only=True)
class Verification:
    """What was examined and what was found."""

    start: int
    end: int
    # Neither open in a broker nor left by a crash.
    is_clean: bool = True
    records: int = 0
    record_bytes: int = 0
    # Records that replace bytes whose loss was accepted.
    stand_ins: int = 0
    queues: int = 0
    entries: int = 0
    keys: int = 0
    findings: Findings = field(default_factory=Findings)

    @property
    def is_fine(self) -> bool:
        """Whether there are no problems."""
        return not self.findings.counts


def verify(
    store: ReadOnlyStore,
    *,
    delay_levels: str | None = None,
    index_slots: int | None = None,
    on_progress: OnProgress = lambda _done, _total: None,
) -> Verification:
    """Verify a store; `delay_levels` as messageDelayLevel, `index_slots` as maxHashSlotNum."""
    return _Pass(store, delay_levels, index_slots, on_progress).run()


class _Pass:
    """One pass over a store."""

    def __init__(
        self,
        store: ReadOnlyStore,
        delay_levels: str | None,
        index_slots: int | None,
        on_progress: OnProgress,
    ) -> None:
        self._store = store
        self._log = store.log
        self._result = Verification(start=store.start, end=store.end, is_clean=store.state.is_clean)
        self._findings = self._result.findings
        self._lost = LostRanges()
        scope = Scope(
            log_start=store.start,
            log_end=store.end,
            required_until=store.entries_known_until,
            is_lost=self._lost.has,
        )
        self._records = LogPass(
            store.log,
            self._findings,
            end=store.end,
            lost=self._lost,
            delay_levels_ms=parse_delay_levels(
                StoreConfig().delay_levels if delay_levels is None else delay_levels
            ),
            on_position=lambda position: on_progress(
                position - store.start, store.end - store.start
            ),
        )
        self._queues = QueueAgreement(
            store.on_disk,
            self._findings,
            scope=scope,
            topics=known_topics(store.root),
            deleted_topics=DeletedTopics(store.root / OWN_FOLDER),
            has_extensions=(store.root / EXTENSION_FOLDER).exists(),
        )
        self._index = IndexAgreement(
            store.root / "index",
            self._findings,
            scope=scope,
            slots=index_slots,
            is_clean=store.state.is_clean,
            is_expected=is_index_expected(store),
        )

    def run(self) -> Verification:
        check_log_files(self._store, self._findings)
        for start, end in self._segments():
            self._records.run(start, end, self._queues, self._index)
        keys = self._store.folder_keys()
        check_topics_file(self._store, self._findings, {topic for topic, _ in keys})
        self._queues.finish(keys)
        self._index.finish()
        result = self._result
        result.records = self._records.records
        result.record_bytes = self._records.record_bytes
        result.stand_ins = self._records.stand_ins
        result.queues = len(keys)
        result.entries = self._queues.entries
        result.keys = self._index.keys
        self._note_rest()
        return result

    def _segments(self) -> Iterator[tuple[PhysicalOffset, PhysicalOffset]]:
        """Ranges of the log without missing files."""
        end = self._store.end
        start = self._log.start
        position = start
        for file in self._log.files:
            if file.first_offset > position:
                yield start, position
                self._lost.add(position, min(file.first_offset, end))
                add_missing_files(self._findings, position, file)
                start = file.first_offset
            position = file.end_offset
            if position >= end:
                break
        yield start, min(position, end)

    def _note_rest(self) -> None:
        if self._result.stand_ins:
            self._findings.note(
                f"{self._result.stand_ins} records replace bytes whose loss was accepted; those "
                f"are kept in {self._store.root / OWN_FOLDER / LOST_FOLDER}"
            )
        state = self._store.state
        if not state.is_clean:
            self._findings.note(
                "the store is open, or was not stopped cleanly: records after offset "
                f"{self._store.end} were not verified; opening it recovers them"
            )


def is_index_expected(store: ReadOnlyStore) -> bool:
    """Whether the store's progress says that it has a key index."""
    progress = store.state.progress
    return store.written_by is Writer.ORBITMQ and progress is not None and progress.index_name > 0
