"""Whether consume queues agree with the log: each entry with its record.

Records come in log order, as runs of entries with consecutive numbers. Each entry must equal the
one that its record makes, at the record's number. Entries without a record are valid only as
fillers, for records that retention deleted, and beyond the examined range.

A topic that was deleted and created again starts over at number 0 while its old records are still
in the log; its entries must then match the newer records.

Of a part of the log, the entries that lead into it are found by halving. That takes them to be in
the order of the log, which `queue_order` checks; a few more at the end cover a damaged one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from orbitmq.errors import StoreDamagedError, StoreError, StoreFormatError
from orbitmq.record.scan import EntryRun
from orbitmq.store.files.record_checks import damage_of, queue_offset_of
from orbitmq.store.index.consume_queue import ENTRY, ENTRY_BYTES, EXTENSION_BELOW
from orbitmq.store.index.deleted_topics import DeletedTopics
from orbitmq.store.index.entry_search import start_where
from orbitmq.store.readonly.queue_files import (
    FILLER_RECORD_BYTES,
    Entry,
    ReadOnlyQueue,
    begins_at,
)
from orbitmq.store.readonly.readonly_store import SHARED_RECORDS, QueueKey
from orbitmq.store.tools.findings import Finding, FindingKind, Findings, Scope

# Problems of one queue listed one by one; more are counted with the last one.
_RANGES_MAX: Final = 100
# Entries after the last one that leads into a part of the log, in case a damaged one misled.
_AFTER: Final = 256
# No record is larger; the size in an entry may be damaged.
_RECORD_BYTES_MAX: Final = 64 * 1024 * 1024

ReadLog = Callable[[int, int], bytes]


@dataclass(slots=True)
class _Problem:
    """Consecutive entries with the same problem."""

    kind: FindingKind
    text: str
    offset: int
    first: int
    last: int
    count: int = 1


@dataclass(slots=True)
class _QueueState:
    on_disk: ReadOnlyQueue | None
    # Records below this offset belong to an earlier topic of the same name.
    life_start: int = 0
    # The number that the next record should have; None before the first record.
    next_number: int | None = None
    records: int = 0
    # Records of a topic that was deleted after them.
    deleted: int = 0
    problems: list[_Problem] = field(default_factory=list)

    def add_problem(self, kind: FindingKind, text: str, offset: int, number: int) -> None:
        last = self.problems[-1] if self.problems else None
        if last and last.kind is kind and last.text == text and last.last + 1 == number:
            last.last = number
            last.count += 1
        elif last and len(self.problems) >= _RANGES_MAX:
            last.last = max(last.last, number)
            last.count += 1
        else:
            self.problems.append(_Problem(kind, text, offset, number, number))


class QueueAgreement:
    """Compares queues with the log during a walk."""

    def __init__(
        self,
        open_queue: Callable[[str, int], ReadOnlyQueue],
        findings: Findings,
        *,
        scope: Scope,
        topics: frozenset[str] | None,
        deleted_topics: DeletedTopics | None = None,
        has_extensions: bool = False,
        read_log: ReadLog | None = None,
    ) -> None:
        """`topics` are the broker's topics; None if unknown.

        For a part of the log, `read_log` reads bytes of all of it.
        """
        self._read_log = read_log
        self._has_extensions = has_extensions
        self._deleted_topics = deleted_topics
        self._open_queue = open_queue
        self._findings = findings
        self._scope = scope
        self._topics = topics
        self._states: dict[QueueKey, _QueueState] = {}
        self.entries = 0

    def compare(self, topic: str, queue_id: int, run: EntryRun) -> None:
        """Compare entries made from records with those on disk."""
        state = self._state(topic, queue_id)
        deleted = self._count_deleted(topic, state, run)
        if deleted:
            state.deleted += deleted
            run = EntryRun(run.first + deleted, run.entries[deleted * ENTRY_BYTES :])
            if not run.entries:
                return
        count = len(run.entries) // ENTRY_BYTES
        state.records += count
        expected = state.next_number
        if expected is not None and run.first < expected:
            # The topic was created again: findings about its old records are void.
            state.problems = [problem for problem in state.problems if problem.last < run.first]
        elif state.on_disk is not None:
            first = self._first_kept(state.on_disk) if expected is None else expected
            self._check_unmatched(state, first, run.first)
        self._compare(state, run)
        state.next_number = run.first + count

    def finish(self, keys: list[QueueKey]) -> None:
        """Check what no record covered: the ends of queues, and queues without records."""
        for topic, queue_id in keys:
            if not topic.startswith(SHARED_RECORDS):
                self._state(topic, queue_id)
        for (topic, queue_id), state in sorted(self._states.items(), key=lambda item: item[0]):
            if state.on_disk is not None:
                first = state.next_number
                if first is None:
                    first = self._first_kept(state.on_disk)
                self._check_unmatched(state, first, self._examined_end(state.on_disk))
            self._report(topic, queue_id, state)

    def _state(self, topic: str, queue_id: int) -> _QueueState:
        key = (topic, queue_id)
        state = self._states.get(key)
        if state is None:
            try:
                on_disk: ReadOnlyQueue | None = self._open_queue(topic, queue_id)
            except StoreFormatError as error:
                on_disk = None
                if not self._scope.is_part:
                    add_bad_queue(self._findings, topic, queue_id, error)
            state = self._states[key] = _QueueState(on_disk)
            if on_disk is not None and not self._scope.is_part:
                add_strange_files(self._findings, on_disk)
            if on_disk is not None and self._scope.is_part:
                state.life_start = self._life_start(topic, queue_id, on_disk)
        return state

    def _count_deleted(self, topic: str, state: _QueueState, run: EntryRun) -> int:
        """How many records at the start of a run belong to a deleted topic of the same name."""
        deleted = 0
        if self._deleted_topics is not None:
            deleted = self._deleted_topics.count_deleted(topic.encode(), run.entries)
        count = len(run.entries) // ENTRY_BYTES
        while (
            deleted < count
            and ENTRY.unpack_from(run.entries, deleted * ENTRY_BYTES)[0] < state.life_start
        ):
            deleted += 1
        return deleted

    def _life_start(self, topic: str, queue_id: int, on_disk: ReadOnlyQueue) -> int:
        """Where the record of entry 0 is, if it is the first of its queue; else 0."""
        if on_disk.first or not on_disk.end or self._read_log is None:
            return 0
        offset, record_bytes, _ = entry = on_disk.entry(0)
        if begins_at(entry) <= 0 or not 0 < record_bytes <= _RECORD_BYTES_MAX:
            return 0
        try:
            record = self._read_log(offset, record_bytes)
        except StoreError:
            # Retention deleted it, and everything older.
            return 0
        is_other = damage_of(
            record, offset, topic=topic.encode(), queue_id=queue_id, check_body=False
        )
        return 0 if is_other or queue_offset_of(record) else offset

    def _examined_end(self, on_disk: ReadOnlyQueue) -> int:
        """Where the entries end that may lead into the examined part of the log."""
        if not self._scope.is_part:
            return on_disk.end
        return min(_first_at(on_disk, self._scope.log_end) + _AFTER, on_disk.end)

    def _first_kept(self, on_disk: ReadOnlyQueue) -> int:
        """The first entry whose record was not deleted, or is in the examined part of the log."""
        if self._scope.is_part:
            return _first_at(on_disk, self._scope.log_start)
        try:
            return on_disk.first_from(self._scope.log_start)
        except StoreDamagedError:
            return on_disk.first

    def _compare(self, state: _QueueState, run: EntryRun) -> None:
        on_disk = state.on_disk
        if on_disk is None:
            return
        count = len(run.entries) // ENTRY_BYTES
        self.entries += count
        at = 0
        while at < count:
            found = self._entries(on_disk, run.first + at, count - at)
            wanted = run.entries[at * ENTRY_BYTES : at * ENTRY_BYTES + max(len(found), ENTRY_BYTES)]
            if found != wanted:
                self._compare_each(state, run.first + at, bytes(wanted), found)
            at += len(wanted) // ENTRY_BYTES

    def _compare_each(self, state: _QueueState, number: int, wanted: bytes, found: bytes) -> None:
        entries: Iterator[Entry] = ENTRY.iter_unpack(found)
        for record in ENTRY.iter_unpack(wanted):
            entry = next(entries, None)
            if entry is None or entry[1] == 0:
                if record[0] < self._scope.required_until:
                    state.add_problem(
                        FindingKind.MISSING_ENTRY, "records have no entry", record[0], number
                    )
            elif entry[:2] != record[:2]:
                state.add_problem(
                    FindingKind.WRONG_ENTRY,
                    "entries do not point to their record",
                    record[0],
                    number,
                )
            elif (
                entry[2] != record[2]
                and (entry[2] >= EXTENSION_BELOW or not self._has_extensions)
                # A stand-in for a lost record has no tag.
                and not self._scope.is_lost(record[0])
            ):
                state.add_problem(
                    FindingKind.WRONG_ENTRY,
                    "entries have a different tag hash than their record",
                    record[0],
                    number,
                )
            number += 1

    def _entries(self, on_disk: ReadOnlyQueue, first: int, count: int) -> bytes:
        """Entries from `first` on; empty if there are none."""
        if first < on_disk.first:
            return b""
        try:
            return on_disk.entries(first, count)
        except StoreDamagedError:
            return b""

    def _check_unmatched(self, state: _QueueState, first: int, end: int) -> None:
        on_disk = state.on_disk
        assert on_disk is not None
        first = max(first, on_disk.first)
        end = min(end, on_disk.end)
        while first < end:
            content = self._entries(on_disk, first, end - first)
            if not content and self._scope.is_part:
                first = _next_file(on_disk, first)
                continue
            if not content:
                state.add_problem(
                    FindingKind.MISSING_ENTRY, "a file is missing in the queue", -1, first
                )
                return
            for offset, record_bytes, _ in ENTRY.iter_unpack(content):
                if self._is_stray(offset, record_bytes):
                    if self._scope.is_lost(offset):
                        text = "messages are lost in the damaged part of the log"
                        state.add_problem(FindingKind.LOST_RECORDS, text, offset, first)
                    else:
                        text = "entries point to no record of this queue"
                        state.add_problem(FindingKind.STRAY_ENTRY, text, offset, first)
                first += 1

    def _is_stray(self, offset: int, record_bytes: int) -> bool:
        is_filler = offset == 0 and record_bytes == FILLER_RECORD_BYTES
        # Of a part of the log, an unwritten entry may belong to a record of another part.
        is_filler = is_filler or (self._scope.is_part and record_bytes == 0)
        return not is_filler and self._scope.log_start <= offset < self._scope.log_end

    def _report(self, topic: str, queue_id: int, state: _QueueState) -> None:
        on_disk = state.on_disk
        if (
            state.problems
            and on_disk is not None
            and not on_disk.folder.is_dir()
            and self._topics is not None
            and topic not in self._topics
        ):
            state.deleted += state.records
            state.problems.clear()
        if state.deleted and not self._scope.is_part:
            self._findings.note(
                f"queue {queue_id} of topic {topic!r} was deleted; {state.deleted} of its records "
                "are still in the log"
            )
        for problem in state.problems:
            self._findings.add(
                Finding(
                    kind=problem.kind,
                    text=problem.text,
                    file=str(on_disk.folder) if on_disk is not None else "",
                    offset=problem.offset,
                    topic=topic,
                    queue_id=queue_id,
                    first_number=problem.first,
                    last_number=problem.last,
                    count=problem.count,
                )
            )


def add_bad_queue(findings: Findings, topic: str, queue_id: int, error: StoreFormatError) -> None:
    """Report that the files of a queue do not fit each other."""
    findings.add(
        Finding(kind=FindingKind.BAD_QUEUE_FILES, text=str(error), topic=topic, queue_id=queue_id)
    )


def add_strange_files(findings: Findings, on_disk: ReadOnlyQueue) -> None:
    """Report files in the folder of a queue that do not belong there."""
    for path in on_disk.strange_files:
        findings.add(
            Finding(kind=FindingKind.STRANGE_FILE, text="not a file of a queue", file=str(path))
        )


def _first_at(on_disk: ReadOnlyQueue, physical_offset: int) -> int:
    """Like `first_from`, for queues in which files are missing: as if those were not written."""

    def read(first: int, count: int) -> bytes:
        try:
            return on_disk.entries(first, count)
        except StoreDamagedError:
            return bytes((min(first + count, _next_file(on_disk, first)) - first) * ENTRY_BYTES)

    return start_where(
        read,
        lambda entry: entry[1] != FILLER_RECORD_BYTES and not 0 <= entry[0] < physical_offset,
        on_disk.first,
        on_disk.end,
    )


def _next_file(on_disk: ReadOnlyQueue, number: int) -> int:
    """The number of the first entry of the file after that of an entry."""
    per_file = on_disk.file_bytes // ENTRY_BYTES
    return (number // per_file + 1) * per_file
