"""Damage in the log: where it starts, and where the next good record is.

Adjacent damaged ranges count as one, also across files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.errors import StoreError
from orbitmq.record.decode import FieldPositions, Found
from orbitmq.store.files.record_checks import locate_whole
from orbitmq.store.readonly.log_files import CHUNK_BYTES
from orbitmq.store.tools.record_search import next_record

if TYPE_CHECKING:
    from orbitmq.model.queues import PhysicalOffset
    from orbitmq.store.readonly.log_files import LogFile, ReadOnlyLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A damaged range of the log."""

    start: int
    end: int
    # What was found at its start, in words.
    reason: str
    # The offset after its last byte that is not zero.
    written_end: int
    # Whether no good record follows.
    is_tail: bool
    # The store time of the last record before it, or of the first after it; 0 if there is neither.
    store_ms: int


def find_damage(log: ReadOnlyLog, position: int) -> Damage:
    """Examine the damage that starts at a position.

    If none does, raises a StoreError that lists where damage starts.
    """
    limit = log.room_end
    file = log.find_file(position)
    if file is None:
        raise StoreError(
            f"offset {position} is outside the log, which spans {log.start} to {limit}",
            hint="orbitmq store verify lists where damage starts",
        )
    scan = _Scan(log, file, limit)
    index = next((n for n, found in enumerate(scan.ranges) if found[0] == position), None)
    if index is None:
        known = ", ".join(str(start) for start, _, _ in scan.ranges)
        raise StoreError(
            f"no damage starts at offset {position}",
            hint=f"damage in {file.path} starts at: {known}" if known else f"{file.path} is whole",
        )
    _, end, reason = scan.ranges[index]
    for start, next_end, _ in scan.ranges[index + 1 :]:
        if start == end:
            end = next_end
    while end == file.end_offset < limit:
        file = log.file_at(end)
        ranges = _Scan(log, file, limit).ranges
        if not ranges or ranges[0][0] != end:
            break
        for start, next_end, _ in ranges:
            if start == end:
                end = next_end
    is_tail = end >= limit
    store_ms = _store_ms_before(log, position)
    if not store_ms and not is_tail:
        following = log.record_at(end, limit)
        store_ms = following[1] if following is not None else 0
    return Damage(
        start=position,
        end=end,
        written_end=_written_end(log, position, end),
        reason=reason,
        is_tail=is_tail,
        store_ms=store_ms,
    )


def _written_end(log: ReadOnlyLog, start: int, end: int) -> int:
    """The offset after the last byte of a range that is not zero."""
    while start < end:
        file_start = log.file_at(end - 1).first_offset
        low = max(start, file_start, end - CHUNK_BYTES)
        content = log.read(low, end - low).rstrip(b"\0")
        if content:
            return low + len(content)
        end = low
    return start


def _store_ms_before(log: ReadOnlyLog, position: int) -> int:
    """The store time of the last good record before a position."""
    file: LogFile | None = log.file_at(position)
    while file is not None:
        last = _Scan(log, file, position).last_good
        if last is not None:
            return log.store_ms(last)
        file = log.find_file(file.first_offset - 1)
    return 0


class _Scan:
    """A walk over one file, up to a limit."""

    def __init__(self, log: ReadOnlyLog, file: LogFile, limit: int) -> None:
        self._log = log
        self._file = file
        self._limit = min(limit, file.end_offset)
        # Start, end and reason of each damage.
        self.ranges: list[tuple[int, int, str]] = []
        self.last_good: int | None = None
        self._walk()

    def _walk(self) -> None:
        for chunk in self._log.walk(
            self._file.first_offset, self._limit, on_damage=self._on_damage
        ):
            at = 0
            while at < chunk.found.position:
                offset = chunk.offset + at
                places = locate_whole(chunk.content, at, chunk.found.position, offset)
                if isinstance(places, FieldPositions):
                    self.last_good = offset
                    at = places.end
                else:
                    self._add(offset, offset + places.size, places)
                    at += places.size

    def _on_damage(self, offset: PhysicalOffset, found: Found) -> PhysicalOffset:
        end = min(next_record(self._log, self._file, offset + 1), self._limit)
        self._add(offset, end, found)
        return type(offset)(end)

    def _add(self, start: int, end: int, found: Found) -> None:
        self.ranges.append(
            (start, end, f"{found.verdict.value}: {found.reason}".removesuffix(": "))
        )
