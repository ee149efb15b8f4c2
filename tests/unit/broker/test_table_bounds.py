"""Pages of a table, as slaves ask for them."""

from __future__ import annotations

import pytest

from orbitmq.broker.table_bounds import page_of

TABLE = {name: name.upper() for name in "abcdef"}


@pytest.mark.parametrize(
    ("first", "count_max", "names"),
    [
        (None, None, "abcdef"),
        (0, 2, "ab"),
        (2, 2, "cd"),
        (4, 2, "ef"),
        (6, 2, ""),
        (None, 100, "abcdef"),
        (-5, -5, "a"),
        (2**31 - 1, 2**31 - 1, ""),
    ],
)
def test_a_page_begins_where_it_was_asked_for(
    first: int | None, count_max: int | None, names: str
) -> None:
    assert page_of(TABLE, first, count_max) == {name: name.upper() for name in names}


@pytest.mark.parametrize(("first", "count_max"), [(0, 5), (3, 2), (4, 1)])
def test_a_page_never_leaves_a_single_entry(first: int, count_max: int) -> None:
    assert "f" in page_of(TABLE, first, count_max)
