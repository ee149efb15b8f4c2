"""Stand-ins: records that replace lost ones and that readers skip.

When the loss of damaged bytes is accepted, records of the same size replace them, so that every
reader of RocketMQ's format finds the log whole:

    for a lost message     its topic, queue and number, so that its queue keeps its numbers, even
                           when it is rebuilt
    for anything else      a record of no queue: a rolled back transaction of topic ORBITMQ_LOST

Both have a body of zero bytes, and field values that no broker writes: user flag LOST, born at
time 0, born and stored on host 0.0.0.0:0.

Compat: OrbitMQ never delivers them. A RocketMQ broker does deliver the first kind to consumers
that subscribe without a tag.
"""

from __future__ import annotations

from typing import Final

from orbitmq.record.encode import encode_record
from orbitmq.record.layout import FIXED_BYTES, LOST_FLAG, ROLLED_BACK, TOPIC_BYTES_MAX_V1

# In the store's own folder: the original bytes whose loss was accepted.
LOST_FOLDER: Final = "lost"
LOST_TOPIC: Final = b"ORBITMQ_LOST"
# The smallest stand-in of no queue; its topic is truncated to fit.
STAND_IN_BYTES_MIN: Final = FIXED_BYTES + 1

_FLAG: Final = LOST_FLAG.to_bytes(4)
_FLAG_AT: Final = 16
_BORN_AT: Final = 40
_BORN: Final = bytes(16)
_STORE_HOST_AT: Final = 64
_NOWHERE: Final = bytes(8)
# Compat: RocketMQ's own services read these queues, and would retry forever to deliver a message
# without a destination.
_PROPERTIES: Final = {
    b"SCHEDULE_TOPIC_XXXX": b"REAL_TOPIC\x01ORBITMQ_LOST\x02REAL_QID\x010\x02",
    b"rmq_sys_wheel_timer": (
        b"TIMER_OUT_MS\x010\x02REAL_TOPIC\x01ORBITMQ_LOST\x02REAL_QID\x010\x02"
    ),
}


def is_stand_in(record: bytes | memoryview, at: int = 0) -> bool:
    """Whether the record at `record[at:]` is a stand-in."""
    return (
        record[at + _FLAG_AT : at + _FLAG_AT + len(_FLAG)] == _FLAG
        and record[at + _BORN_AT : at + _BORN_AT + len(_BORN)] == _BORN
        and record[at + _STORE_HOST_AT : at + _STORE_HOST_AT + len(_NOWHERE)] == _NOWHERE
    )


def message_bytes_min(topic: bytes) -> int:
    """Size of the smallest stand-in for a message of a topic."""
    return FIXED_BYTES + len(topic) + (len(topic) > TOPIC_BYTES_MAX_V1)


def stand_in_for_message(
    size: int,
    *,
    topic: bytes,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    store_ms: int,
) -> bytes:
    """Make the stand-in for a message, of exactly `size` bytes."""
    room = size - message_bytes_min(topic)
    properties = _PROPERTIES.get(topic, b"")
    if len(properties) > room:
        properties = b""
    return _encode(
        topic,
        bytes(room - len(properties)),
        properties,
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        system_flag=0,
        store_ms=store_ms,
    )


def stand_in_for_bytes(size: int, *, physical_offset: int, store_ms: int) -> bytes:
    """Make a stand-in that is in no queue, of exactly `size` bytes."""
    topic = LOST_TOPIC[: size - FIXED_BYTES]
    return _encode(
        topic,
        bytes(size - FIXED_BYTES - len(topic)),
        b"",
        queue_id=0,
        queue_offset=0,
        physical_offset=physical_offset,
        system_flag=ROLLED_BACK,
        store_ms=store_ms,
    )


def _encode(
    topic: bytes,
    body: bytes,
    properties: bytes,
    *,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    system_flag: int,
    store_ms: int,
) -> bytes:
    record = bytearray(message_bytes_min(topic) + len(body) + len(properties))
    encode_record(
        record,
        0,
        topic,
        queue_id,
        queue_offset,
        physical_offset,
        body,
        properties,
        LOST_FLAG,
        system_flag,
        0,
        _NOWHERE,
        store_ms,
        _NOWHERE,
        0,
        0,
    )
    return bytes(record)
