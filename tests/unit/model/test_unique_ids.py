"""Unique ids: layout and uniqueness."""

from __future__ import annotations

import os

from orbitmq.clock import ManualClock
from orbitmq.model.unique_ids import UniqueIds


def test_an_id_holds_address_process_time_and_counter() -> None:
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
