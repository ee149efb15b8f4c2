"""Halves that are checked together are few, and small together."""

from __future__ import annotations

from orbitmq.broker.transactions.check_back import slices
from orbitmq.broker.transactions.half_messages import Half

MIB = 1024 * 1024


def half(number: int, record_bytes: int) -> Half:
    return Half(
        first_offset=number,
        offset=number,
        physical_offset=number * record_bytes,
        record_bytes=record_bytes,
        topic="T",
        queue_id=0,
        checks=0,
        since_ms=0,
        immunity_ms=None,
    )


def test_small_halves_are_handled_64_at_a_time() -> None:
    halves = [half(number, 300) for number in range(150)]

    parts = list(slices(halves))

    assert [len(part) for part in parts] == [64, 64, 22]
    assert [each for part in parts for each in part] == halves


def test_large_halves_are_handled_by_the_mebibyte() -> None:
    sizes = [4 * MIB, MIB // 2, MIB // 2, 1, 4 * MIB, 300]
    halves = [half(number, size) for number, size in enumerate(sizes)]

    parts = list(slices(halves))

    assert [[each.record_bytes for each in part] for part in parts] == [
        [4 * MIB],
        [MIB // 2, MIB // 2],
        [1],
        [4 * MIB],
        [300],
    ]


def test_no_halves_make_no_slice() -> None:
    assert list(slices([])) == []
