"""Unique ids: layout and uniqueness."""

from __future__ import annotations

import os

from orbitmq.clock import ManualClock
from orbitmq.model.unique_ids import UniqueIdRanges, UniqueIds


def test_an_id_consists_of_address_process_time_and_counter() -> None:
    clock = ManualClock()
    ids = UniqueIds("10.1.2.3", clock.now_ms)

    first, second = ids.make(), ids.make()

    assert len(first) == 32
    assert first.startswith("0A010203" + f"{os.getpid() & 0xFFFF:04X}")
    assert first[:28] == second[:28]
    assert (int(first[28:], 16) + 1) & 0xFFFF == int(second[28:], 16)


async def test_the_time_of_an_id_counts_from_the_start_of_its_month() -> None:
    clock = ManualClock()
    ids = UniqueIds("10.1.2.3", clock.now_ms)
    before = int(ids.make()[20:28], 16)

    await clock.advance(1500)
    later = int(ids.make()[20:28], 16)
    await clock.advance(40 * 86_400_000)
    next_month = int(ids.make()[20:28], 16)

    assert later == before + 1500
    assert next_month < 31 * 86_400_000


def test_an_ipv6_address_makes_a_longer_id() -> None:
    assert len(UniqueIds("::1", ManualClock().now_ms).make()) == 56


async def test_ranges_never_overlap_and_carry_the_time() -> None:
    clock = ManualClock()
    ranges = UniqueIdRanges("10.1.2.3", clock.now_ms)

    head, first = ranges.take(100_000)
    same_head, second = ranges.take(5)
    await clock.advance(1500)
    later_head, third = ranges.take(5)

    assert len(head) == 20
    assert head.startswith("0A010203" + f"{os.getpid() & 0xFFFF:04X}")
    assert head == same_head == later_head
    assert second == first + 100_000
    assert third == first + (1500 << 16)


def test_ranges_of_another_month_have_another_generator() -> None:
    now_ms = [1_700_000_000_000]  # a 14th of the month
    ranges = UniqueIdRanges("10.1.2.3", lambda: now_ms[0])
    head, first = ranges.take(5)

    now_ms[0] += 20 * 86_400_000
    next_head, number = ranges.take(5)

    assert next_head[:12] == head[:12]
    assert next_head != head
    assert number < first
