"""Rounds: jobs take turns, and the loop serves others between slices."""

from __future__ import annotations

import asyncio
from functools import partial

from orbitmq.broker.delivery.rounds import SLICE_MS, Rounds
from orbitmq.clock import ManualClock, settle
from tests.busy_clock import BusyClock


async def test_connections_take_turns_job_by_job() -> None:
    rounds = Rounds(ManualClock())
    done: list[str] = []
    for name in ("a1", "a2", "a3", "b1", "c1", "c2"):
        rounds.add(name[0], partial(done.append, name))

    await settle()

    assert done == ["a1", "b1", "c1", "a2", "c2", "a3"]


async def test_the_loop_serves_others_between_slices() -> None:
    clock = BusyClock()
    rounds = Rounds(clock)
    loop = asyncio.get_running_loop()
    done: list[str] = []

    def work(name: str) -> None:
        done.append(name)
        clock.pass_ms(SLICE_MS)
        loop.call_soon(done.append, "other")

    for name in ("1", "2", "3"):
        rounds.add("a", partial(work, name))
    await settle()

    assert done == ["1", "other", "2", "other", "3", "other"]


async def test_work_may_begin_at_once_while_the_turn_has_time_and_nothing_waits() -> None:
    rounds = Rounds(ManualClock())

    assert rounds.has_time
    rounds.spend(SLICE_MS)
    assert not rounds.has_time
    await settle()
    assert rounds.has_time

    rounds.add("a", lambda: None)
    assert not rounds.has_time
    await settle()
    assert rounds.has_time
