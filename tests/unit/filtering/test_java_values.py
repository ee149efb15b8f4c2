"""Strings parsed and numbers compared as in Java."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import FilterEvaluationError
from orbitmq.filtering.java_values import (
    compare_doubles,
    read_boolean,
    read_double,
    read_integer,
    read_long,
)


@given(st.integers(-(2**31), 2**31 - 1))
def test_every_whole_number_of_32_bits_is_read(number: int) -> None:
    assert read_integer(str(number)) == read_long(str(number)) == number


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**63 - 1, -(2**63)])
def test_a_number_beyond_32_bits_needs_64(number: int) -> None:
    assert read_long(str(number)) == number
    with pytest.raises(FilterEvaluationError, match="not a whole number of 32 bits"):
        read_integer(str(number))


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**25])
def test_a_number_beyond_64_bits_is_refused(number: int) -> None:
    with pytest.raises(FilterEvaluationError, match="not a whole number of 64 bits"):
        read_long(str(number))


def test_a_number_longer_than_python_parses_is_refused_with_the_same_text() -> None:
    with pytest.raises(FilterEvaluationError, match="not a whole number of 64 bits"):
        read_long("1" + "0" * 10_000)


@pytest.mark.parametrize("read", [read_integer, read_long, read_double])
@pytest.mark.parametrize("text", ["0" * 257, "9" * 32_000 + "x", "1" * 16_000 + "e" + "1" * 16_000])
def test_text_of_more_than_256_characters_is_no_number(
    read: Callable[[str], float], text: str
) -> None:
    with pytest.raises(FilterEvaluationError, match="is not"):
        read(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [("+5", 5), ("-0", 0), ("0" * 255 + "5", 5), ("-" + "0" * 30, 0), ("١٢", 12), ("\uff15", 5)],
)
def test_unusual_spellings_of_whole_numbers_are_read(text: str, number: int) -> None:
    assert read_integer(text) == number


@pytest.mark.parametrize(
    "text", ["", " ", "5 ", " 5", "5.0", "1_000", "0x5", "5L", "+", "-", "--5", "²", "\U0001d7d3"]
)
def test_an_invalid_whole_number_is_refused_with_its_text(text: str) -> None:
    for read in (read_integer, read_long):
        with pytest.raises(FilterEvaluationError) as refusal:
            read(text)
        assert repr(text) in str(refusal.value)


@given(st.floats(allow_nan=False))
def test_every_double_is_read(number: float) -> None:
    text = repr(number).replace("inf", "Infinity")

    assert read_double(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5", 5.0),
        (" \t5.\n", 5.0),
        (".5", 0.5),
        ("5d", 5.0),
        ("1e3F", 1000.0),
        ("1e400", math.inf),
        ("-1e400", -math.inf),
        ("+Infinity", math.inf),
        ("0x1.8p1", 3.0),
        ("-0X.8P+2d", -2.0),
        ("0x1p99999", math.inf),
        ("-0x1p99999", -math.inf),
        ("0x1p-99999", 0.0),
    ],
)
def test_unusual_spellings_of_doubles_are_read(text: str, number: float) -> None:
    assert read_double(text) == number


@pytest.mark.parametrize("text", ["NaN", "-NaN", "+NaN"])
def test_nan_is_read(text: str) -> None:
    assert math.isnan(read_double(text))


@pytest.mark.parametrize(
    "text",
    ["", " ", "nan", "inf", "infinity", "NaNf", "1_0", "5L", "0x10", "e5", "1e", "1e+", ".", "-", "\uff15",
     "5 5", "\u00a05", "1.2.3", "0xp1"],
)  # fmt: skip
def test_an_invalid_double_is_refused(text: str) -> None:
    with pytest.raises(FilterEvaluationError, match="is not a number"):
        read_double(text)


@pytest.mark.parametrize(
    ("text", "boolean"), [("true", True), ("TRUE", True), ("tRue", True), ("1", False), ("", False)]
)
def test_only_true_is_true(text: str, *, boolean: bool) -> None:
    assert read_boolean(text) is boolean


def test_doubles_have_one_order_with_nan_on_top_and_two_zeros() -> None:
    ascending = [-math.inf, -1.0, -0.0, 0.0, 5e-324, 1.0, math.inf, math.nan]

    for at, left in enumerate(ascending):
        for other, right in enumerate(ascending):
            assert (compare_doubles(left, right) > 0) == (at > other)
            assert (compare_doubles(left, right) < 0) == (at < other)
