"""Is a record what it was when it was written? Checks beyond its body's checksum.

Only the body has a checksum. What else must be right follows from where the record lies: its
physical offset is its position, the queue that leads to it knows its topic, queue and size.
A page that a crash lost reads as zero bytes, so a record of which the last page is missing has
zero bytes in topic or properties, where `MessageStore` never lets any in.
"""

from __future__ import annotations

import struct
from typing import Final

from orbitmq.record.decode import Buffer, FieldPositions, Found, locate, locate_at
from orbitmq.record.layout import (
    BORN_HOST_AT,
    BORN_HOST_V6,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    SYSTEM_FLAG_AT,
)

_QUEUE_ID_AT: Final = 12
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
# Enough of a record to find its store time.
HEAD_BYTES: Final = BORN_HOST_AT + 20 + 8

# Fields in which a flipped bit is not noticed by the store: nothing else says what they were.
# The system flag's two bits for IPv6 hosts are noticed, since they move everything behind them. A
# changed tag or key in the properties shows as a message that a filter or query misses.
UNCHECKED_FIELDS: Final = (
    "user flag",
    "queue offset",
    "system flag",
    "born time",
    "born host",
    "store time",
    "store host",
    "reconsume times",
    "prepared transaction offset",
    "properties",
)
# The same for queues that are lost and built again from the damaged log: they believe the record.
UNCHECKED_WHEN_REBUILT: Final = (*UNCHECKED_FIELDS, "queue id", "topic")


def locate_whole(buffer: Buffer, at: int, end: int, physical_offset: int) -> FieldPositions | Found:
    """Find the record at `buffer[at:end]`, or say what lies there; for what may be torn."""
    return locate_at(buffer, at, end, physical_offset, check_body=True, check_texts=True)


def damage_of(
    record: bytes,
    physical_offset: int,
    *,
    topic: bytes | None,
    queue_id: int,
    check_body: bool = True,
) -> str:
    """Say what is wrong with a record that a queue entry leads to; empty when nothing is.

    A `topic` of None stands for a queue whose entries lead to records of other topics.
    """
    places = locate(record, 0, len(record), check_body=check_body)
    if isinstance(places, Found):
        return f"{places.verdict.value} {places.reason}".strip()
    if places.end != len(record):
        return f"it has {places.end} bytes; its queue says {len(record)}"
    (written_for,) = _LONG.unpack_from(record, PHYSICAL_OFFSET_AT)
    if written_for != physical_offset:
        return f"it was written for offset {written_for}"
    if topic is None:
        return ""
    if record[places.topic_at : places.topic_end] != topic:
        found = record[places.topic_at : places.topic_end].decode(errors="replace")
        return f"its topic is {found!r}"
    (found_queue_id,) = _INT.unpack_from(record, _QUEUE_ID_AT)
    return f"its queue is {found_queue_id}" if found_queue_id != queue_id else ""


def physical_offset_of(head: bytes) -> int:
    """The place that a record says it lies at."""
    return int(_LONG.unpack_from(head, PHYSICAL_OFFSET_AT)[0])


def queue_offset_of(head: bytes) -> int:
    """Read the queue offset out of the first `HEAD_BYTES` of a record."""
    return int(_LONG.unpack_from(head, QUEUE_OFFSET_AT)[0])


def store_ms_of(head: bytes) -> int:
    """Read the store time out of the first `HEAD_BYTES` of a record."""
    (system_flag,) = _INT.unpack_from(head, SYSTEM_FLAG_AT)
    (store_ms,) = _LONG.unpack_from(head, BORN_HOST_AT + (20 if system_flag & BORN_HOST_V6 else 8))
    return int(store_ms)
