"""Records of a packed batch."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.errors import MessageError
from orbitmq.record.batch import BatchedMessage, encode_batch
from orbitmq.record.decode import decode_record
from orbitmq.record.encode import encode_batch_records
from orbitmq.record.hosts import encode_host
from orbitmq.record.layout import BORN_HOST_V6, STORE_HOST_V6, record_bytes
from orbitmq.record.message_id import encode_message_id

HOST_V4, HOST_V6 = encode_host("10.0.0.1", 10911), encode_host("2001:db8::7", 10911)
BROKER_PROPERTIES = b"CLUSTER\x01c\x02"
MESSAGES = [
    BatchedMessage(-7, b"one", b"UNIQ_KEY\x01A1\x02TAGS\x01a\x02"),
    BatchedMessage(0, b"", b""),
    BatchedMessage(2**31 - 1, b"x" * 300, b"KEYS\x01k1 k2\x02UNIQ_KEY\x01A3"),
]


def arguments(messages: list[BatchedMessage], **changes: Any) -> dict[str, Any]:
    """The arguments that all records of a batch share, and their total size."""
    named: dict[str, Any] = {
        "broker_properties": BROKER_PROPERTIES,
        "topic": b"orders",
        "queue_id": 3,
        "queue_offset": 70,
        "physical_offset": 2**33,
        "system_flag": 0,
        "born_ms": 1_700_000_000_000,
        "born_host": HOST_V4,
        "store_ms": 1_700_000_000_005,
        "store_host": HOST_V4,
        "reconsume_times": 2,
    } | changes
    sizes = [
        record_bytes(
            body_bytes=len(body),
            topic_bytes=len(named["topic"]),
            properties_bytes=len(properties)
            + (not properties.endswith(b"\x02"))
            + len(named["broker_properties"]),
            system_flag=named["system_flag"],
        )
        for _, body, properties in messages
    ]
    packed = encode_batch(messages)
    return {
        "records_bytes": sum(sizes),
        "messages": b"before" + packed + b"behind",
        "start": 6,
        "end": 6 + len(packed),
    } | named  # fmt: skip


@pytest.mark.parametrize(
    ("system_flag", "born_host", "store_host"),
    [
        (0, HOST_V4, HOST_V4),
        (BORN_HOST_V6, HOST_V6, HOST_V4),
        (BORN_HOST_V6 | STORE_HOST_V6, HOST_V6, HOST_V6),
    ],
)
@pytest.mark.parametrize("topic", [b"orders", b"t" * 200])
def test_each_message_becomes_a_record_with_the_broker_properties_after_its_own(
    system_flag: int, born_host: bytes, store_host: bytes, topic: bytes
) -> None:
    named = arguments(
        MESSAGES,
        system_flag=system_flag,
        born_host=born_host,
        store_host=store_host,
        topic=topic,
    )
    room = bytearray(9 + named["records_bytes"] + 5)

    ids = encode_batch_records(room, 9, **named)

    at = 9
    for number, (flag, body, properties) in enumerate(MESSAGES):
        size = int.from_bytes(room[at : at + 4])
        found = decode_record(bytes(room[at : at + size]))
        ended = properties if properties.endswith(b"\x02") else properties + b"\x02"
        assert (found.flag, found.body) == (flag, body)
        assert found.properties_bytes == ended + BROKER_PROPERTIES
        assert (found.topic, found.queue_id) == (topic.decode(), 3)
        assert found.queue_offset == 70 + number
        assert found.physical_offset == 2**33 + at - 9
        assert (found.born_ms, found.born_host_bytes) == (1_700_000_000_000, born_host)
        assert (found.store_ms, found.store_host_bytes) == (1_700_000_000_005, store_host)
        assert (found.system_flag, found.reconsume_times) == (system_flag, 2)
        assert ids.split(b",")[number].decode() == encode_message_id(
            store_host, found.physical_offset
        )
        at += size
    assert at == 9 + named["records_bytes"]
    assert not any(room[:9])
    assert not any(room[at:])


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"records_bytes": 1000}, ValueError),
        ({"records_bytes": 100}, ValueError),
        ({"records_bytes": 0}, MessageError),
        ({"physical_offset": -1}, MessageError),
        ({"physical_offset": 2**63 - 5}, MessageError),
        ({"start": 7}, ValueError),
        ({"start": -1}, ValueError),
        ({"end": 20}, ValueError),
        ({"end": 6}, ValueError),
        ({"queue_id": 2**31}, MessageError),
        ({"queue_offset": 2**63}, MessageError),
        ({"store_ms": -(2**63) - 1}, MessageError),
        ({"born_host": HOST_V6}, MessageError),
        ({"topic": b"t" * 256}, MessageError),
    ],
)
def test_what_does_not_fit_leaves_nothing(changes: dict[str, Any], error: type[Exception]) -> None:
    named = arguments(MESSAGES, **changes)
    room = bytearray(4000)

    with pytest.raises(error):
        encode_batch_records(room, 0, **named)

    assert not any(room)


def test_properties_too_long_with_the_broker_properties_leave_nothing() -> None:
    named = arguments([*MESSAGES, BatchedMessage(0, b"m", b"n\x01" + b"v" * 32_760)])
    room = bytearray(named["records_bytes"])

    with pytest.raises(ValueError, match="do not fill"):
        encode_batch_records(room, 0, **named)

    assert not any(room)


@pytest.mark.parametrize("at", [-1, 1])
def test_a_position_outside_the_buffer_is_refused(at: int) -> None:
    named = arguments(MESSAGES)
    room = bytearray(named["records_bytes"])

    with pytest.raises(ValueError, match="do not fit"):
        encode_batch_records(room, at, **named)
