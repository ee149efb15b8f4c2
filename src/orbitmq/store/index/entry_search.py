"""Searching the entries of a queue by halving, without trusting a single one.

Entries have no checksum. A flipped bit in an entry that a plain bisection looks at would end the
queue there, or begin it there, and so would a page of zero bytes where the disk lost a write. So the
neighbours of what was found must agree; where they do not, the search goes on in the direction that
keeps more entries. Readers report the damaged ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orbitmq.record.scan import ENTRY

# More than a page of memory holds: what a disk loses or damages at once.
_NEIGHBOURS: Final = 256

Entry = tuple[int, int, int]
# Reads up to so many entries from a number on, fewer at the end of a file; none if it is missing.
ReadEntries = Callable[[int, int], bytes]


def end_where(read: ReadEntries, holds: Callable[[Entry], bool], low: int, high: int) -> int:
    """Find the end of the entries for which a condition holds; those come first."""
    end = _bisect(read, holds, low, high)
    while (later := _find(read, holds, end + 1, min(end + 1 + _NEIGHBOURS, high))) is not None:
        end = _bisect(read, holds, later + 1, high)
    return end


def start_where(read: ReadEntries, holds: Callable[[Entry], bool], low: int, high: int) -> int:
    """Find the start of the entries for which a condition holds; those come last.

    For an entry of zero bytes the next other one tells, however many there are.
    """

    def is_before(number: int) -> bool:
        entry = _known_from(read, number, high)
        return entry is not None and not holds(entry)

    start = first_not(is_before, low, high)
    while (earlier := _find(read, holds, max(low, start - _NEIGHBOURS), start)) is not None:
        start = first_not(is_before, low, earlier)
    return start


def in_blocks(read: ReadEntries, low: int) -> ReadEntries:
    """Read many entries at a time where a search that begins at `low` looks at neighbours."""
    # Perf: a queue of a few entries is loaded with one read instead of fourteen
    # (benchmarks/broker_start.py).
    kept_first, kept, last = 0, b"", low

    def read_kept(number: int, count: int) -> bytes:
        nonlocal kept_first, kept, last
        at = (number - kept_first) * ENTRY.size
        if not 0 <= at < len(kept) and abs(number - last) <= _NEIGHBOURS:
            kept_first = max(low, number // _NEIGHBOURS * _NEIGHBOURS)
            kept = read(kept_first, _NEIGHBOURS)
            at = (number - kept_first) * ENTRY.size
        last = number
        content = kept[at : at + count * ENTRY.size] if at >= 0 else b""
        # A block ends with its file.
        return content if len(content) == count * ENTRY.size else read(number, count)

    return read_kept


def is_zero(content: bytes) -> bool:
    """Whether there are only zero bytes."""
    # Perf: counting them takes 40 us for a page, comparing a tenth of a microsecond.
    return content == bytes(len(content))


def first_not(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Find, by bisection, the first number for which the condition no longer holds."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            low = middle + 1
        else:
            high = middle
    return low


def _bisect(read: ReadEntries, holds: Callable[[Entry], bool], low: int, high: int) -> int:
    def holds_at(number: int) -> bool:
        content = read(number, 1)
        return len(content) == ENTRY.size and holds(ENTRY.unpack(content))

    return first_not(holds_at, low, high)


def _known_from(read: ReadEntries, number: int, end: int) -> Entry | None:
    """The first entry from a number on that is not zero bytes; None if there is none."""
    content = read(number, 1)
    while content and is_zero(content):
        number += len(content) // ENTRY.size
        content = read(number, min(_NEIGHBOURS, end - number))
    at = (len(content) - len(content.lstrip(bytes(1)))) // ENTRY.size * ENTRY.size
    return ENTRY.unpack_from(content, at) if len(content) >= at + ENTRY.size else None


def _find(read: ReadEntries, holds: Callable[[Entry], bool], first: int, end: int) -> int | None:
    """Find the first entry in a range for which a condition holds; None if there is none."""
    while first < end:
        content = read(first, end - first)
        count = len(content) // ENTRY.size
        if not is_zero(content):
            for at, entry in enumerate(ENTRY.iter_unpack(content[: count * ENTRY.size])):
                if holds(entry):
                    return first + at
        if not count:
            return None
        first += count
    return None
