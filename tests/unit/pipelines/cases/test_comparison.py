"""Rows are compared in any order, by the columns that a case names."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from orbitmq.errors import SettingsError
from orbitmq.pipelines.cases.comparison import difference


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ([{"a": 1}, {"a": 2}], [{"a": 2, "b": 0}, {"a": 1, "b": 0}]),
        ([{"a": 80}], [{"a": Decimal("80.00")}]),
        ([{"a": Decimal("1.1")}], [{"a": Decimal("1.10")}]),
        ([{"a": {"b": 1, "c": [None, Decimal("2.0")]}}], [{"a": {"c": [None, 2], "b": 1}}]),
        ([{"a": Decimal("1e999999999")}], [{"a": Decimal("1e999999999")}]),
        ([], []),
    ],
)
def test_rows_that_are_the_same_do_not_differ(expected: list[Any], actual: list[Any]) -> None:
    assert not difference("alerts", expected, actual)


def test_rows_are_named_as_often_as_they_are_missing_or_unexpected() -> None:
    found = difference("alerts", [{"a": 1}, {"a": 1}, {"a": "2"}], [{"a": 1}, {"a": 2}])

    assert found.missing == ('{"a": "2"}', '{"a": 1}')
    assert found.unexpected == ('{"a": 2}',)


def test_no_row_is_expected_where_a_file_is_empty() -> None:
    assert difference("alerts", [], [{"a": None}]).unexpected == ('{"a": null}',)


def test_a_column_that_is_not_there_is_named_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match=r"of alerts have no column itm .*did you mean item\?"):
        difference("alerts", [{"itm": 1}], [{"item": 1}])
