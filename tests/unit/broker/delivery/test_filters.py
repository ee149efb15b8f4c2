"""Filters: which records and tags they accept."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.broker.delivery.filters import EVERYTHING, FilterCache, make_filter
from orbitmq.clock import ManualClock
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


def test_the_cache_is_bounded_in_bytes_and_drops_what_was_used_longest_ago() -> None:
    cache = FilterCache(bytes_max=1_000_000)
    small = cache.get("a || b", "TAG")

    for number in range(100):
        cache.get(f"a > {number} OR " * 50 + "a = 1", "SQL92")
        assert cache.get("a || b", "TAG") is small
        assert cache.kept_bytes <= 1_000_000

    assert 10 < len(cache) < 50


def test_the_cache_is_bounded_in_entries() -> None:
    cache = FilterCache(count_max=10)

    made = [cache.get(f"tag{number}", "TAG") for number in range(100)]

    assert len(cache) == 10
    assert cache.get("tag99", "TAG") is made[99]


def test_a_refused_expression_is_not_compiled_again() -> None:
    cache = FilterCache()
    errors: list[FilterSyntaxError] = []
    for _ in range(2):
        with pytest.raises(FilterSyntaxError) as raised:
            cache.get("a >", "SQL92")
        errors.append(raised.value)

    assert errors[0] is errors[1]
    assert len(cache) == 1


def test_a_filter_stops_when_its_time_is_over_but_not_before_the_first_record(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    made = make_filter("price > 3", "SQL92")
    with open_store(tmp_path) as store:
        record = store.record_at(store.put(message(properties={"price": "4"})).physical_offset)

        check = made.record_filter(clock, 0)

        assert check is not None
        assert record is not None
        assert [check(record), check(record)] == [True, None]
