"""Writing records in the plain form."""

from __future__ import annotations

import zlib
from dataclasses import asdict, astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import MessageError
from orbitmq.record import encode
from orbitmq.record.decode import Verdict, decode_record, examine
from orbitmq.record.encode import encode_blank, encode_record
from orbitmq.record.layout import MAGIC_V1, MAGIC_V2, STORE_HOST_V6
from tests.unit.record.sample_records import HOST_V6, KNOWN, KNOWN_BYTES, Sample, samples


def test_the_known_record_is_written_byte_for_byte() -> None:
    assert KNOWN.encode() == KNOWN_BYTES


@given(samples(), st.integers(0, 20))
def test_every_field_survives_a_round_trip(sample: Sample, at: int) -> None:
    buffer = bytearray(at + sample.size + 3)

    size = encode_record(buffer, at, *astuple(sample))

    message = decode_record(buffer, at)
    assert size == sample.size == message.size
    assert (
        Sample(
            topic=sample.topic,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            physical_offset=message.physical_offset,
            body=message.stored_body,
            properties=message.properties_bytes,
            flag=message.flag,
            system_flag=message.system_flag,
            born_ms=message.born_ms,
            born_host=message.born_host_bytes,
            store_ms=message.store_ms,
            store_host=message.store_host_bytes,
            reconsume_times=message.reconsume_times,
            prepared_offset=message.prepared_offset,
        )
        == sample
    )
    assert message.topic == sample.topic.decode(errors="replace")
    assert buffer[:at] == bytes(at)
    assert buffer[at + size :] == bytes(3)


@pytest.mark.parametrize(
    ("topic_bytes", "magic"), [(1, MAGIC_V1), (127, MAGIC_V1), (128, MAGIC_V2), (255, MAGIC_V2)]
)
def test_a_topic_too_long_for_one_signed_byte_makes_a_second_version(
    topic_bytes: int, magic: int
) -> None:
    record = replace(KNOWN, topic=b"t" * topic_bytes).encode()

    assert int.from_bytes(record[4:8]) == magic
    assert decode_record(record).topic == "t" * topic_bytes


@pytest.mark.parametrize("body_bytes", [0, 1, 4096, 5_000_000])
def test_bodies_of_any_length_fit_their_checksum(body_bytes: int) -> None:
    body = bytes(range(256)) * (body_bytes // 256) + b"x" * (body_bytes % 256)

    record = replace(KNOWN, body=body).encode()

    assert int.from_bytes(record[8:12]) == zlib.crc32(body) & 0x7FFFFFFF
    assert examine(record, 0, len(record), check_body=True).verdict is Verdict.RECORD
    assert decode_record(record).body == body


def test_arguments_may_be_named() -> None:
    buffer = bytearray(KNOWN.size)

    assert encode_record(buffer, 0, **asdict(KNOWN)) == len(KNOWN_BYTES)
    assert buffer == KNOWN_BYTES


@pytest.mark.parametrize(
    "sample",
    [
        replace(KNOWN, queue_id=2**31),
        replace(KNOWN, queue_id=-(2**31) - 1),
        replace(KNOWN, queue_offset=2**63),
        replace(KNOWN, physical_offset=-(2**63) - 1),
        replace(KNOWN, flag=2**32),
        replace(KNOWN, system_flag=2**31),
        replace(KNOWN, born_ms=2**70),
        replace(KNOWN, store_ms=2**63),
        replace(KNOWN, reconsume_times=2**31),
        replace(KNOWN, prepared_offset=2**63),
    ],
)
def test_a_number_too_large_is_refused_and_leaves_no_record(sample: Sample) -> None:
    buffer = bytearray(200)

    with pytest.raises(MessageError, match="does not fit its field"):
        encode_record(buffer, 3, *astuple(sample))

    assert examine(buffer, 3, 200, check_body=True).verdict is Verdict.NOTHING


@pytest.mark.parametrize(
    ("sample", "reason"),
    [
        (replace(KNOWN, topic=b"t" * 256), "a topic of 256 bytes is above 255"),
        (replace(KNOWN, properties=b"p" * 32768), "properties of 32768 bytes are above 32767"),
        (replace(KNOWN, born_host=HOST_V6), "a born host of 20 bytes does not fit"),
        (replace(KNOWN, store_host=HOST_V6), "a store host of 20 bytes does not fit"),
        (replace(KNOWN, system_flag=STORE_HOST_V6), "a store host of 8 bytes does not fit"),
        (replace(KNOWN, born_host=b""), "a born host of 0 bytes does not fit"),
    ],
)
def test_a_field_of_a_wrong_length_is_refused(sample: Sample, reason: str) -> None:
    buffer = bytearray(40_000)

    with pytest.raises(MessageError, match=reason):
        encode_record(buffer, 0, *astuple(sample))

    assert buffer == bytes(40_000)


def test_a_record_of_over_two_gigabytes_is_refused() -> None:
    encode.check_lengths(2**31 - 1 - 91, 0, 0, 8, 8, 0)
    with pytest.raises(MessageError, match="a record of 2147483648 bytes is above 2147483647"):
        encode.check_lengths(2**31 - 91, 0, 0, 8, 8, 0)


@pytest.mark.parametrize("at", [-104, -1, 1, 97, 1000])
def test_a_record_is_not_written_where_it_does_not_fit(at: int) -> None:
    buffer = bytearray(104)

    with pytest.raises(ValueError, match=f"104 bytes do not fit at byte {at} of 104"):
        encode_record(buffer, at, *astuple(KNOWN))

    assert buffer == bytes(104)


def test_the_cache_of_lengths_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "_STRUCTS_MAX", 3)
    monkeypatch.setattr(encode, "_structs", {})

    for body_bytes in range(10):
        assert decode_record(replace(KNOWN, body=b"x" * body_bytes).encode()).size

    assert 0 < len(encode._structs) <= 3


def test_a_blank_says_how_much_is_left() -> None:
    buffer = bytearray(30)

    encode_blank(buffer, 10, 20)

    assert buffer == bytes(10) + bytes.fromhex("00000014cbd43194") + bytes(12)
    found = examine(buffer, 10, 30, check_body=True)
    assert (found.verdict, found.size) == (Verdict.BLANK, 20)
