"""Records as rows: equal to what clients read, and errors for what cannot be read."""

from __future__ import annotations

import mmap
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from orbitmq.errors import BatchTooLargeError, ProtocolError
from orbitmq.record.compression import Compression, compress
from orbitmq.record.decode import Verdict
from orbitmq.record.hosts import encode_host
from orbitmq.record.layout import COMPRESSED
from orbitmq.spark.rows import fast_forms, plain_rows, row_decoder
from orbitmq.spark.rows.row_decoder import RowDecoder, record_positions
from orbitmq.spark.rows.schema import Projection, projection_of
from tests.unit.record.sample_records import (
    HOST_V6,
    KNOWN,
    KNOWN_BYTES,
    Sample,
    damage,
    random_sample,
)
from tests.unit.spark.sample_rows import (
    BROKER,
    all_columns,
    joined,
    plain_row,
    record_at,
    row_samples,
    rows_of,
)

TEXT = all_columns()
MAP = all_columns(properties="map")
NONE = all_columns(without=["properties"])
BODY = projection_of(StructType([StructField("body", BinaryType())]))
BRIEF = all_columns(without=["properties", "body"])
SOME = projection_of(
    StructType(
        [
            StructField("tags", StringType()),
            StructField("queueOffset", LongType()),
            StructField("topic", StringType()),
        ]
    )
)
PROJECTIONS = {"text": TEXT, "map": MAP, "none": NONE, "body": BODY, "brief": BRIEF, "some": SOME}


@pytest.fixture(scope="module", params=["compiled", "plain"], autouse=True)
def _form(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run every test twice: with compiled code, and without."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "plain":
            patch.setattr(fast_forms, "fast_rows", None)
            patch.setattr(fast_forms, "record_starts", plain_rows.record_starts)
        elif not fast_forms.IS_COMPILED:
            pytest.skip("not compiled")
        yield


# Bytes between the records of a queue in a log.
GAPS = st.lists(st.binary(max_size=30), max_size=3)


def _decode(
    records: list[bytes], projection: Projection, *, gaps: list[bytes] | None = None
) -> pa.RecordBatch:
    buffer, positions = joined(records, gaps=gaps or [])
    batch = RowDecoder(projection).decode(buffer, positions, BROKER)
    batch.validate(full=True)
    assert batch.schema == projection.arrow_schema
    return batch


def _expected(records: list[bytes], projection: Projection) -> list[dict[str, object]]:
    return [plain_row(record, projection) for record in records]


def _order(number: int) -> Sample:
    return replace(
        KNOWN,
        topic=b"orders",
        queue_offset=number,
        physical_offset=1000 * number,
        body=b"body %d" % number,
        properties=b"UNIQ_KEY\x01ID%d\x02KEYS\x01key-%d\x02TAGS\x01TagA\x02" % (number, number),
    )


# --- equality with what clients read ------------------------------------------------------------


@pytest.mark.parametrize("projection", PROJECTIONS.values(), ids=PROJECTIONS)
@settings(max_examples=40)  # for each projection
@given(samples=st.lists(row_samples(), min_size=1, max_size=12), gaps=GAPS)
def test_rows_equal_what_clients_read(
    projection: Projection, samples: list[Sample], gaps: list[bytes]
) -> None:
    records = [sample.encode() for sample in samples]

    batch = _decode(records, projection, gaps=gaps)

    assert rows_of(batch) == _expected(records, projection)


@pytest.mark.parametrize("projection", [TEXT, MAP], ids=["text", "map"])
@pytest.mark.parametrize("seed", range(5))
def test_rows_of_many_records_equal_what_clients_read(projection: Projection, seed: int) -> None:
    rng = random.Random(seed)
    orders = [_order(number).encode() for number in range(300)]
    odd = [
        replace(sample, system_flag=sample.system_flag & ~COMPRESSED).encode()
        for sample in (random_sample(rng) for _ in range(100))
    ]
    records = orders + odd
    rng.shuffle(records)

    batch = _decode(records, projection)

    assert rows_of(batch) == _expected(records, projection)


def test_an_ordinary_record_is_read_to_the_last_field() -> None:
    (row,) = rows_of(_decode([_order(3).encode()], TEXT))

    assert row == {
        "topic": "orders",
        "brokerName": BROKER,
        "queueId": 1,
        "queueOffset": 3,
        "physicalOffset": 3000,
        "msgId": "ID3",
        "keys": "key-3",
        "tags": "TagA",
        "flag": 0,
        "properties": "UNIQ_KEY\x01ID3\x02KEYS\x01key-3\x02TAGS\x01TagA\x02",
        "body": b"body 3",
        "bornTimestamp": 1700000000000000,
        "storeTimestamp": 1700000000123000,
        "bornHost": "127.0.0.1:50000",
        "storeHost": "127.0.0.1:10911",
        "sysFlag": 0,
        "reconsumeTimes": 0,
    }


def test_rows_keep_the_order_of_their_records_among_odd_ones() -> None:
    records = [_order(number) for number in range(50)]
    records[7] = replace(records[7], properties=b"\x01\x02\xff")
    records[8] = replace(records[8], system_flag=0x10, born_host=HOST_V6)
    records[30] = replace(records[30], topic=b"t" * 200)
    records[49] = replace(
        records[49], body=compress(b"packed", Compression.ZSTD), system_flag=0x201
    )

    rows = rows_of(_decode([record.encode() for record in records], MAP))

    assert [row["queueOffset"] for row in rows] == list(range(50))
    assert rows[8]["bornHost"] == "[2001:db8::7]:10911"
    assert rows[30]["topic"] == "t" * 200
    assert rows[49]["body"] == b"packed"


def test_hosts_of_many_producers_are_distinguished() -> None:
    records = [
        replace(_order(n), born_host=encode_host(f"10.0.0.{n % 7}", 1000 + n % 3)).encode()
        for n in range(100)
    ]

    rows = rows_of(_decode(records, TEXT))

    assert [row["bornHost"] for row in rows] == [
        f"10.0.0.{n % 7}:{1000 + n % 3}" for n in range(100)
    ]


def test_a_message_without_a_unique_id_has_the_id_of_its_location() -> None:
    records = [_order(1), replace(_order(2), properties=b"TAGS\x01TagA\x02")]

    rows = rows_of(_decode([record.encode() for record in records], TEXT))

    assert [row["msgId"] for row in rows] == ["ID1", "7F00000100002A9F00000000000007D0"]


@pytest.mark.parametrize("kind", Compression)
def test_a_compressed_body_is_decompressed_and_its_flag_cleared(kind: Compression) -> None:
    packed = replace(
        KNOWN, body=compress(b"again " * 99, kind), system_flag=COMPRESSED | kind.value | 8
    )

    (row,) = rows_of(_decode([packed.encode()], TEXT))

    assert row["body"] == b"again " * 99
    assert row["sysFlag"] == kind.value | 8


def test_the_flag_is_the_same_when_the_body_is_not_read() -> None:
    records = [
        replace(KNOWN, body=compress(b"body", Compression.LZ4), system_flag=0x101).encode(),
        replace(KNOWN, body=b"", system_flag=0x101).encode(),
    ]

    with_body = rows_of(_decode(records, TEXT))
    without = rows_of(_decode(records, BRIEF))

    assert [row["sysFlag"] for row in with_body] == [row["sysFlag"] for row in without]
    assert [row["sysFlag"] for row in without] == [0x100, 0x101]


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    record = replace(KNOWN, topic=b"a\xffb", properties=b"TAGS\x01\xc3\x02").encode()

    (row,) = rows_of(_decode([_order(1).encode(), record], TEXT))[1:]

    assert (row["topic"], row["tags"]) == ("a\ufffdb", "\ufffd")
    assert row["properties"] == "TAGS\x01\ufffd\x02"


def test_halves_of_a_character_in_two_rows_are_not_joined() -> None:
    records = [
        replace(KNOWN, topic=b"a\xc3").encode(),
        replace(KNOWN, topic=b"\xa9b").encode(),
    ]

    rows = rows_of(_decode(records, TEXT))

    assert [row["topic"] for row in rows] == ["a\ufffd", "\ufffdb"]


def test_of_a_property_named_twice_the_last_counts() -> None:
    record = replace(KNOWN, properties=b"KEYS\x01a\x02TAGS\x01t\x02KEYS\x01b\x02").encode()

    (row,) = rows_of(_decode([record], MAP))

    assert row["keys"] == "b"
    assert row["properties"] == [("KEYS", "b"), ("TAGS", "t")]


def test_a_time_beyond_the_last_timestamp_is_clamped() -> None:
    record = replace(KNOWN, born_ms=2**63 - 1, store_ms=-(2**63)).encode()

    (row,) = rows_of(_decode([record], TEXT))

    assert (row["bornTimestamp"], row["storeTimestamp"]) == (
        (2**63 - 1) // 1000 * 1000,
        -((2**63 - 1) // 1000 * 1000),
    )


@pytest.mark.parametrize("projection", PROJECTIONS.values(), ids=PROJECTIONS)
def test_no_records_make_no_rows(projection: Projection) -> None:
    batch = RowDecoder(projection).decode(b"", np.array([], dtype=np.int64), BROKER)

    assert batch.num_rows == 0
    assert batch.schema == projection.arrow_schema


def test_a_batch_outlives_the_mapping_it_was_read_from(tmp_path: Path) -> None:
    buffer, positions = joined([_order(number).encode() for number in range(20)], gaps=[b"gap"])
    path = tmp_path / "log"
    path.write_bytes(buffer)

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        batch = RowDecoder(TEXT).decode(mapped, positions, BROKER)

    assert [row["keys"] for row in rows_of(batch)] == [f"key-{number}" for number in range(20)]


def test_a_batch_does_not_change_when_its_buffer_is_reused() -> None:
    records = [_order(number) for number in range(20)]
    records[3] = replace(records[3], properties=b"odd")
    content, positions = joined([record.encode() for record in records])
    buffer = bytearray(content)
    batch = RowDecoder(MAP).decode(memoryview(buffer), positions, BROKER)
    expected = rows_of(batch)

    buffer[:] = bytes(len(buffer))

    assert rows_of(batch) == expected


# --- what cannot be read ------------------------------------------------------------------------


@given(seed=st.integers(0, 2**32), is_alone=st.booleans())
def test_a_damaged_record_reads_as_clients_read_it(*, seed: int, is_alone: bool) -> None:
    rng = random.Random(seed)
    damaged = bytearray(random_sample(rng).encode())
    damage(rng, damaged)
    others = [] if is_alone else [_order(1).encode()]
    buffer, positions = joined([*others, bytes(damaged), *others])
    assume(positions[-1] < len(buffer))
    try:
        expected = [plain_row(record_at(buffer, at), MAP) for at in positions.tolist()]
    except ProtocolError:
        with pytest.raises(
            ProtocolError, match=r"(?s)a record of (topic '.*' on )?broker 'broker-a'"
        ):
            RowDecoder(MAP).decode(buffer, positions, BROKER)
    else:
        assert rows_of(RowDecoder(MAP).decode(buffer, positions, BROKER)) == expected


def test_a_damaged_record_is_named() -> None:
    damaged = bytearray(replace(_order(5), queue_id=3).encode())
    damaged[4:8] = b"oops"
    buffer, positions = joined([_order(4).encode(), bytes(damaged)])

    with pytest.raises(ProtocolError) as error:
        RowDecoder(TEXT).decode(buffer, positions, BROKER)

    assert str(error.value) == (
        "a record of broker 'broker-a', queue 3, offset 5, physical offset 5000, cannot be read: "
        f"found {Verdict.BROKEN.value} at byte 137: magic is 0x6f6f7073 "
        "(onUnreadable=skip reads the others, onUnreadable=null also the rest of this one)"
    )


@pytest.mark.parametrize("cut", [1, 20, 100])
def test_a_record_that_is_cut_off_is_an_error(cut: int) -> None:
    buffer, positions = joined([_order(1).encode(), _order(2).encode()])

    with pytest.raises(ProtocolError, match=r"queue 1, offset 2, .* is cut off"):
        RowDecoder(BODY).decode(buffer[:-cut], positions, BROKER)


def test_a_few_bytes_are_not_a_record() -> None:
    with pytest.raises(ProtocolError, match="a record of broker 'broker-a' cannot be read"):
        RowDecoder(BODY).decode(b"few bytes", np.array([0]), BROKER)


@pytest.mark.parametrize("topic", [b"orders", b"\xff"], ids=["ordinary", "odd"])
@pytest.mark.parametrize("kind", Compression)
def test_a_body_that_cannot_be_decompressed_is_a_named_error(
    kind: Compression, topic: bytes
) -> None:
    broken = replace(
        _order(5), topic=topic, body=b"not packed", system_flag=COMPRESSED | kind.value
    )

    with pytest.raises(ProtocolError, match=r"queue 1, offset 5, .* is (broken|cut off)"):
        _decode([_order(4).encode(), broken.encode()], TEXT)


def test_an_unread_body_is_not_decompressed() -> None:
    broken = replace(_order(5), body=b"not packed", system_flag=COMPRESSED)

    assert _decode([broken.encode()], BRIEF).num_rows == 1


@pytest.mark.parametrize("projection", [TEXT, BRIEF], ids=["with body", "without"])
@pytest.mark.parametrize("properties", [b"TAGS\x01a\x02", b"\xff"], ids=["ordinary", "odd"])
def test_a_body_with_a_wrong_checksum_is_named_if_checked(
    projection: Projection, properties: bytes
) -> None:
    damaged = bytearray(replace(_order(5), properties=properties).encode())
    damaged[90] ^= 1
    buffer, positions = joined([_order(4).encode(), bytes(damaged), _order(6).encode()])
    unchecked = RowDecoder(projection).decode(buffer, positions, BROKER)

    with pytest.raises(
        ProtocolError, match=r"broker-a', queue 1, offset 5, physical offset 5000, .*checksum"
    ):
        RowDecoder(projection, check_bodies=True).decode(buffer, positions, BROKER)

    assert unchecked.num_rows == 3


@settings(max_examples=40)
@given(samples=st.lists(row_samples(), min_size=1, max_size=8))
def test_bodies_with_right_checksums_pass(samples: list[Sample]) -> None:
    records = [sample.encode() for sample in samples]
    buffer, positions = joined(records)

    batch = RowDecoder(TEXT, check_bodies=True).decode(buffer, positions, BROKER)

    assert rows_of(batch) == _expected(records, TEXT)


@pytest.mark.parametrize("positions", [[-1, 0], [0, 0], [104, 0], [0, 104, 208]])
def test_positions_must_ascend_within_the_buffer(positions: list[int]) -> None:
    with pytest.raises(ValueError, match="do not ascend within 208 bytes"):
        RowDecoder(TEXT).decode(KNOWN_BYTES * 2, np.array(positions), BROKER)


def test_more_than_a_column_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_decoder, "COLUMN_BYTES_MAX", 250)
    buffer, positions = joined([_order(number).encode() for number in range(4)])

    with pytest.raises(BatchTooLargeError, match="4 rows take more than the 250 bytes"):
        RowDecoder(TEXT).decode(buffer, positions, BROKER)


def test_records_far_from_the_start_of_a_large_buffer_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_decoder, "COLUMN_BYTES_MAX", 400)
    buffer, positions = joined([_order(number).encode() for number in range(50)])

    batch = RowDecoder(BODY).decode(buffer, positions[20:22], BROKER)

    assert rows_of(batch) == [{"body": b"body 20"}, {"body": b"body 21"}]


# --- positions ----------------------------------------------------------------------------------


@given(samples=st.lists(row_samples(), max_size=12))
def test_positions_are_where_records_start(samples: list[Sample]) -> None:
    buffer, positions = joined([sample.encode() for sample in samples])

    assert record_positions(buffer).tolist() == positions.tolist()


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (
            b"short",
            f"found {Verdict.CUT_OFF.value} at byte 104 of 109: 5 bytes are left",
        ),
        (KNOWN_BYTES[:-1], f"found {Verdict.CUT_OFF.value} at byte 104 of 207"),
        (bytes(104), f"found {Verdict.NOTHING.value} at byte 104 of 208"),
        (
            b"\0\0\0\x09" + KNOWN_BYTES[4:],
            f"found {Verdict.BROKEN.value} at byte 104 of 208: a record cannot have 9",
        ),
    ],
)
def test_bytes_that_are_not_a_record_are_an_error_with_their_position(
    end: bytes, message: str
) -> None:
    with pytest.raises(ProtocolError) as error:
        record_positions(KNOWN_BYTES + end, broker_name=BROKER)

    assert "broker 'broker-a'" in str(error.value)
    assert message in str(error.value)
