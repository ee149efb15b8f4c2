"""Checks of a record beyond its body's checksum."""

from __future__ import annotations

from orbitmq.record.decode import Found, Verdict
from orbitmq.record.encode import encode_record
from orbitmq.record.hosts import encode_host
from orbitmq.store.files.record_checks import (
    HEAD_BYTES,
    damage_of,
    locate_whole,
    queue_offset_of,
    store_ms_of,
)

V4, V6 = encode_host("10.0.0.1", 1), encode_host("::1", 1)


def _record(
    physical_offset: int = 500,
    *,
    topic: bytes = b"orders",
    properties: bytes = b"a\x01b\x02",
    born_host: bytes = V4,
) -> bytes:
    buffer = bytearray(1000)
    flag = 0x10 if born_host == V6 else 0
    size = encode_record(
        buffer, 0, topic, 3, 7, physical_offset, b"body", properties, 0, flag, 1, born_host, 12345,
        V4, 0, 0,
    )  # fmt: skip
    return bytes(buffer[:size])


def _verdict(found: object) -> Verdict | None:
    return found.verdict if isinstance(found, Found) else None


def test_a_whole_record_is_located() -> None:
    record = _record()

    assert _verdict(locate_whole(record, 0, len(record), 500)) is None


def test_a_record_at_another_offset_is_broken() -> None:
    record = _record()

    assert _verdict(locate_whole(record, 0, len(record), 501)) is Verdict.BROKEN


def test_a_record_that_lost_a_page_is_broken() -> None:
    record = _record(properties=b"a\x01" + b"x" * 500 + b"\x02")

    for lost_from in range(len(record) - 490, len(record)):
        torn = record[:lost_from].ljust(len(record), b"\0")
        assert _verdict(locate_whole(torn, 0, len(record), 500)) is Verdict.BROKEN


def test_a_record_without_a_topic_is_broken() -> None:
    record = _record(topic=b"")

    assert _verdict(locate_whole(record, 0, len(record), 500)) is Verdict.BROKEN


def test_a_queue_knows_when_a_record_is_not_its_own() -> None:
    record = _record()

    def damage(content: bytes = record, topic: bytes | None = b"orders", queue_id: int = 3) -> str:
        return damage_of(content, 500, topic=topic, queue_id=queue_id)

    assert damage() == ""
    assert "its topic is 'orders'" in damage(topic=b"others")
    assert "its queue is 3" in damage(queue_id=4)
    assert damage(topic=None, queue_id=9) == ""
    assert "its queue says" in damage(record + b"more")
    assert "written for offset 500" in damage_of(record, 501, topic=None, queue_id=3)
    body_at = record.index(b"body")
    flipped = record[:body_at] + b"B" + record[body_at + 1 :]
    assert "checksum" in damage(flipped)
    assert damage_of(flipped, 500, topic=b"orders", queue_id=3, check_body=False) == ""


def test_head_fields_are_read_with_short_and_long_hosts() -> None:
    for host in (V4, V6):
        head = _record(born_host=host)[:HEAD_BYTES]

        assert store_ms_of(head) == 12345
        assert queue_offset_of(head) == 7
