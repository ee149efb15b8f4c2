"""Searches of entries in blocks: the same answers as entry by entry."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.record.scan import ENTRY
from orbitmq.store.index.entry_search import end_where, in_blocks, is_zero, start_where


@given(
    first=st.integers(0, 1_000),
    good=st.integers(0, 1_500),
    zeros=st.integers(0, 600),
    per_file=st.integers(1, 700),
    damaged=st.lists(st.integers(0, 1_500), max_size=3),
)
def test_a_search_in_blocks_finds_what_one_by_single_entries_finds(
    first: int, good: int, zeros: int, per_file: int, damaged: list[int]
) -> None:
    entries = [
        bytes(ENTRY.size) if number in damaged else ENTRY.pack(number + 1, 1, 0)
        for number in range(good)
    ] + [bytes(ENTRY.size)] * zeros
    high = first + good + zeros

    def read(number: int, count: int) -> bytes:
        if number < first:
            return b""
        count = min(count, per_file - (number - first) % per_file)
        return b"".join(entries[number - first : number - first + count])

    def holds(entry: tuple[int, int, int]) -> bool:
        return entry[1] > 0

    end = end_where(read, holds, first, high)
    assert end_where(in_blocks(read, first), holds, first, high) == end

    def is_late(entry: tuple[int, int, int]) -> bool:
        return entry[0] > good // 2

    start = start_where(read, is_late, first, first + good)
    assert start_where(in_blocks(read, first), is_late, first, first + good) == start


def test_zero_bytes_are_told_from_others() -> None:
    assert is_zero(b"")
    assert is_zero(bytes(5_000))
    assert not is_zero(bytes(4_999) + b"\1")
