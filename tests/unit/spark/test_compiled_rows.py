"""Rows of ordinary records; test_rows.py runs all that is true of rows with and without them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from orbitmq.spark.schema import Projection, default_projection
from tests.unit.record.sample_records import KNOWN, Sample
from tests.unit.spark.plain_rows import BROKER, joined, plain_row, rows_of

# Loaded as a value without a type: there is none without the extension.
compiled_rows: Any = pytest.importorskip(
    "orbitmq.spark.compiled_rows",
    reason="not compiled; run: pip install --editable .",
    exc_type=ImportError,
)

TEXT = default_projection()
MAP = default_projection(properties="map")


def _decode(samples: list[Sample], projection: Projection) -> tuple[pa.RecordBatch, list[bool]]:
    buffer, positions = joined([sample.encode() for sample in samples])
    decoder = compiled_rows.CompiledRows(projection, check_bodies=False)
    batch, is_left = decoder.decode(pa.py_buffer(buffer), positions, BROKER)
    return batch, is_left.tolist()


@pytest.mark.parametrize("projection", [TEXT, MAP], ids=["text", "map"])
def test_rows_of_ordinary_records_are_all_that_there_is(projection: Projection) -> None:
    samples = [
        replace(KNOWN, queue_offset=1, properties=b"UNIQ_KEY\x01id\x02KEYS\x01a\x02"),
        replace(KNOWN, queue_offset=2, topic=b"\xff"),
        replace(KNOWN, queue_offset=3, properties=b"TAGS\x01t"),
    ]

    batch, is_left = _decode(samples, projection)

    batch.validate(full=True)
    assert batch.schema == projection.arrow_schema
    assert is_left == [False, True, False]
    assert rows_of(batch) == [
        plain_row(sample.encode(), projection) for sample in (samples[0], samples[2])
    ]


def test_a_record_that_repeats_a_name_is_left_where_there_are_maps() -> None:
    samples = [
        KNOWN,
        replace(KNOWN, properties=b"a\x01b\x02a\x01c\x02"),
        replace(KNOWN, topic=b"\xff"),
        replace(KNOWN, queue_offset=8),
    ]

    batch, is_left = _decode(samples, MAP)

    assert is_left == [False, True, True, False]
    assert [row["queueOffset"] for row in rows_of(batch)] == [7, 8]


def test_where_no_record_is_ordinary_there_are_no_rows() -> None:
    batch, is_left = _decode([replace(KNOWN, topic=b"\xff")], TEXT)

    assert batch is None
    assert is_left == [True]
