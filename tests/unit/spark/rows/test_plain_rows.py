"""The plain form of rows: equal to what clients read, and the errors for what cannot be read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.errors import BatchTooLargeError, ProtocolError
from orbitmq.record.compression import Compression, compress
from orbitmq.record.hosts import encode_host
from orbitmq.record.layout import COMPRESSED
from orbitmq.spark.rows import plain_rows
from orbitmq.spark.rows.plain_rows import PlainRows, host_text, unreadable
from orbitmq.spark.rows.schema import Projection
from tests.unit.record.sample_records import KNOWN, KNOWN_BYTES, Sample
from tests.unit.spark.sample_rows import (
    BROKER,
    all_columns,
    joined,
    plain_row,
    row_samples,
    rows_of,
)

TEXT = all_columns()
MAP = all_columns(properties="map")


@pytest.mark.parametrize("projection", [TEXT, MAP], ids=["text", "map"])
@settings(max_examples=50)  # for each projection
@given(samples=st.lists(row_samples(), min_size=1, max_size=8))
def test_rows_equal_what_the_client_reads(projection: Projection, samples: list[Sample]) -> None:
    records = [sample.encode() for sample in samples]
    buffer, positions = joined(records)

    batch = PlainRows(projection, check_bodies=True).decode(buffer, positions.tolist(), BROKER)

    batch.validate(full=True)
    assert batch.schema == projection.arrow_schema
    assert rows_of(batch) == [plain_row(record, projection) for record in records]


def test_several_bodies_that_decompress_to_too_much_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plain_rows, "DECOMPRESSED_BYTES_MAX", 1000)
    large = replace(
        KNOWN, body=compress(bytes(600), Compression.ZLIB), system_flag=COMPRESSED
    ).encode()
    buffer, positions = joined([large, large])

    def read(count: int, projection: Projection = TEXT) -> int:
        places = positions.tolist()[:count]
        batch = PlainRows(projection, check_bodies=False).decode(buffer, places, BROKER)
        return int(batch.num_rows)

    assert read(1) == 1
    with pytest.raises(BatchTooLargeError, match="2 rows take more than the 1000 bytes"):
        read(2)
    assert read(2, all_columns(without=["body"])) == 2


def test_a_bad_checksum_is_found_only_if_checked() -> None:
    damaged = bytearray(KNOWN_BYTES)
    damaged[88] ^= 1

    unchecked = PlainRows(TEXT, check_bodies=False).decode(damaged, [0], BROKER)
    with pytest.raises(ProtocolError, match="its body is damaged: checksum is"):
        PlainRows(TEXT, check_bodies=True).decode(damaged, [0], BROKER)

    assert unchecked.num_rows == 1


def test_an_unknown_compression_is_named() -> None:
    unknown = replace(KNOWN, system_flag=0x401).encode()

    with pytest.raises(ProtocolError) as error:
        PlainRows(TEXT, check_bodies=False).decode(unknown, [0], BROKER)

    assert str(error.value) == (
        "a record of topic 'T' on broker 'broker-a', queue 1, offset 7, physical offset 1000, cannot "
        "be read: unknown compression 0x400 (onUnreadable=skip reads the others, onUnreadable=null "
        "also the rest of this one)"
    )


def test_a_short_record_is_named_by_its_broker() -> None:
    error = unreadable(KNOWN_BYTES[:20], 0, BROKER, "it is short")

    assert str(error).startswith("a record of broker 'broker-a' cannot be read: it is short")


def test_the_address_of_an_ipv6_host_is_in_brackets() -> None:
    assert host_text(encode_host("10.1.2.3", 10911)) == "10.1.2.3:10911"
    assert host_text(encode_host("2001:db8::7", 10911)) == "[2001:db8::7]:10911"
