"""What opening the timers of a store reads, keeps and repeats, after kills and failures."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq.clock import ManualClock
from orbitmq.errors import StoreError
from orbitmq.store.timers.due_slot import DueSlot
from orbitmq.store.timers.layout import AHEAD_MS_MAX
from orbitmq.store.timers.timer_log import FOLDER
from tests.unit.store.stores import message
from tests.unit.store.timers.timer_stores import NOW_MS, TimerStore

SEARCHED = "delivered timer messages searched"
PLAIN_BYTES = 1 << 20
OPTIONS: dict[str, Any] = {"log_file_bytes": 8 << 20}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def timers(tmp_path: Path, clock: ManualClock) -> Iterator[TimerStore]:
    opened = TimerStore(tmp_path / "store", clock, **OPTIONS)
    yield opened
    opened.store.close()


def _killed(timers: TimerStore, folder: Path) -> TimerStore:
    """Open a copy of what a kill would leave now."""
    shutil.copytree(timers.root, folder)
    return TimerStore(folder, timers.clock, **OPTIONS)


def _searched_bytes(caplog: pytest.LogCaptureFixture) -> list[int]:
    return [
        int(str(record.args[1]))
        for record in caplog.records
        if record.msg.startswith(SEARCHED) and isinstance(record.args, tuple)
    ]


def _put_plain(timers: TimerStore, count: int) -> None:
    for _ in range(count):
        timers.store.put(message(bytes(PLAIN_BYTES)))


def test_a_store_without_timers_is_not_searched_for_copies(
    timers: TimerStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    _put_plain(timers, 3)

    _killed(timers, tmp_path / "again").close()

    assert _searched_bytes(caplog) == []


def test_before_the_first_save_copies_are_searched_from_the_first_timer_on(
    timers: TimerStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    _put_plain(timers, 3)
    timers.send("a", NOW_MS)
    timers.deliver()

    again = _killed(timers, tmp_path / "again")
    again.deliver()

    assert again.delivered()[3:] == ["a"]
    assert 0 < _searched_bytes(caplog)[0] < PLAIN_BYTES
    again.close()


def test_the_search_is_bounded_though_no_timer_was_used_since_the_last_save(
    timers: TimerStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    timers.send("a", NOW_MS + 5000)
    timers.deliver()
    timers.timers.save()
    _put_plain(timers, 20)
    timers.timers.save()

    _killed(timers, tmp_path / "again").close()

    assert sum(_searched_bytes(caplog)) < 17 * PLAIN_BYTES


async def test_a_message_due_in_weeks_is_delivered_once_though_a_kill_follows_its_way_station(
    timers: TimerStore, clock: ManualClock, tmp_path: Path
) -> None:
    due_ms = NOW_MS + AHEAD_MS_MAX + 60_000
    timers.send("a", due_ms)
    timers.take_in()
    await clock.advance(AHEAD_MS_MAX)
    timers.deliver()
    timers.timers.save()

    again = _killed(timers, tmp_path / "again")
    await clock.advance(due_ms - clock.now_ms())
    again.deliver()

    assert again.delivered() == ["a"]
    again.close()


async def test_messages_are_delivered_once_though_a_second_kill_follows_a_save(
    timers: TimerStore, clock: ManualClock, tmp_path: Path
) -> None:
    names = [f"m{number:02}" for number in range(30)]
    for number, name in enumerate(names):
        timers.send(name, NOW_MS + 1100 + 100 * number)
    timers.take_in()
    timers.timers.save()
    await clock.advance(2500)
    timers.deliver()

    second = _killed(timers, tmp_path / "second")
    second.deliver(1)
    second.timers.save()
    third = _killed(second, tmp_path / "third")
    await clock.advance(10_000)
    third.deliver()

    assert third.delivered() == names
    second.store.close()
    third.close()


def test_a_message_that_is_twice_in_a_slot_is_due_once() -> None:
    slot = DueSlot()
    for offset in (30, 10, 30, 20, 10):
        slot.add(5, offset)

    assert (slot.all(), slot.count) == ([(5, 10), (5, 20), (5, 30)], 3)


class FullDisk:
    """Fails writes to the timer log while it is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        self._pwrite = os.pwrite
        monkeypatch.setattr("os.pwrite", self.pwrite)

    def pwrite(self, descriptor: int, content: Any, at: int) -> int:
        if self.is_full and FOLDER in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.ENOSPC, "injected")
        return self._pwrite(descriptor, content, at)


async def test_a_slot_that_cannot_be_begun_on_a_full_disk_is_not_skipped(
    timers: TimerStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch)
    timers.send("a", NOW_MS + 1500)
    timers.take_in()
    timers.send("b", NOW_MS + 3500)
    disk.is_full = True
    with pytest.raises(StoreError):
        timers.take_in()
    await clock.advance(5000)
    for _ in range(3):
        with pytest.raises(StoreError):
            timers.timers.move_on()

    disk.is_full = False
    timers.deliver()

    assert timers.delivered() == ["a", "b"]


async def test_a_rebuild_that_fails_halfway_is_finished_before_anything_else(
    timers: TimerStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # More than a file of the queue has, which a rebuild reads at once.
    names = [f"m{number}" for number in range(60)]
    for name in names:
        timers.send(name, NOW_MS + 1500)
    timers.take_in()
    timers.timers.save()
    (path,) = list((timers.root / FOLDER).iterdir())[:1]
    path.write_bytes(bytes(path.stat().st_size))
    disk = FullDisk(monkeypatch)
    disk.is_full = True
    await clock.advance(2000)
    with pytest.raises(StoreError):
        timers.timers.move_on()
    needed = timers.timers.needed_from()
    with pytest.raises(StoreError):
        timers.timers.close()

    disk.is_full = False
    timers.deliver()

    assert needed == 0
    assert sorted(timers.delivered()) == sorted(names)
