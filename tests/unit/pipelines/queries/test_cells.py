"""Values of answers as texts: nothing is lost."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from orbitmq.pipelines.queries.cells import column_names, csv_line, json_rows, text_rows

NOON = datetime.datetime(2026, 1, 31, 12, 30, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("value", "kind", "in_json", "in_text"),
    [
        (None, pa.int64(), None, None),
        (2**63 - 1, pa.int64(), 2**63 - 1, "9223372036854775807"),
        (True, pa.bool_(), True, "true"),
        (0.1, pa.float64(), 0.1, "0.1"),
        (float("nan"), pa.float64(), "nan", "nan"),
        (Decimal("0.0000000010"), pa.decimal128(38, 10), "0.0000000010", "0.0000000010"),
        (NOON, pa.timestamp("us", tz="UTC"), "2026-01-31T12:30:00.000Z", "2026-01-31T12:30:00.000Z"),
        (NOON.replace(microsecond=5), pa.timestamp("us", tz="UTC"), "2026-01-31T12:30:00.000005Z", "2026-01-31T12:30:00.000005Z"),
        (NOON.replace(tzinfo=None), pa.timestamp("us"), "2026-01-31T12:30:00.000", "2026-01-31T12:30:00.000"),
        (NOON.date(), pa.date32(), "2026-01-31", "2026-01-31"),
        ("é".encode(), pa.binary(), "é", "é"),
        (b"\xff\x00", pa.binary(), {"base64": "/wA="}, "base64:/wA="),
        ([b"a", None], pa.list_(pa.binary()), ["a", None], '["a",null]'),
        ([("k", Decimal("1.0"))], pa.map_(pa.string(), pa.decimal128(3, 1)), {"k": "1.0"}, '{"k":"1.0"}'),
        ([(1, 2)], pa.map_(pa.int32(), pa.int32()), [[1, 2]], "[[1,2]]"),
        ({"at": NOON.date()}, pa.struct([("at", pa.date32())]), {"at": "2026-01-31"}, '{"at":"2026-01-31"}'),
    ],
)  # fmt: skip
def test_a_value_is_exact(value: object, kind: pa.DataType, in_json: object, in_text: str) -> None:
    rows = pa.table([pa.array([value], kind)], names=["value"])

    assert list(json_rows(rows)) == [{"value": in_json}]
    assert list(text_rows(rows)) == [[in_text]]


def test_a_name_that_is_there_twice_gets_a_number() -> None:
    rows = pa.table([[1], [2], [3]], names=["a", "a", "a_2"])

    assert column_names(rows) == ["a", "a_2", "a_2_2"]


def test_csv_tells_null_from_an_empty_text() -> None:
    assert csv_line([None, "", 'a "b"', "a,b", "a\nb", "plain"]) == (
        ',"","a ""b""","a,b","a\nb",plain'
    )
