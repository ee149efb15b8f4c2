"""Verification: is every record whole, do queues and index agree with the log.

One pass over the log, with queues and index read alongside. Damage is skipped: verification resumes
at the next record (see `record_search`). It stops where readers stop, so a store may be verified
while a broker writes it; what the broker has not put on disk yet is then no problem.

It changes nothing and takes no lock.
"""

from __future__ import annotations

import bisect
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from orbitmq import java_json
from orbitmq.errors import ProtocolError, RecordsDeletedError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.record.decode import FieldPositions, Found, locate
from orbitmq.record.layout import CRC_MASK
from orbitmq.store.config import StoreConfig
from orbitmq.store.delay_levels import parse_delay_levels
from orbitmq.store.files.file_names import file_name
from orbitmq.store.files.record_checks import locate_whole
from orbitmq.store.index.consume_queue import EXTENSION_FOLDER
from orbitmq.store.index.deleted_topics import DeletedTopics
from orbitmq.store.log.stand_ins import LOST_FOLDER, is_stand_in
from orbitmq.store.opening.parts import OWN_FOLDER
from orbitmq.store.opening.shape import read_shape
from orbitmq.store.readonly.log_files import WalkedChunk
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from orbitmq.store.readonly.visible_end import Writer
from orbitmq.store.tools.findings import Finding, FindingKind, Findings, Scope
from orbitmq.store.tools.index_agreement import IndexAgreement
from orbitmq.store.tools.queue_agreement import QueueAgreement
from orbitmq.store.tools.record_search import next_record

# Compat: the optional checksum of a whole record, the last property: name, digits, separator.
_RECORD_CRC_NAME: Final = b"__CRC32#\x01"
_RECORD_CRC_BYTES: Final = 20

_TOPICS_SHOWN_MAX: Final = 20

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
        self._on_progress = on_progress
        self._result = Verification(start=store.start, end=store.end, is_clean=store.state.is_clean)
        self._findings = self._result.findings
        self._delay_levels_ms = parse_delay_levels(
            StoreConfig().delay_levels if delay_levels is None else delay_levels
        )
        # Damaged ranges of the log, in its order.
        self._lost: list[tuple[int, int]] = []
        # Number of stand-ins for lost records.
        self._stand_ins = 0
        scope = Scope(
            log_start=store.start,
            log_end=store.end,
            required_until=store.entries_known_until,
            is_lost=self._is_lost,
        )
        self._queues = QueueAgreement(
            store.on_disk,
            self._findings,
            scope=scope,
            topics=_known_topics(store.root),
            deleted_topics=DeletedTopics(store.root / OWN_FOLDER),
            has_extensions=(store.root / EXTENSION_FOLDER).exists(),
        )
        state = store.state
        self._index = IndexAgreement(
            store.root / "index",
            self._findings,
            scope=scope,
            slots=index_slots,
            is_clean=state.is_clean,
            is_expected=state.written_by is Writer.ORBITMQ
            and state.progress is not None
            and state.progress.index_name > 0,
        )

    def run(self) -> Verification:
        for path in self._log.strange_files:
            self._findings.add(
                Finding(kind=FindingKind.STRANGE_FILE, text="not a file of the log", file=str(path))
            )
        self._check_start()
        for start, end in self._segments():
            self._verify_segment(start, end)
        keys = self._store.folder_keys()
        self._check_topics({topic for topic, _ in keys})
        self._queues.finish(keys)
        self._index.finish()
        self._note_rest()
        result = self._result
        result.queues = len(keys)
        result.entries = self._queues.entries
        result.keys = self._index.keys
        return result

    def _check_start(self) -> None:
        """Report files at the start of the log that our retention did not delete."""
        shape = read_shape(self._store.root / OWN_FOLDER)
        start = self._log.start
        if self._store.written_by is not Writer.ORBITMQ:
            return
        self._check_last_file()
        if shape is None:
            return
        if self._log.files and start > shape.log_start:
            self._findings.add(
                Finding(
                    kind=FindingKind.MISSING_LOG_FILE,
                    text=f"the log started at {shape.log_start} and starts at {start}: files from "
                    f"{file_name(shape.log_start)} to {file_name(start)} are missing",
                    file=str(self._missing_path(shape.log_start)),
                    offset=shape.log_start,
                )
            )

    def _check_topics(self, topics: set[str]) -> None:
        """Report that the table of topics is gone, and its copy with it."""
        file = self._store.root / "config" / "topics.json"
        if not topics or not file.parent.is_dir():
            return
        if not file.exists() and not file.with_name(file.name + ".bak").exists():
            shown = ", ".join(sorted(topics)[:_TOPICS_SHOWN_MAX])
            self._findings.add(
                Finding(
                    kind=FindingKind.MISSING_TOPICS,
                    text=f"it is missing, and so is its copy; settings of {len(topics)} topics are "
                    f"lost: {shown}",
                    file=str(file),
                )
            )

    def _check_last_file(self) -> None:
        """Report files at the end of the log that saved progress covers."""
        progress = self._store.state.progress
        end = self._log.room_end
        if progress is not None and progress.flushed > end:
            unfinished = self._log.unfinished
            missing = unfinished.path if unfinished is not None else self._missing_path(end)
            self._findings.add(
                Finding(
                    kind=FindingKind.MISSING_LOG_FILE,
                    text=f"the log was flushed up to {progress.flushed} and its whole files end at "
                    f"{end}",
                    file=str(missing),
                    offset=end,
                )
            )

    def _missing_path(self, offset: int) -> Path:
        return self._log.folders[0] / file_name(offset)

    def _segments(self) -> Iterator[tuple[PhysicalOffset, PhysicalOffset]]:
        """Ranges of the log without missing files."""
        end = self._store.end
        start = self._log.start
        position = start
        for file in self._log.files:
            if file.first_offset > position:
                yield start, position
                self._lose(position, min(file.first_offset, end))
                self._findings.add(
                    Finding(
                        kind=FindingKind.MISSING_LOG_FILE,
                        text=f"files from {file_name(position)} to {file.path.name} are missing",
                        file=str(file.path.parent / file_name(position)),
                        offset=position,
                    )
                )
                start = file.first_offset
            position = file.end_offset
            if position >= end:
                break
        yield start, min(position, end)

    def _verify_segment(self, start: PhysicalOffset, end: PhysicalOffset) -> None:
        position = start
        while position < end:
            try:
                for chunk in self._log.walk(
                    position,
                    end,
                    with_keys=True,
                    delay_levels_ms=self._delay_levels_ms,
                    on_damage=self._skip_damage,
                ):
                    self._verify_chunk(chunk)
            except RecordsDeletedError as error:
                self._findings.note(
                    f"retention deleted the log before offset {error.start} during verification"
                )
                position = PhysicalOffset(max(error.start, position + 1))
            else:
                return

    def _verify_chunk(self, chunk: WalkedChunk) -> None:
        found = chunk.found
        at = 0
        while at < found.position:
            places = locate_whole(chunk.content, at, found.position, chunk.offset + at)
            if isinstance(places, FieldPositions):
                reason = _record_crc_problem(chunk.content, places)
                size = places.end - at
            else:
                reason = f"{places.verdict.value}: {places.reason}"
                size = places.size
            if reason:
                self._add_bad_record(chunk, at, reason)
            elif is_stand_in(chunk.content, at):
                # Queues and index may still point to the lost records.
                self._lose(chunk.offset + at, chunk.offset + at + size)
                self._stand_ins += 1
            at += size
        self._result.records += found.records
        self._result.record_bytes += found.position
        for (topic, queue_id), runs in found.runs.items():
            for run in runs:
                self._queues.compare(topic.decode(errors="replace"), queue_id, run)
        self._index.compare(found.keys)
        done = chunk.offset + found.position - self._result.start
        self._on_progress(done, self._result.end - self._result.start)

    def _add_bad_record(self, chunk: WalkedChunk, at: int, reason: str) -> None:
        offset = chunk.offset + at
        file = self._log.file_at(offset)
        places = locate(chunk.content, at, chunk.found.position, check_body=False)
        assert isinstance(places, FieldPositions)
        topic = bytes(chunk.content[places.topic_at : places.topic_end])
        queue_id = int.from_bytes(chunk.content[at + 12 : at + 16], signed=True)
        number = int.from_bytes(chunk.content[at + 20 : at + 28], signed=True)
        self._findings.add(
            Finding(
                kind=FindingKind.BAD_RECORD,
                text=reason,
                file=str(file.path),
                position=offset - file.first_offset,
                offset=offset,
                topic=topic.decode(errors="replace"),
                queue_id=queue_id,
                first_number=number,
                last_number=number,
            )
        )

    # --- damage -------------------------------------------------------------------------------

    def _skip_damage(self, offset: PhysicalOffset, found: Found) -> PhysicalOffset:
        """Report bytes that are no record, and find the next record."""
        file = self._log.file_at(offset)
        end = self._store.end
        resume = PhysicalOffset(min(next_record(self._log, file, offset + 1), max(end, offset + 1)))
        self._lose(offset, resume)
        self._findings.add(
            Finding(
                kind=FindingKind.LOST_RECORDS,
                text=f"{resume - offset} bytes are not records; first: "
                + f"{found.verdict.value}: {found.reason}".removesuffix(": "),
                file=str(file.path),
                position=offset - file.first_offset,
                offset=offset,
            )
        )
        return resume

    def _lose(self, start: int, end: int) -> None:
        self._lost.append((start, end))

    def _is_lost(self, offset: int) -> bool:
        index = bisect.bisect_right(self._lost, (offset, 1 << 63)) - 1
        return index >= 0 and offset < self._lost[index][1]

    def _note_rest(self) -> None:
        if self._stand_ins:
            self._findings.note(
                f"{self._stand_ins} records replace bytes whose loss was accepted; those are kept "
                f"in {self._store.root / OWN_FOLDER / LOST_FOLDER}"
            )
        state = self._store.state
        if not state.is_clean:
            self._findings.note(
                "the store is open, or was not stopped cleanly: records after offset "
                f"{self._store.end} were not verified; opening it recovers them"
            )


def _record_crc_problem(content: bytes, places: FieldPositions) -> str:
    """Check the optional checksum of a whole record; empty if it is right or absent."""
    at = places.end - _RECORD_CRC_BYTES
    if at < places.properties_at or not content.startswith(_RECORD_CRC_NAME, at):
        return ""
    digits = content[at + len(_RECORD_CRC_NAME) : places.end - 1]
    crc = zlib.crc32(content[places.at : at]) & CRC_MASK
    # Compat: the digits are in reverse order.
    if not digits.isdigit() or int(digits[::-1]) != crc:
        return f"a record that does not match its own checksum: it is {crc}"
    return ""


def _known_topics(root: Path) -> frozenset[str] | None:
    """The broker's topics; None if unknown."""
    try:
        content = (root / "config" / "topics.json").read_bytes()
        table: Any = java_json.decode(content, dict[str, Any]).get("topicConfigTable")
    except (OSError, ProtocolError):
        return None
    return frozenset(table) if isinstance(table, dict) else None
