"""A pass over records of a log, with queues and index compared alongside.

Damage is skipped: the pass resumes at the next record (see `record_search`).

Threads: one.
"""

from __future__ import annotations

import bisect
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from orbitmq.errors import RecordsDeletedError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.record.decode import FieldPositions, Found, locate
from orbitmq.record.layout import CRC_MASK
from orbitmq.store.files.record_checks import locate_whole
from orbitmq.store.log.stand_ins import is_stand_in
from orbitmq.store.tools.findings import Finding, FindingKind, Findings
from orbitmq.store.tools.record_search import next_record

if TYPE_CHECKING:
    from orbitmq.store.readonly.log_files import ReadOnlyLog, WalkedChunk
    from orbitmq.store.tools.index_agreement import IndexAgreement
    from orbitmq.store.tools.queue_agreement import QueueAgreement

# Compat: the optional checksum of a whole record, the last property: name, digits, separator.
_RECORD_CRC_NAME: Final = b"__CRC32#\x01"
_RECORD_CRC_BYTES: Final = 20


class LostRanges:
    """Damaged ranges of the log, in its order."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def add(self, start: int, end: int) -> None:
        """Note that the bytes of a range are lost."""
        self._ranges.append((start, end))

    def has(self, offset: int) -> bool:
        """Whether a physical offset is in one of them."""
        index = bisect.bisect_right(self._ranges, (offset, 1 << 63)) - 1
        return index >= 0 and offset < self._ranges[index][1]


class LogPass:
    """Verifies records, and gives queues and index what is made of each."""

    def __init__(
        self,
        log: ReadOnlyLog,
        findings: Findings,
        *,
        end: int,
        lost: LostRanges,
        delay_levels_ms: tuple[int, ...],
        on_position: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`end` is where readers stop; `on_position` is told how far the pass is."""
        self._log = log
        self._findings = findings
        self._end = end
        self._lost = lost
        self._delay_levels_ms = delay_levels_ms
        self._on_position = on_position
        self.records = 0
        self.record_bytes = 0
        # Number of stand-ins for lost records.
        self.stand_ins = 0

    def run(self, start: int, end: int, queues: QueueAgreement, index: IndexAgreement) -> None:
        """Verify the records from `start`, where one begins, to `end`; no file between is missing."""
        position = PhysicalOffset(start)
        while position < end:
            try:
                for chunk in self._log.walk(
                    position,
                    end,
                    limit=self._end,
                    with_keys=True,
                    delay_levels_ms=self._delay_levels_ms,
                    on_damage=self._skip_damage,
                ):
                    self._verify_chunk(chunk)
                    for (topic, queue_id), runs in chunk.found.runs.items():
                        for run in runs:
                            queues.compare(topic.decode(errors="replace"), queue_id, run)
                    index.compare(chunk.found.keys)
                    self._on_position(chunk.offset + chunk.found.position)
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
                self._lost.add(chunk.offset + at, chunk.offset + at + size)
                self.stand_ins += 1
            at += size
        self.records += found.records
        self.record_bytes += found.position

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

    def _skip_damage(self, offset: PhysicalOffset, found: Found) -> PhysicalOffset:
        """Report bytes that are no record, and find the next record."""
        file = self._log.file_at(offset)
        end = self._end
        resume = PhysicalOffset(min(next_record(self._log, file, offset + 1), max(end, offset + 1)))
        self._lost.add(offset, resume)
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
