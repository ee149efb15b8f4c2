"""Finding the next record after damage in the log.

A record counts if the offset that it contains is where it was found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from orbitmq.record.decode import Verdict, examine
from orbitmq.record.layout import BLANK_BYTES_MIN, MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from orbitmq.store.readonly.log_files import CHUNK_BYTES, physical_offset_in

if TYPE_CHECKING:
    from orbitmq.store.readonly.log_files import LogFile, ReadOnlyLog

_MAGICS: Final = tuple(magic.to_bytes(4) for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK))
# Enough of a record to contain its own offset.
_HEAD_BYTES: Final = 64


def next_record(log: ReadOnlyLog, file: LogFile, start: int) -> int:
    """The next position of a certain record, or of the file's blank end; else the file's end."""
    position = start
    while position < file.end_offset:
        count = min(CHUNK_BYTES, file.end_offset - position)
        content = log.read(position, count)
        for at in _magic_positions(content):
            offset = position + at - 4
            if offset >= start and _is_certain(log, file, offset):
                return offset
        if position + count >= file.end_offset:
            break
        # Chunks overlap, so a head that crosses the end of one is whole in the next.
        position += count - _HEAD_BYTES
    return file.end_offset


def _is_certain(log: ReadOnlyLog, file: LogFile, offset: int) -> bool:
    left = file.end_offset - offset
    head = log.read(offset, min(_HEAD_BYTES, left))
    size = int.from_bytes(head[:4])
    if int.from_bytes(head[4:8]) == MAGIC_BLANK:
        return size == left >= BLANK_BYTES_MIN
    if len(head) < _HEAD_BYTES or size > left or physical_offset_in(head, 0) != offset:
        return False
    record = log.read(offset, size)
    return examine(record, 0, size, check_body=False).verdict is Verdict.RECORD


def _magic_positions(content: bytes) -> Iterator[int]:
    """Positions of magics that have room for a size before them, in order."""
    positions: list[int] = []
    for magic in _MAGICS:
        at = content.find(magic, 4)
        while at >= 0:
            positions.append(at)
            at = content.find(magic, at + 1)
    return iter(sorted(positions))
