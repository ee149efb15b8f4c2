"""Durations and types of columns."""

from __future__ import annotations

import pytest

from orbitmq.pipelines.file.values import duration_ms, wrong_word_in_type


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("500 ms", 500),
        ("1 second", 1000),
        ("10s", 10_000),
        ("5 minutes", 300_000),
        ("2 Hours", 7_200_000),
        ("1 day", 86_400_000),
        ("0 s", None),
        ("999999999 days", None),
        ("soon", None),
        ("5 parsecs", None),
        ("-1 s", None),
    ],
)
def test_lengths_of_time_have_a_number_and_a_unit(text: str, expected_ms: int | None) -> None:
    assert duration_ms(text) == expected_ms


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("bigint", None),
        ("DECIMAL(12, 2)", None),
        ("map<string, array<struct<a: int, b decimal>>>", None),
        ("timestamp", None),
        ("stringg", "stringg"),
        ("array<stringg>", "stringg"),
        ("array<int", "the end"),
        ("decimal(99)", "99"),
        ("int int", "int"),
        ("int;", ";"),
        ("", "the end"),
        ("array<" * 100, "array"),
    ],
)
def test_the_first_wrong_word_of_a_type_is_found(text: str, wrong: str | None) -> None:
    assert wrong_word_in_type(text) == wrong


@pytest.mark.timeout(5)
def test_a_type_of_many_fields_is_read_at_once() -> None:
    assert wrong_word_in_type(f"struct<{'a: int,' * 100_000} a: int>") is None
