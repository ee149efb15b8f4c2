"""Reading records, whole, cut off and damaged."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ProtocolError
from orbitmq.record.compression import Compression, compress
from orbitmq.record.decode import (
    Found,
    Verdict,
    decode_record,
    decode_records,
    examine,
    locate,
)
from orbitmq.record.layout import BORN_HOST_V6, MAGIC_V1, STORE_HOST_V6, SystemFlag
from tests.unit.record.sample_records import HOST_V6, KNOWN, KNOWN_BYTES, Sample, samples

SHORT = replace(KNOWN, topic=b"topic", body=b"a body", properties=b"TAGS\x01TagA\x02KEYS\x01k\x02")
KINDS = [
    SHORT,
    replace(SHORT, topic=b"t" * 128),
    replace(SHORT, born_host=HOST_V6, system_flag=BORN_HOST_V6),
    replace(SHORT, store_host=HOST_V6, system_flag=STORE_HOST_V6),
    replace(
        SHORT,
        born_host=HOST_V6,
        store_host=HOST_V6,
        system_flag=BORN_HOST_V6 | STORE_HOST_V6,
        topic=b"t" * 200,
    ),
    replace(SHORT, body=b"", properties=b""),
]
JUNK = b"\xff" * 300


def _examined(buffer: bytes, end: int, *, check_body: bool = True) -> Found:
    """What is at byte 0, the same whatever follows `end`."""
    found = examine(buffer[:end], 0, end, check_body=check_body)
    assert examine(buffer[:end] + JUNK, 0, end, check_body=check_body) == found
    assert examine(buffer[:end] + bytes(300), 0, end, check_body=check_body) == found
    return found


def test_the_known_record_is_read() -> None:
    message = decode_record(KNOWN_BYTES)

    assert message.size == 104
    assert (message.topic, message.queue_id, message.queue_offset) == ("T", 1, 7)
    assert message.physical_offset == 1000
    assert message.body == b"hi"
    assert message.properties == {"TAGS": "TagA"}
    assert (message.born_ms, message.store_ms) == (1700000000000, 1700000000123)
    assert message.born_host == ("127.0.0.1", 50000)
    assert message.store_host == ("127.0.0.1", 10911)
    assert message.message_id == "7F00000100002A9F00000000000003E8"
    assert (message.reconsume_times, message.prepared_offset, message.flag) == (0, 0, 0)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(kind: type[bytes | bytearray | memoryview]) -> None:
    buffer = kind(b"before" + KNOWN_BYTES + b"behind")

    assert decode_record(buffer, 6) == decode_record(KNOWN_BYTES)
    assert examine(buffer, 6, 110, check_body=True) == Found(Verdict.RECORD, 104)


def test_ipv6_hosts_are_read_and_make_a_longer_id() -> None:
    message = decode_record(replace(KNOWN, store_host=HOST_V6, system_flag=STORE_HOST_V6).encode())

    assert message.store_host == ("2001:db8::7", 10911)
    assert message.message_id == "20010DB800000000000000000000000700002A9F00000000000003E8"


@pytest.mark.parametrize("kind", Compression)
def test_a_compressed_body_is_decompressed_on_first_use(kind: Compression) -> None:
    packed = compress(b"body " * 1000, kind)

    message = decode_record(
        replace(KNOWN, body=packed, system_flag=SystemFlag.COMPRESSED | kind.value).encode()
    )

    assert message.stored_body == packed
    assert message.body == b"body " * 1000


def test_an_empty_body_is_never_decompressed() -> None:
    empty = replace(KNOWN, body=b"", system_flag=SystemFlag.COMPRESSED)

    assert decode_record(empty.encode()).body == b""


def test_a_topic_that_is_not_utf_8_is_replaced_as_in_java() -> None:
    assert decode_record(replace(KNOWN, topic=b"a\xffb").encode()).topic == "a\ufffdb"


@given(st.lists(samples(), max_size=5))
def test_consecutive_records_are_decoded_in_order(several: list[Sample]) -> None:
    messages = decode_records(b"".join(sample.encode() for sample in several))

    assert [message.queue_offset for message in messages] == [
        sample.queue_offset for sample in several
    ]


def test_records_followed_by_other_bytes_are_refused() -> None:
    with pytest.raises(ProtocolError, match="at byte 104: a record that is cut off"):
        decode_records(KNOWN_BYTES + b"12345")


@pytest.mark.parametrize(
    ("start", "verdict"),
    [
        (b"", Verdict.CUT_OFF),
        (bytes(7), Verdict.CUT_OFF),
        (bytes(8), Verdict.NOTHING),
        (struct.pack(">II", 100, 0xCBD43194), Verdict.BLANK),
        (struct.pack(">II", 100, 0), Verdict.BROKEN),
        (struct.pack(">II", 0, MAGIC_V1), Verdict.BROKEN),
        (struct.pack(">II", 90, MAGIC_V1) + bytes(100), Verdict.BROKEN),
        (struct.pack(">II", 91, MAGIC_V1) + bytes(82), Verdict.CUT_OFF),
        (struct.pack(">II", 91, MAGIC_V1) + bytes(83), Verdict.RECORD),
        (struct.pack(">II", 2**31, MAGIC_V1) + bytes(100), Verdict.BROKEN),
        (struct.pack(">II", 2**31 - 1, MAGIC_V1) + bytes(100), Verdict.CUT_OFF),
    ],
)
def test_the_first_bytes_give_the_verdict(start: bytes, verdict: Verdict) -> None:
    assert _examined(start, len(start)).verdict is verdict


@pytest.mark.parametrize("sample", KINDS)
def test_a_record_cut_off_anywhere_is_recognised(sample: Sample) -> None:
    record = sample.encode()

    for end in range(len(record)):
        found = _examined(record, end)
        assert found.verdict is Verdict.CUT_OFF
        assert found.size in (0, len(record))
        with pytest.raises(ProtocolError):
            decode_record(record[:end])


@pytest.mark.parametrize("sample", KINDS)
@pytest.mark.parametrize("check_body", [True, False])
def test_a_changed_byte_never_gives_a_wrong_length(sample: Sample, *, check_body: bool) -> None:
    record = sample.encode()
    intact = locate(record, 0, len(record), check_body=True)
    assert not isinstance(intact, Found)
    body = range(intact.body_at, intact.body_end)

    for at in range(len(record)):
        for value in range(256):
            changed = bytearray(record)
            changed[at] = value
            found = examine(changed, 0, len(record), check_body=check_body)
            if found.verdict is Verdict.RECORD:
                assert found.size == len(record)
            if at in body and value != record[at]:
                assert found.verdict is (Verdict.BAD_BODY if check_body else Verdict.RECORD)


@pytest.mark.parametrize("sample", KINDS)
def test_a_changed_byte_raises_a_protocol_error_or_nothing(sample: Sample) -> None:
    record = sample.encode()

    for at in range(len(record)):
        for flipped in (1, 0x80, 0xFF):
            changed = bytearray(record)
            changed[at] ^= flipped
            _examined(bytes(changed), len(record))
            try:
                message = decode_record(changed)
            except ProtocolError:
                continue
            assert message.size == len(record)
            assert isinstance(message.properties, dict)
            assert message.store_host


@pytest.mark.parametrize("sample", KINDS)
def test_a_changed_length_is_never_accepted_when_more_follows(sample: Sample) -> None:
    record = sample.encode()

    for size in range(3 * len(record)):
        changed = size.to_bytes(4) + record[4:] + record + record
        found = examine(changed, 0, len(changed), check_body=False)
        assert found.verdict is (Verdict.RECORD if size == len(record) else Verdict.BROKEN)


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_get_a_verdict(tail: bytes, check_body: bool) -> None:  # noqa: FBT001
    buffer = struct.pack(">II", 8 + len(tail), MAGIC_V1) + tail

    assert isinstance(_examined(buffer, len(buffer), check_body=check_body), Found)


def test_a_v1_topic_of_over_127_bytes_is_refused_as_in_java() -> None:
    v2 = replace(KNOWN, topic=b"t" * 128).encode()
    size = len(v2) - 1
    topic_at = 48 + 8 + 8 + 8 + 16 + 2
    v1 = struct.pack(">II", size, MAGIC_V1) + v2[8:topic_at] + b"\x80" + v2[topic_at + 2 :]

    found = examine(v1, 0, size, check_body=True)

    assert found.verdict is Verdict.BROKEN
    assert "a topic of -128 bytes" in found.reason


def test_an_empty_body_needs_no_checksum() -> None:
    record = bytearray(replace(KNOWN, body=b"").encode())
    record[8:12] = b"\x12\x34\x56\x78"

    assert examine(record, 0, len(record), check_body=True).verdict is Verdict.RECORD


def test_an_error_says_where_and_what() -> None:
    with pytest.raises(ProtocolError, match=r"at byte 2: bytes that are not a record: magic is 0x"):
        decode_record(b"\x00\x00" + b"\x01" * 20, 2)
    with pytest.raises(ProtocolError, match=r"at byte 0: only zero bytes$"):
        decode_record(bytes(20))
