"""Damage in the log: where it begins, and where the next good record lies.

What begins at one byte and is followed at once by more of it counts as one, also across files.
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
    # What lies at its start, in words.
    reason: str
    # Where its last byte ends that is not zero.
    written_end: int
    # Whether nothing good lies behind it.
    is_tail: bool
    # The store time of the last record before it, or of the first behind; 0 when there is none.
    store_ms: int


def find_damage(log: ReadOnlyLog, position: int) -> Damage:
    """Examine the damage that begins at a position.

    Raises StoreError when none begins there, which names those that do.
    """
    limit = log.room_end
    file = log.find_file(position)
    if file is None:
        raise StoreError(
            f"offset {position} is outside of the log, which goes from {log.start} to {limit}",
            hint="orbitmq store verify names where damage begins",
        )
    scan = _Scan(log, file, limit)
    place = next((n for n, found in enumerate(scan.ranges) if found[0] == position), None)
    if place is None:
        known = ", ".join(str(start) for start, _, _ in scan.ranges) or "none"
        raise StoreError(
            f"no damage begins at offset {position}",
            hint=f"damage in {file.path} begins at: {known}",
        )
    _, end, reason = scan.ranges[place]
    for start, further, _ in scan.ranges[place + 1 :]:
        if start == end:
            end = further
    while end == file.end_offset < limit:
        file = log.file_at(end)
        ranges = _Scan(log, file, limit).ranges
        if not ranges or ranges[0][0] != end:
            break
        for start, further, _ in ranges:
            if start == end:
                end = further
    is_tail = end >= limit
    store_ms = _store_ms_before(log, position)
    if not store_ms and not is_tail:
        behind = log.record_at(end, limit)
        store_ms = behind[1] if behind is not None else 0
    return Damage(
        start=position,
        end=end,
        written_end=_written_end(log, position, end),
        reason=reason,
        is_tail=is_tail,
        store_ms=store_ms,
    )


def _written_end(log: ReadOnlyLog, start: int, end: int) -> int:
    """Where the last byte of a range ends that is not zero."""
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
        go_on = min(next_record(self._log, self._file, offset + 1), self._limit)
        self._add(offset, go_on, found)
        return type(offset)(go_on)

    def _add(self, start: int, end: int, found: Found) -> None:
        self.ranges.append((start, end, f"{found.verdict.value} {found.reason}".strip()))
