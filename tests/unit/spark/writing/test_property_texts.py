"""Properties of many rows at once, compared with those of one message."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.model import property_names
from orbitmq.record.properties import decode_properties
from orbitmq.spark.writing.delivery_marks import MARK
from orbitmq.spark.writing.property_texts import (
    check_separators,
    entry_parts,
    filled,
    joined,
    left_out,
    texts_of,
)
from orbitmq.spark.writing.row_errors import RowRefused

MAP = pa.map_(pa.string(), pa.string())

_names = st.one_of(
    st.sampled_from(
        [*sorted(property_names.RESERVED), MARK, "ORBIT_ROW", "__RMQ.TRANSIENT.x", "TAG", "KEYS2"]
    ),
    st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), max_size=5),
)
_values = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), max_size=5)
_raw = st.lists(
    st.sampled_from(["\x01", "\x02", "a", "é", "TAGS", "UNIQ_KEY", "WAIT"]), max_size=12
).map("".join)


def _kept(properties: dict[str, str], *said: str) -> dict[str, str]:
    """What the plain form keeps."""
    dropped = property_names.RESERVED - {"KEYS", "TAGS", "__SHARDINGKEY"} | {
        MARK,
        "ORBIT_ROW",
        *said,
    }
    return {
        name: value
        for name, value in properties.items()
        if name not in dropped
        and not name.startswith("__RMQ")
        and name not in {"INNER_NUM", "INNER_BASE", "INNER_MULTI_DISPATCH"}
        and name
        and value
    }


@given(st.lists(st.one_of(st.none(), _raw), max_size=8))
def test_texts_keep_what_the_plain_form_keeps(rows: list[str | None]) -> None:
    texts = texts_of(pa.array(rows, pa.string()), left_out("TAGS"))

    for text, raw in zip(texts.to_pylist(), rows, strict=True):
        # As entries: two of the same name both stay.
        assert decode_properties(text) == _kept(decode_properties((raw or "").encode()), "TAGS")


@given(st.lists(st.one_of(st.none(), st.dictionaries(_names, _values, max_size=6)), max_size=8))
def test_maps_keep_what_the_plain_form_keeps(rows: list[dict[str, str] | None]) -> None:
    column = pa.array([None if row is None else list(row.items()) for row in rows], MAP)

    texts = texts_of(column, left_out("KEYS"))

    assert [decode_properties(text) for text in texts.to_pylist()] == [
        _kept(row or {}, "KEYS") for row in rows
    ]


def test_nothing_that_would_delay_the_copy_or_make_it_wait_is_kept() -> None:
    names = """
        DELAY REAL_TOPIC REAL_QID TRAN_MSG PGROUP TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DELIVER_MS
        TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_ROLL_LABEL TIMER_OUT_MS
        TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL __transactionId__ own
    """
    stored = "".join(f"{name}\x011\x02" for name in names.split())

    assert texts_of(pa.array([stored]), left_out()).to_pylist() == [b"own\x011\x02"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a\x01b\x02", "c\x01d", None, "e\x01f"], pa.string()),
        pa.array([[("a", "b")], [("c", "d")], None, [("e", "f")]], MAP),
    ],
)
def test_a_part_of_a_column_is_read_as_that_part(column: pa.Array) -> None:
    assert texts_of(column.slice(1, 3), left_out()).to_pylist() == [
        b"c\x01d\x02",
        b"",
        b"e\x01f\x02",
    ]


def test_values_of_a_map_may_be_null() -> None:
    column = pa.array([[("a", None), ("b", "c")]], MAP)

    assert texts_of(column, left_out()).to_pylist() == [b"b\x01c\x02"]


@pytest.mark.parametrize("bad", [("a\x01", "b"), ("a", "b\x02c")])
def test_a_map_with_separators_is_refused_by_its_row(bad: tuple[str, str]) -> None:
    column = pa.array([[("a", "b"), ("c", "d")], [], [bad], [bad]], MAP)

    with pytest.raises(RowRefused, match="contains a separator") as refused:
        texts_of(column, left_out())

    assert refused.value.row == 2


def test_an_entry_without_a_value_is_dropped() -> None:
    some, all_of_them = filled(pa.array(["a", None, "", "b"])), filled(pa.array(["a", "b"]))

    assert joined(*entry_parts("TAGS", some)).to_pylist() == [
        b"TAGS\x01a\x02",
        b"",
        b"",
        b"TAGS\x01b\x02",
    ]
    assert joined(*entry_parts("TAGS", all_of_them)).to_pylist() == [
        b"TAGS\x01a\x02",
        b"TAGS\x01b\x02",
    ]


@pytest.mark.parametrize(("start", "row"), [(0, 2), (1, 1), (2, 0)])
def test_separators_are_found_by_row_also_in_a_part_of_a_column(start: int, row: int) -> None:
    texts: Any = pa.array([b"ab", b"c", b"d\x02", b"\x01"])

    with pytest.raises(RowRefused) as refused:
        check_separators(texts.slice(start), "it")
    check_separators(texts.slice(0, 2), "it")

    assert refused.value.row == row
