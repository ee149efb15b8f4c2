"""Timers while the clock of the machine is set back or forward."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.store.timers.pending import PendingTimers
from tests.unit.store.timers.timer_stores import NOW_MS, TimerStore

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def timers(tmp_path: Path, clock: ManualClock) -> Iterator[TimerStore]:
    opened = TimerStore(tmp_path / "store", clock)
    yield opened
    opened.store.close()


def _again(timers: TimerStore, how: str, folder: Path) -> TimerStore:
    """The store after a stop, a kill, or a kill and the loss of its timer files."""
    if how == "running":
        return timers
    if how == "stopped":
        timers.close()
        return TimerStore(timers.root, timers.clock)
    shutil.copytree(timers.root, folder)
    if how == "damaged":
        shutil.rmtree(folder / "timerlog")
    return TimerStore(folder, timers.clock)


HOWS = ("running", "stopped", "killed", "damaged")
# A long jump exceeds the 32 bits of a delay in the timer log, and needs messages due after it.
JUMPS = pytest.mark.parametrize(
    ("jump_ms", "far_ms", "how"),
    [*((HOUR_MS, HOUR_MS, how) for how in HOWS), (26 * DAY_MS, 8 * DAY_MS, "damaged")],
)


def _counted(timers: TimerStore) -> int:
    reader = PendingTimers(timers.store, timers.timers)
    count, next_ms = 0, 1
    while next_ms:
        counts, next_ms = reader.count(next_ms, 2**62)
        count += sum(each for _, each in counts)
    return count


@JUMPS
def test_a_clock_set_back_delivers_nothing_early_and_all_once(
    timers: TimerStore, tmp_path: Path, how: str, jump_ms: int, far_ms: int
) -> None:
    clock = timers.clock
    timers.send("before", NOW_MS + 500)
    timers.send("after", NOW_MS + 5000)
    clock.adjust(1500)
    assert timers.deliver() == ["before"]
    timers.timers.save()

    clock.adjust(-jump_ms)
    timers.send("soon", clock.now_ms() + 100)
    timers.send("far", clock.now_ms() + far_ms)
    timers.send("recalled", clock.now_ms() + 5000)
    timers.recall("recalled", clock.now_ms() + 5000)
    early = timers.deliver()
    timers.timers.save()
    timers = _again(timers, how, tmp_path / "killed")
    early += timers.deliver()
    clock.adjust(jump_ms + far_ms)
    timers.deliver()

    assert early == []
    assert sorted(timers.delivered()) == ["after", "before", "far", "soon"]


@pytest.mark.parametrize("how", HOWS)
def test_a_clock_set_forward_delivers_what_is_due_then_and_all_once(
    timers: TimerStore, tmp_path: Path, how: str
) -> None:
    clock = timers.clock
    timers.send("soon", NOW_MS + 5000)
    timers.send("later", NOW_MS + 2 * HOUR_MS)
    assert timers.deliver() == []
    timers.timers.save()
    timers = _again(timers, how, tmp_path / "killed")

    clock.adjust(HOUR_MS)
    at_once = timers.deliver()
    clock.adjust(HOUR_MS)
    then = timers.deliver()

    assert (at_once, then) == (["soon"], ["later"])
    assert timers.delivered() == ["soon", "later"]


@JUMPS
def test_a_clock_set_forward_and_corrected_loses_and_repeats_nothing(
    timers: TimerStore, tmp_path: Path, how: str, jump_ms: int, far_ms: int
) -> None:
    clock = timers.clock
    timers.send("one", NOW_MS + 5000)
    clock.adjust(jump_ms)
    assert timers.deliver() == ["one"]
    timers.timers.save()

    clock.adjust(-jump_ms)
    due = {"two": 5000, "three": far_ms, "four": jump_ms + far_ms}
    for name, ahead_ms in due.items():
        timers.send(name, NOW_MS + ahead_ms)
    early = timers.deliver()
    timers.timers.save()
    count = _counted(timers)
    timers = _again(timers, how, tmp_path / "killed")
    early += timers.deliver()
    clock.adjust(jump_ms + far_ms)
    timers.deliver()

    assert (early, count) == ([], 3)
    assert sorted(timers.delivered()) == ["four", "one", "three", "two"]
