"""Checks that a record is still as it was written, beyond its body's checksum.

Only the body has a checksum. Other fields are checked against their surroundings: the physical
offset against the record's position; topic, queue and size against the queue that points to it.
A page that a crash lost reads as zero bytes. If it is a record's last page, zero bytes appear in
topic or properties, where `MessageStore` never allows any.
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

# Fields where the store does not notice a flipped bit, since nothing else says what they were.
# It does notice the two bits of the system flag for IPv6 hosts, which move all later fields. A
# changed tag or key in the properties makes a filter or query miss the message.
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
# The same for lost queues that are rebuilt from the damaged log: they trust the record.
UNCHECKED_WHEN_REBUILT: Final = (*UNCHECKED_FIELDS, "queue id", "topic")


def locate_whole(buffer: Buffer, at: int, end: int, physical_offset: int) -> FieldPositions | Found:
    """Find the record at `buffer[at:end]`, which may be torn, or say what is there."""
    return locate_at(buffer, at, end, physical_offset, check_body=True, check_texts=True)


def damage_of(
    record: bytes,
    physical_offset: int,
    *,
    topic: bytes | None,
    queue_id: int,
    check_body: bool = True,
) -> str:
    """Say what is wrong with a record that a queue entry points to; empty if nothing is.

    A `topic` of None means a queue whose entries point to records of other topics.
    """
    fields = locate(record, 0, len(record), check_body=check_body)
    if isinstance(fields, Found):
        return str(fields)
    if fields.end != len(record):
        return f"it has {fields.end} bytes; its queue says {len(record)}"
    (written_for,) = _LONG.unpack_from(record, PHYSICAL_OFFSET_AT)
    if written_for != physical_offset:
        return f"it was written for offset {written_for}"
    if topic is None:
        return ""
    if record[fields.topic_at : fields.topic_end] != topic:
        found = record[fields.topic_at : fields.topic_end].decode(errors="replace")
        return f"its topic is {found!r}"
    (found_queue_id,) = _INT.unpack_from(record, _QUEUE_ID_AT)
    return f"its queue is {found_queue_id}" if found_queue_id != queue_id else ""


def physical_offset_of(head: bytes) -> int:
    """Read the physical offset that a record was written for."""
    return int(_LONG.unpack_from(head, PHYSICAL_OFFSET_AT)[0])


def queue_offset_of(head: bytes) -> int:
    """Read the queue offset from the first `HEAD_BYTES` of a record."""
    return int(_LONG.unpack_from(head, QUEUE_OFFSET_AT)[0])


def is_head_of(head: bytes, physical_offset: int, queue_id: int, queue_offset: int) -> bool:
    """Whether the first `HEAD_BYTES` of a record are those of a message of a queue."""
    return (
        _INT.unpack_from(head, _QUEUE_ID_AT)[0] == queue_id
        and queue_offset_of(head) == queue_offset
        and physical_offset_of(head) == physical_offset
    )


def store_ms_of(head: bytes) -> int:
    """Read the store time from the first `HEAD_BYTES` of a record."""
    (system_flag,) = _INT.unpack_from(head, SYSTEM_FLAG_AT)
    (store_ms,) = _LONG.unpack_from(head, BORN_HOST_AT + (20 if system_flag & BORN_HOST_V6 else 8))
    return int(store_ms)
