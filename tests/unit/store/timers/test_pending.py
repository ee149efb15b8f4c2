"""Pages of pending messages: each once, without those recalled, and none of any cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.store.timers import pending
from orbitmq.store.timers.pending import PendingTimers, Place
from tests.unit.store.timers.timer_stores import NOW_MS, TimerStore

FOREVER_MS = 2**62
DUE_MS = NOW_MS + 60_500
NAMES = [f"m{number}" for number in range(40)]
RECALLED = NAMES[::3]


@pytest.fixture
def one_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TimerStore:
    """Forty messages of one second, of which every third is recalled, newest; pages of few units."""
    monkeypatch.setattr(pending, "_RUN_UNITS", 4)
    monkeypatch.setattr(pending, "SLICE_UNITS", 8)
    timers = TimerStore(tmp_path, ManualClock(NOW_MS))
    for name in NAMES:
        timers.send(name, DUE_MS)
    for name in RECALLED:
        timers.recall(name, DUE_MS)
    timers.take_in()
    return timers


def listed(reader: PendingTimers, place: Place | None, *, pages_max: int = 100) -> list[str]:
    names: list[str] = []
    for _ in range(pages_max):
        if place is None:
            return names
        found, place, _ = reader.page(place, FOREVER_MS, 3)
        assert len(found) <= 8
        names += [message.body.decode() for _, message in found]
    raise AssertionError("the list does not end")


def test_pages_of_one_second_have_each_message_once(one_second: TimerStore) -> None:
    reader = PendingTimers(one_second.store, one_second.timers)

    assert sorted(listed(reader, Place(0))) == sorted(set(NAMES) - set(RECALLED))


def test_a_page_inside_a_second_knows_the_recalls_above_it(one_second: TimerStore) -> None:
    reader = PendingTimers(one_second.store, one_second.timers)
    place: Place | None = Place(0)
    names: list[str] = []
    while not names:
        assert place is not None
        found, place, _ = reader.page(place, FOREVER_MS, 3)
        names += [message.body.decode() for _, message in found]

    after_a_restart = PendingTimers(one_second.store, one_second.timers)
    names += listed(after_a_restart, place)

    assert sorted(names) == sorted(set(NAMES) - set(RECALLED))


def test_lists_side_by_side_do_not_hold_each_other_up(one_second: TimerStore) -> None:
    first = PendingTimers(one_second.store, one_second.timers)
    place: Place | None = Place(0)
    places: list[Place] = []
    while place is not None:
        places.append(place)
        place = first.page(place, FOREVER_MS, 3).next_place
    near, far = places[-3], places[-1]
    reader = PendingTimers(one_second.store, one_second.timers)

    begun: dict[Place, Place | None] = {near: near, far: far}
    for _ in range(20):
        for begin, now in begun.items():
            if now == begin:
                begun[begin] = reader.page(begin, FOREVER_MS, 3).next_place

    assert all(now != begin for begin, now in begun.items())


def test_slices_of_the_wheel_miss_nothing_and_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "SLICE_SLOTS", 3)
    timers = TimerStore(tmp_path, ManualClock(NOW_MS))
    dues = [NOW_MS + seconds * 1000 + 500 for seconds in (1, 3, 4, 9, 10, 11, 30)]
    for due_ms in dues:
        timers.send(str(due_ms), due_ms)
    timers.take_in()
    reader = PendingTimers(timers.store, timers.timers)

    counted: list[int] = []
    next_ms, slices = 1, 0
    while next_ms:
        counts, next_ms = reader.count(next_ms, FOREVER_MS)
        counted += [slot_ms for slot_ms, count in counts for _ in range(count)]
        slices += 1

    assert counted == [due_ms - 500 for due_ms in dues]
    assert slices == 11
    assert listed(reader, Place(0)) == [str(due_ms) for due_ms in dues]
    assert listed(reader, Place(NOW_MS + 11_000)) == [str(due_ms) for due_ms in dues[-2:]]


@pytest.mark.parametrize("rolls", [["0", "1"], ["", "1", "2"]])
def test_a_message_that_rocketmq_put_off_is_found_once(tmp_path: Path, rolls: list[str]) -> None:
    timers = TimerStore(tmp_path, ManualClock(NOW_MS))
    for times in rolls:
        timers.send("a", DUE_MS, TIMER_ROLL_TIMES=times)
    timers.take_in()

    found = PendingTimers(timers.store, timers.timers).find("a")

    assert [message.properties["TIMER_ROLL_TIMES"] for message in found.messages] == [rolls[-1]]


def test_messages_of_one_id_and_second_are_all_found(tmp_path: Path) -> None:
    timers = TimerStore(tmp_path, ManualClock(NOW_MS))
    timers.send("a", DUE_MS)
    timers.send("a", DUE_MS)
    timers.send("a", DUE_MS, REAL_TOPIC="other")
    timers.recall("a", DUE_MS + 5000)
    timers.take_in()

    assert len(PendingTimers(timers.store, timers.timers).find("a").messages) == 3
