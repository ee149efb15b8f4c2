"""Columns out of properties, equal to what the plain reader of properties finds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.record.properties import decode_properties
from orbitmq.spark.property_columns import Entries, find_entries
from tests.unit.spark.plain_rows import properties

MAP = pa.map_(pa.string(), pa.string())


def _entries(*rows: bytes) -> Entries:
    found = find_entries(pa.array(rows, pa.binary()))
    assert isinstance(found, Entries)
    return found


def _odd(*rows: bytes) -> list[bool]:
    found = find_entries(pa.array(rows, pa.binary()))
    assert isinstance(found, np.ndarray)
    odd: list[bool] = found.tolist()
    return odd


def _is_text(row: bytes) -> bool:
    return row.decode(errors="replace").encode() == row


@given(rows=st.lists(properties().filter(_is_text), min_size=1, max_size=12))
def test_ordinary_rows_equal_what_the_plain_reader_finds(rows: list[bytes]) -> None:
    found = find_entries(pa.array(rows, pa.binary()))
    if not isinstance(found, Entries):
        assert found.any()
        rows = [row for row, is_odd in zip(rows, found, strict=True) if not is_odd]
        found = find_entries(pa.array(rows, pa.binary()))
    assert isinstance(found, Entries)
    plain = [decode_properties(row) for row in rows]

    for name in ("KEYS", "TAGS", "UNIQ_KEY"):
        values = found.values_of(name.encode())
        values.validate(full=True)
        assert values.to_pylist() == [row.get(name) for row in plain]


@given(rows=st.lists(properties().filter(_is_text), min_size=1, max_size=12))
def test_maps_equal_what_the_plain_reader_finds(rows: list[bytes]) -> None:
    found = find_entries(pa.array(rows, pa.binary()))
    maps = found.maps(MAP) if isinstance(found, Entries) else found
    while isinstance(maps, np.ndarray):
        assert maps.any()
        rows = [row for row, is_odd in zip(rows, maps, strict=True) if not is_odd]
        found = find_entries(pa.array(rows, pa.binary()))
        maps = found.maps(MAP) if isinstance(found, Entries) else found

    maps.validate(full=True)
    assert [dict(row) for row in maps.to_pylist()] == [decode_properties(row) for row in rows]


def test_the_last_separator_may_be_missing() -> None:
    entries = _entries(b"KEYS\x01a", b"KEYS\x01b\x02", b"", b"TAGS\x01t\x02KEYS\x01c")

    assert entries.values_of(b"KEYS").to_pylist() == ["a", "b", None, "c"]


def test_a_name_is_compared_as_a_whole() -> None:
    entries = _entries(b"XEYS\x01a\x02KEYSKEYS\x01b\x02KEY\x01c\x02", b"KEYS\x01d\x02")

    assert entries.values_of(b"KEYS").to_pylist() == [None, "d"]


def test_of_several_values_the_last_is_found() -> None:
    entries = _entries(b"KEYS\x01a\x02KEYS\x01b\x02", b"KEYS\x01c\x02")

    assert entries.values_of(b"KEYS").to_pylist() == ["b", "c"]


@pytest.mark.parametrize("rows", [[b""], [b"", b""], []])
def test_rows_without_properties_have_none(rows: list[bytes]) -> None:
    entries = _entries(*rows)

    assert entries.values_of(b"KEYS").to_pylist() == [None] * len(rows)
    maps: pa.Array = entries.maps(MAP)
    assert maps.to_pylist() == [[]] * len(rows)


@pytest.mark.parametrize(
    "odd",
    [
        b"name",
        b"\x01value\x02",
        b"name\x01\x02",
        b"name\x01",
        b"\x02",
        b"a\x01b\x02\x02",
        b"a\x01b\x01c\x02",
        b"a\x02b\x02",
        b"a\x00b\x01c\x02",
        b"a\x01b\x02rest",
    ],
)
def test_rows_that_break_the_rules_are_told_apart(odd: bytes) -> None:
    good = b"KEYS\x01a\x02"

    assert _odd(good, odd, good, b"") == [False, True, False, False]
    assert _odd(odd) == [True]


@pytest.mark.parametrize("distinct_names", [2, 500])
def test_rows_that_name_something_twice_have_no_map(distinct_names: int) -> None:
    rows = [b"n%d\x01v\x02m\x01v\x02" % (number % distinct_names) for number in range(1000)]
    rows[3] = b"m\x01v\x02m\x01w\x02"
    rows[999] = b"a\x01v\x02b\x01v\x02a\x01w\x02"

    repeated = _entries(*rows).maps(MAP)

    assert np.flatnonzero(repeated).tolist() == [3, 999]
