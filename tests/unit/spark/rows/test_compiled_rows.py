"""Rows of the compiled form: the same as those of the plain form, and which records it leaves."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from orbitmq.errors import BatchTooLargeError, ProtocolError
from orbitmq.record.compression import Compression, compress
from orbitmq.record.layout import COMPRESSED
from orbitmq.spark.options.column_names import COLUMN_NAMES
from orbitmq.spark.rows import fast_forms, plain_rows, row_decoder
from orbitmq.spark.rows.plain_rows import PlainRows, Positions
from orbitmq.spark.rows.row_decoder import RowDecoder
from orbitmq.spark.rows.schema import Projection, projection_of
from tests.unit.record.sample_records import HOST_V6, KNOWN, Sample, damage, random_sample
from tests.unit.spark.sample_rows import (
    BROKER,
    all_columns,
    any_row_samples,
    joined,
    plain_row,
    row_samples,
    rows_of,
)

# Untyped: the module exists only if it is compiled.
compiled_rows: Any = pytest.importorskip(
    "orbitmq.spark.rows.compiled_rows",
    reason="not compiled; run: pip install --editable .",
    exc_type=ImportError,
)

TEXT = all_columns()
MAP = all_columns(properties="map")
BRIEF = all_columns(without=["body"])
ORDER = replace(KNOWN, properties=b"UNIQ_KEY\x01ID\x02KEYS\x01a b\x02TAGS\x01TagA\x02W\x01true\x02")


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> Iterator[None]:
    """Use the compiled form even if ORBITMQ_PURE=1 is set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast_forms, "fast_rows", compiled_rows.CompiledRows)
        yield


# --- equality with the plain form ---------------------------------------------------------------


@st.composite
def projections(draw: st.DrawFn) -> Projection:
    """Any columns in any order, with properties as text or as maps."""
    names = draw(st.lists(st.sampled_from(COLUMN_NAMES), min_size=1, unique=True))
    fields = draw(st.sampled_from([TEXT, MAP])).spark_schema
    return projection_of(StructType([fields[name] for name in names]))


def _outcome(
    decoder: RowDecoder | PlainRows, buffer: bytes, positions: Positions | list[int]
) -> str | pa.RecordBatch:
    """The rows of records, or the error."""
    places: Any = positions
    try:
        batch = decoder.decode(buffer, places, BROKER)
    except ProtocolError as error:
        return str(error)
    batch.validate(full=True)
    return batch


def _assert_read_alike(
    buffer: bytes,
    positions: Positions,
    projection: Projection = TEXT,
    *,
    check_bodies: bool = False,
) -> bool:
    """Compare both forms; returns whether there were rows."""
    found = _outcome(RowDecoder(projection, check_bodies=check_bodies), buffer, positions)
    plain = _outcome(PlainRows(projection, check_bodies=check_bodies), buffer, positions.tolist())
    if isinstance(plain, str):
        assert found == plain, (buffer, positions.tolist())
        return False
    assert not isinstance(found, str), found
    assert found.schema == projection.arrow_schema
    assert found.equals(plain), (buffer, positions.tolist())
    return True


def _records(rng: random.Random, count: int) -> list[bytes]:
    """Usual records, and odd ones among them; few have the bit of a compressed body."""
    samples = [random_sample(rng) if rng.randrange(3) == 0 else ORDER for _ in range(count)]
    kept_bits = [~COMPRESSED if rng.randrange(20) else ~0 for _ in samples]
    return [
        replace(sample, system_flag=sample.system_flag & bits).encode()
        for sample, bits in zip(samples, kept_bits, strict=True)
    ]


@settings(max_examples=300)
@given(
    samples=st.lists(row_samples(), min_size=1, max_size=12),
    gaps=st.lists(st.binary(max_size=30), max_size=3),
    projection=projections(),
    check_bodies=st.booleans(),
)
def test_records_that_can_be_read_give_the_same_rows(
    *, samples: list[Sample], gaps: list[bytes], projection: Projection, check_bodies: bool
) -> None:
    buffer, positions = joined([sample.encode() for sample in samples], gaps=gaps)

    assert _assert_read_alike(buffer, positions, projection, check_bodies=check_bodies)


@settings(max_examples=300)
@given(
    samples=st.lists(any_row_samples(), min_size=1, max_size=8),
    projection=projections(),
    check_bodies=st.booleans(),
    seed=st.integers(0, 2**32),
    damages=st.integers(0, 2),
)
def test_records_of_which_some_are_damaged_give_the_same_rows_or_the_same_error(
    *, samples: list[Sample], projection: Projection, check_bodies: bool, seed: int, damages: int
) -> None:
    rng = random.Random(seed)
    records = [bytearray(sample.encode()) for sample in samples]
    for _ in range(damages):
        damaged = rng.choice(records)
        if damaged:
            damage(rng, damaged)
    buffer, positions = joined([bytes(record) for record in records if record] or [b"\0"])

    _assert_read_alike(buffer, positions, projection, check_bodies=check_bodies)


@pytest.mark.parametrize("check_bodies", [True, False])
@pytest.mark.parametrize("projection", [TEXT, MAP], ids=["text", "map"])
@pytest.mark.parametrize("seed", range(3))
def test_damaged_records_are_read_alike(
    seed: int, projection: Projection, *, check_bodies: bool
) -> None:
    rng = random.Random(seed)
    read = 0
    for _ in range(300):
        records = [bytearray(record) for record in _records(rng, rng.randrange(1, 6))]
        for _ in range(rng.randrange(3)):
            damaged = rng.choice(records)
            if damaged:
                damage(rng, damaged)
        buffer, positions = joined([bytes(record) for record in records if record])
        if not buffer:
            continue
        read += _assert_read_alike(buffer, positions, projection, check_bodies=check_bodies)
    assert read > 50


@pytest.mark.parametrize("seed", range(3))
def test_records_at_wrong_positions_are_read_alike(seed: int) -> None:
    rng = random.Random(seed)
    read = 0
    for _ in range(300):
        buffer, positions = joined(_records(rng, 4))
        end = rng.choice([len(buffer), rng.randrange(len(buffer) // 2, len(buffer))])
        added = rng.sample(range(end), rng.choice([0, 0, 0, 1, 3]))
        wrong = np.union1d(positions[positions < end], np.array(added, np.int64)).astype(np.int64)
        read += _assert_read_alike(buffer[:end], wrong)
    assert read > 10


def test_every_changed_byte_is_read_alike() -> None:
    record = ORDER.encode()
    buffer, positions = joined([record, KNOWN.encode()])

    for at in range(len(record)):
        for value in (0, 1, 2, 3, 0x7F, 0x80, 0xFF, record[at] ^ 1, record[at] ^ 0x10):
            changed = bytearray(buffer)
            changed[at] = value
            _assert_read_alike(bytes(changed), positions, MAP if at % 2 else TEXT)


def test_every_end_in_a_record_is_read_alike() -> None:
    buffer, positions = joined([KNOWN.encode(), ORDER.encode()])

    for end in range(1, len(buffer) + 1):
        _assert_read_alike(buffer[:end], positions[positions < end])


@pytest.mark.parametrize("seed", range(3))
def test_starts_of_damaged_records_are_found_alike(seed: int) -> None:
    rng = random.Random(seed)
    ended_early = 0
    for _ in range(2000):
        buffer = bytearray(b"".join(_records(rng, rng.randrange(5))))
        for _ in range(rng.randrange(3)):
            if buffer:
                damage(rng, buffer)
        records = bytes(buffer)
        starts, end = compiled_rows.record_starts(records)
        plain_starts, plain_end = plain_rows.record_starts(records)
        assert starts.tolist() == plain_starts.tolist(), records
        assert end == plain_end, records
        ended_early += end != len(records)
    assert ended_early > 200


# --- what is read and what is left --------------------------------------------------------------


def _compressed(body: bytes, kind: Compression = Compression.ZLIB) -> Sample:
    return replace(KNOWN, body=compress(body, kind), system_flag=COMPRESSED | kind.value)


def _decode(samples: list[Sample], projection: Projection) -> tuple[pa.RecordBatch, list[bool]]:
    buffer, positions = joined([sample.encode() for sample in samples])
    decoder = compiled_rows.CompiledRows(projection, check_bodies=False)
    batch, is_left = decoder.decode(pa.py_buffer(buffer), positions, BROKER)
    return batch, is_left.tolist()


@pytest.mark.parametrize("projection", [TEXT, MAP], ids=["text", "map"])
def test_rows_of_all_but_odd_records_are_read(projection: Projection) -> None:
    samples = [
        replace(KNOWN, queue_offset=1, properties=b"UNIQ_KEY\x01id\x02KEYS\x01a\x02"),
        replace(KNOWN, queue_offset=2, topic=b"\xff"),
        replace(KNOWN, queue_offset=3, properties=b"TAGS\x01t"),
        replace(KNOWN, queue_offset=4, properties=b"a\x01b\x02\x02k\x01\x02a\x01c\x01d\x02z"),
        replace(KNOWN, queue_offset=5, system_flag=0x30, born_host=HOST_V6, store_host=HOST_V6),
        *(_compressed(b"again " * 9, kind) for kind in Compression),
        replace(KNOWN, queue_offset=6),
    ]

    batch, is_left = _decode(samples, projection)

    batch.validate(full=True)
    assert batch.schema == projection.arrow_schema
    assert is_left == [False, True, *[False] * 7]
    assert rows_of(batch) == [
        plain_row(sample.encode(), projection) for sample in samples if sample.topic != b"\xff"
    ]


def test_without_readable_records_there_are_no_rows() -> None:
    batch, is_left = _decode([replace(KNOWN, topic=b"\xff")], TEXT)

    assert batch is None
    assert is_left == [True]


def test_all_records_are_left_if_a_body_cannot_be_decompressed() -> None:
    samples = [KNOWN, replace(KNOWN, body=b"broken", system_flag=COMPRESSED), KNOWN]

    batch, is_left = _decode(samples, TEXT)
    without_body, is_left_without_body = _decode(samples, BRIEF)

    assert (batch, is_left) == (None, [True] * 3)
    assert (without_body.num_rows, is_left_without_body) == (3, [False] * 3)


def test_decompression_stops_once_several_bodies_are_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plain_rows, "DECOMPRESSED_BYTES_MAX", 1000)
    large = _compressed(bytes(600), Compression.ZSTD)
    broken = replace(KNOWN, body=b"broken", system_flag=COMPRESSED)

    # The third is not reached.
    with pytest.raises(BatchTooLargeError, match="3 rows take more than the 1000 bytes"):
        _decode([large, large, broken], TEXT)
    batch, _ = _decode([large, KNOWN], TEXT)
    assert [row["body"] for row in rows_of(batch)] == [bytes(600), KNOWN.body]
    batch, _ = _decode([_compressed(bytes(5000))], TEXT)
    assert [row["body"] for row in rows_of(batch)] == [bytes(5000)]


def test_more_than_a_column_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_rows, "COLUMN_BYTES_MAX", 1000)

    with pytest.raises(BatchTooLargeError, match="2 rows take more than the 1000 bytes"):
        _decode([KNOWN, _compressed(bytes(1000))], TEXT)
    assert _decode([KNOWN, _compressed(bytes(998))], TEXT)[0].num_rows == 2


def test_rows_of_both_forms_that_one_batch_cannot_hold_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_decoder, "COLUMN_BYTES_MAX", 2_000)
    odd = replace(_compressed(bytes(10_000)), topic=b"\xff")
    buffer, positions = joined([KNOWN.encode(), odd.encode()])

    with pytest.raises(BatchTooLargeError, match="2 rows take more"):
        RowDecoder(TEXT).decode(buffer, positions, BROKER)


@pytest.mark.parametrize("text", ["", "broker-a", "größe"])
@pytest.mark.parametrize("count", [1, 3, 16 * 1024 + 1])
def test_a_constant_column_has_its_text_in_each_row(text: str, count: int) -> None:
    column = compiled_rows.constant(text, count)

    column.validate(full=True)
    assert column.to_pylist() == [text] * count
