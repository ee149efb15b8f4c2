"""Stand-ins for lost records: whole, of an exact size, and unlike all others."""

from __future__ import annotations

import pytest

from orbitmq.record.codec import walk
from orbitmq.record.decode import FieldPositions, decode_record
from orbitmq.store.files.record_checks import locate_whole
from orbitmq.store.log.stand_ins import (
    LOST_TOPIC,
    STAND_IN_BYTES_MIN,
    is_stand_in,
    message_bytes_min,
    stand_in_for_bytes,
    stand_in_for_message,
)
from tests.unit.store.stores import message


def _walk(record: bytes) -> dict[tuple[bytes, int], int]:
    found = walk(record, 0, len(record), 7, check_body=True, delay_levels_ms=(), with_keys=True)
    assert found.position == len(record)
    assert not found.keys
    return {key: runs[0].first for key, runs in found.runs.items()}


@pytest.mark.parametrize("size", [STAND_IN_BYTES_MIN, 95, 102, 103, 104, 5000])
def test_bytes_are_replaced_by_a_whole_record_of_no_queue(size: int) -> None:
    record = stand_in_for_bytes(size, physical_offset=7, store_ms=5)

    assert len(record) == size
    assert isinstance(locate_whole(record, 0, size, 7), FieldPositions)
    assert is_stand_in(record)
    assert _walk(record) == {}
    found = decode_record(record)
    assert LOST_TOPIC.decode().startswith(found.topic)
    assert (found.physical_offset, found.store_ms) == (7, 5)


@pytest.mark.parametrize("topic", [b"t", b"orders", b"t" * 127, b"%RETRY%" + b"g" * 200])
@pytest.mark.parametrize("more_bytes", [0, 1, 1000])
def test_a_message_is_replaced_by_one_of_its_queue_and_number(
    topic: bytes, more_bytes: int
) -> None:
    size = message_bytes_min(topic) + more_bytes
    record = stand_in_for_message(
        size, topic=topic, queue_id=3, queue_offset=12, physical_offset=7, store_ms=5
    )

    assert len(record) == size
    assert isinstance(locate_whole(record, 0, size, 7), FieldPositions)
    assert is_stand_in(b"before" + record, 6)
    assert _walk(record) == {(topic, 3): 12}


@pytest.mark.parametrize("topic", [b"SCHEDULE_TOPIC_XXXX", b"rmq_sys_wheel_timer"])
def test_services_of_a_broker_find_a_destination_in_it(topic: bytes) -> None:
    def properties(size: int) -> dict[str, str]:
        record = stand_in_for_message(
            size, topic=topic, queue_id=0, queue_offset=0, physical_offset=7, store_ms=5
        )
        assert isinstance(locate_whole(record, 0, size, 7), FieldPositions)
        return decode_record(record).properties

    assert properties(300)["REAL_TOPIC"] == "ORBITMQ_LOST"
    assert properties(message_bytes_min(topic)) == {}


def test_a_message_is_no_stand_in_whatever_its_flag() -> None:
    draft = message(b"body", flag=int.from_bytes(b"LOST"))

    assert draft.flag == 0x4C4F5354
    record = bytearray(stand_in_for_bytes(200, physical_offset=0, store_ms=1))
    assert is_stand_in(bytes(record))
    record[71] = 1  # the port of the broker that stored it
    assert not is_stand_in(bytes(record))
