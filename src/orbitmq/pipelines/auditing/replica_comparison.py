"""Whether a range of two logs has the same records.

Bytes are compared block by block; a task reads both, so no digests need to travel. Only where
blocks differ, records are looked at: what follows the last record of a file is not part of the log,
and an accepted loss puts stand-ins where the other log still has the messages.

Threads: one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from orbitmq.errors import RecordsDeletedError, StoreDamagedError, StoreError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.record.decode import FieldPositions, Found
from orbitmq.store.files.record_checks import locate_whole
from orbitmq.store.log.stand_ins import is_stand_in
from orbitmq.store.readonly.log_files import ReadOnlyLog
from orbitmq.store.tools.findings import Finding, FindingKind
from orbitmq.store.tools.range_verification import record_borders
from orbitmq.store.tools.record_search import next_record

_BLOCK_BYTES: Final = 1024 * 1024
_BLANK_HEAD_BYTES: Final = 8
_QUEUE: Final = struct.Struct(">iiq")
_QUEUE_AT: Final = 12


@dataclass(slots=True)
class Compared:
    """What a comparison found."""

    compared_bytes: int = 0
    # Records of one log that are stand-ins in the other.
    stand_ins: int = 0
    findings: list[Finding] = field(default_factory=list)


class ReplicaComparison:
    """Compares a log with that of a replica."""

    def __init__(self, first: ReadOnlyLog, replica: ReadOnlyLog) -> None:
        self._first = first
        self._replica = replica
        self._result = Compared()

    def compare(self, start: int, end: int, log_end: int) -> Compared:
        """Compare the records that start in a range within one file of the first log."""
        log = self._first
        if log.find_file(start) is None:
            # Missing files are reported where the log is verified.
            return self._result
        start, end = record_borders(log, start, end, log_end)
        differing = [block for block in self._blocks(start, end) if not self._is_same(*block)]
        if differing:
            self._examine(start, end, log_end, differing)
        return self._result

    def _blocks(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        while start < end:
            file = self._replica.find_file(start)
            if file is None:
                # As above, or retention deleted it.
                following = (one.first_offset for one in self._replica.files)
                start = next((offset for offset in following if offset > start), end)
                continue
            block_end = min(start + _BLOCK_BYTES, end, file.end_offset)
            yield start, block_end
            start = block_end

    def _is_same(self, start: int, end: int) -> bool:
        try:
            same = self._first.read(start, end - start) == self._replica.read(start, end - start)
        except RecordsDeletedError:
            return True
        self._result.compared_bytes += end - start
        return same

    # --- where blocks differ ------------------------------------------------------------------

    def _examine(
        self, start: int, end: int, log_end: int, differing: list[tuple[int, int]]
    ) -> None:
        """Find the first record that differs."""
        blocks = iter(differing)
        block = next(blocks)
        for offset, record_end in self._records(start, end, log_end):
            while block[1] <= offset:
                following = next(blocks, None)
                if following is None:
                    return
                block = following
            if record_end > block[0] and self._differs(offset, record_end):
                count = sum(1 for one in differing if one[1] > offset)
                self._result.findings.append(self._finding(offset, record_end, count))
                return

    def _records(self, start: int, end: int, log_end: int) -> Iterator[tuple[int, int]]:
        """Start and end of each record of the first log, of damage, and of a file's blank head."""
        log = self._first
        file = log.file_at(start)
        damaged: list[tuple[int, int]] = []

        def skip(offset: PhysicalOffset, _: Found) -> PhysicalOffset:
            resume = min(next_record(log, file, offset + 1), max(end, offset + 1))
            damaged.append((offset, resume))
            return PhysicalOffset(resume)

        position = start
        for chunk in log.walk(start, end, limit=log_end, on_damage=skip):
            yield from damaged
            damaged.clear()
            at = 0
            while at < chunk.found.position:
                size = int.from_bytes(chunk.content[at : at + 4])
                position = chunk.offset + at + size
                yield chunk.offset + at, position
                at += size
        yield from damaged
        if not damaged and position + _BLANK_HEAD_BYTES <= min(end, file.end_offset):
            yield position, position + _BLANK_HEAD_BYTES

    def _differs(self, offset: int, end: int) -> bool:
        ours = self._first.read(offset, end - offset)
        theirs = self._theirs(offset, end)
        if theirs is None or ours == theirs:
            return False
        if _is_stand_in(ours) or _is_stand_in(theirs):
            self._result.stand_ins += 1
            return False
        return True

    def _theirs(self, offset: int, end: int) -> bytes | None:
        """The replica's bytes of a range; None if its file is missing."""
        try:
            file = self._replica.file_at(offset)
            return self._replica.read(offset, min(end, file.end_offset) - offset)
        except (RecordsDeletedError, StoreDamagedError):
            return None

    def _finding(self, offset: int, end: int, count: int) -> Finding:
        ours = self._first.read(offset, end - offset)
        theirs = self._theirs(offset, end) or b""
        file = self._replica.file_at(offset)
        at = next(
            (n for n, pair in enumerate(zip(ours, theirs, strict=False)) if len({*pair}) > 1), 0
        )
        found_ours, found_theirs = _found(ours, offset), _found(theirs, offset)
        if isinstance(found_ours, Found):
            text = f"it is damaged in {self._first.file_at(offset).path}, and differs here"
        elif isinstance(found_theirs, Found) and not _is_record(self._replica, offset):
            text = f"it is damaged here, and differs from {self._first.file_at(offset).path}"
        else:
            text = f"both logs are whole and go on differently: {self._first.file_at(offset).path}"
        topic, queue_id, number = "", -1, -1
        for record, found in ((ours, found_ours), (theirs, found_theirs)):
            if isinstance(found, FieldPositions):
                topic = record[found.topic_at : found.topic_end].decode(errors="replace")
                queue_id, _, number = _QUEUE.unpack_from(record, _QUEUE_AT)
                break
        return Finding(
            kind=FindingKind.REPLICA_DIFFERS,
            text=f"the record at offset {offset} differs from byte {at} on, the first that does; "
            + text,
            file=str(file.path),
            position=offset + at - file.first_offset,
            offset=offset,
            topic=topic,
            queue_id=queue_id,
            first_number=number,
            last_number=number,
            count=count,
        )


def _is_stand_in(record: bytes) -> bool:
    return len(record) > _BLANK_HEAD_BYTES and is_stand_in(record)


def _found(record: bytes, offset: int) -> FieldPositions | Found:
    return locate_whole(record, 0, len(record), offset)


def _is_record(log: ReadOnlyLog, offset: int) -> bool:
    """Whether a whole record, of whatever size, starts at an offset."""
    try:
        return log.record_at(offset, log.room_end) is not None
    except StoreError:
        return False
