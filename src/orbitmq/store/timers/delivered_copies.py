"""Finds delivered copies of timer messages in the commit log.

A copy has the id of its timer message in the field for the prepared offset of a transaction, where
other messages have 0 or the offset of a half message. The id is one more than the physical offset,
where no record can begin, so it is never 0 nor the offset of a half message.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from orbitmq.record.decode import Found, Verdict, locate

if TYPE_CHECKING:
    from orbitmq.store.log.commit_log import CommitLog

_PREPARED: Final = struct.Struct(">q")
# After the store host come reconsume times, and then the prepared offset.
_PREPARED_AT: Final = 4


def timer_id(physical_offset: int) -> int:
    """The id of a timer message, for its copy."""
    return physical_offset + 1


def delivered_since(log: CommitLog, position: int) -> set[int]:
    """The physical offsets of the timer messages that have a copy from a position on."""
    delivered: set[int] = set()
    position = max(position, log.start)
    while position < log.end and (file := log.file_at(position)) is not None:
        end = min(log.end - file.first_offset, file.file_bytes)
        at = position - file.first_offset
        while at < end:
            fields = locate(file.view, at, end, check_body=False)
            if isinstance(fields, Found):
                if fields.verdict is Verdict.BAD_BODY and fields.size:
                    at += fields.size
                    continue
                break
            (prepared,) = _PREPARED.unpack_from(file.view, fields.tail_at + _PREPARED_AT)
            if prepared > 0:
                delivered.add(prepared - 1)
            at = fields.end
        position = file.end_offset
    return delivered
