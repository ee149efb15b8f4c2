"""The page of performance tables shows the results that are kept."""

from __future__ import annotations

from benchmarks.performance_page import PAGE, with_tables


def test_the_tables_of_the_page_are_those_of_the_results() -> None:
    page = PAGE.read_text()

    assert page == with_tables(page), "write it anew: python -m benchmarks.performance_page"
    assert page.count("<!-- end -->") == 16
