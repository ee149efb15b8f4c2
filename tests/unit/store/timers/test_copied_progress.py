"""A store that was a copy of an official master's: what that delivered is not delivered again."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.store.timers.timer_progress import TimerProgress
from tests.unit.store.timers.timer_stores import NOW_MS, TimerStore


async def copied_store(root: Path, clock: ManualClock, **dues_ms: int) -> None:
    """Make the log of a slave: with timer messages, and without files of timers."""
    slave = TimerStore(root, clock)
    for name, due_ms in dues_ms.items():
        slave.send(name, due_ms)
    slave.store.close()


async def test_only_what_the_master_had_not_delivered_is_delivered(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    await copied_store(
        tmp_path, clock, done=NOW_MS + 1_500, slot=NOW_MS + 5_500, later=NOW_MS + 60_500
    )
    await clock.advance(10_000)

    progress = TimerProgress(read_ms=NOW_MS + 5_000, queue_offset=3)
    promoted = TimerStore(tmp_path, clock, copied=progress)
    early = promoted.deliver()
    promoted.close()
    # Its own progress counts from now on.
    again = TimerStore(tmp_path, clock, copied=progress)
    repeated = again.deliver()
    await clock.advance(60_000)

    assert (early, repeated, again.deliver()) == (["slot"], [], ["later"])
    again.close()


async def test_what_the_master_had_not_taken_in_is_delivered_whatever_its_time(
    tmp_path: Path,
) -> None:
    clock = ManualClock(NOW_MS)
    await copied_store(tmp_path, clock, done=NOW_MS + 1_500, not_seen=NOW_MS + 1_600)
    await clock.advance(10_000)

    progress = TimerProgress(read_ms=NOW_MS + 9_000, queue_offset=1)
    promoted = TimerStore(tmp_path, clock, copied=progress)

    assert promoted.deliver() == ["not_seen"]
    promoted.close()


@pytest.mark.parametrize("queue_offset", [0, 5])
async def test_a_progress_without_a_time_says_nothing(tmp_path: Path, queue_offset: int) -> None:
    clock = ManualClock(NOW_MS)
    await copied_store(tmp_path, clock, a=NOW_MS + 1_500, b=NOW_MS + 2_500)
    await clock.advance(10_000)

    promoted = TimerStore(
        tmp_path, clock, copied=TimerProgress(read_ms=0, queue_offset=queue_offset)
    )

    assert promoted.deliver() == ["a", "b"]
    promoted.close()
