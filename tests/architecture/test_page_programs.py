"""Every Java and Go block of a page is one that the interop suite runs."""

from __future__ import annotations

from collections import Counter

from tests.interop.page_programs import NOT_RUN, PROGRAMS, foreign_blocks, place


def test_every_java_and_go_block_of_a_page_has_its_row() -> None:
    shown = Counter(place(block) for block in foreign_blocks())
    run = Counter((row.page, row.language) for row in PROGRAMS)

    assert {where: count for where, count in shown.items() if where not in NOT_RUN} == run
