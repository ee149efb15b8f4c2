"""Filters: which records and tags they accept."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.broker.delivery.filters import EVERYTHING, make_filter
from orbitmq.errors import FilterSyntaxError
from orbitmq.java_hash import java_hash
from tests.unit.store.stores import message, open_store


@pytest.mark.parametrize("expression", ["*", ""])
@pytest.mark.parametrize("expression_type", ["", "TAG"])
def test_without_a_filter_everything_matches(expression: str, expression_type: str) -> None:
    assert make_filter(expression, expression_type) is EVERYTHING


def test_tags_are_matched_by_their_hash_alone() -> None:
    made = make_filter("a || größe", "TAG")

    assert made.accepts_record is None
    assert made.accepts_tag is not None
    assert [made.accepts_tag(java_hash(tag)) for tag in ("a", "größe", "b")] == [True, True, False]


def test_sql_is_matched_against_the_properties_of_a_record(tmp_path: Path) -> None:
    made = make_filter("price > 3 AND place = 'Köln'", "SQL92")
    with open_store(tmp_path) as store:
        records = [
            store.record_at(store.put(message(properties=properties)).physical_offset)
            for properties in (
                {"price": "4", "place": "Köln"},
                {"price": "3", "place": "Köln"},
                {"place": "Köln"},
            )
        ]

    assert made.accepts_tag is None
    assert made.accepts_record is not None
    assert [made.accepts_record(record or b"") for record in records] == [True, False, False]


def test_a_damaged_record_matches_nothing() -> None:
    made = make_filter("price IS NULL", "SQL92")

    assert made.accepts_record is not None
    assert not made.accepts_record(b"\0" * 100)


@pytest.mark.parametrize(
    ("expression", "expression_type", "told"),
    [("a >", "SQL92", "column"), ("a", "XPATH", "'XPATH'.*TAG or SQL92")],
)
def test_an_invalid_expression_is_an_error(
    expression: str, expression_type: str, told: str
) -> None:
    with pytest.raises(FilterSyntaxError, match=told):
        make_filter(expression, expression_type)
