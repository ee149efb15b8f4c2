"""A campaign can be stopped and resumed: its page says which seeds are done."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.replication.soak import (
    FIRST_SEED,
    SEEDS,
    SEEDS_A_CLUSTER,
    Row,
    next_seeds,
    page_of,
    rows_of,
    shape_of,
)

ROWS = [
    Row(
        FIRST_SEED + number,
        str(shape_of(FIRST_SEED + number)),
        12,
        Counter(acked=1234, failed=5, unknown=6, delivered=1240, promoted=1, lossy=1, lost=7),
        result,
    )
    for number, result in enumerate(["passed", "FAILED, 2 problems: x is lost", "passed"])
]


def test_what_a_page_says_can_be_read_again(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(page_of(ROWS))

    assert rows_of(page) == ROWS
    assert "Failed: 3 of 200 schedules, failures: 1." in page.read_text()


def test_a_campaign_without_a_page_begins_with_the_first_seeds(tmp_path: Path) -> None:
    assert rows_of(tmp_path / "none.md") == []
    assert next_seeds(set())[0] == FIRST_SEED


def test_a_campaign_resumes_with_the_seeds_that_are_left_and_ends_with_the_last() -> None:
    done = {row.seed for row in ROWS}
    seeds: list[int] = []
    while left := next_seeds(done):
        assert len({shape_of(seed) for seed in left}) == 1
        seeds += left
        done |= set(left)

    assert seeds == list(range(FIRST_SEED + len(ROWS), FIRST_SEED + SEEDS))
    assert len(next_seeds(set(range(FIRST_SEED, FIRST_SEED + 4)))) == SEEDS_A_CLUSTER - 4
