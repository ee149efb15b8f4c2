"""Timers of a store: what is due when, across restarts, crashes and damage."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.model.names import TIMER_TOPIC
from orbitmq.store.timers.layout import (
    AHEAD_MS_MAX,
    KEEP,
    RECALL,
    ROLL,
    UNIT,
    WHEEL_BYTES,
    slot_of,
)
from orbitmq.store.timers.timer_log import FOLDER
from tests.unit.store.timers.timer_stores import NOW_MS, TIMER_LOG_BYTES, TimerStore

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def timers(tmp_path: Path, clock: ManualClock) -> Iterator[TimerStore]:
    opened = TimerStore(tmp_path / "store", clock)
    yield opened
    opened.store.close()


async def test_a_message_is_due_at_its_own_time_and_never_early(
    timers: TimerStore, clock: ManualClock
) -> None:
    timers.send("late", NOW_MS + 1500)
    timers.send("early", NOW_MS + 1200)

    seen = []
    for _ in range(6):
        seen.append(timers.deliver())
        await clock.advance(300)

    assert seen == [[], [], [], [], ["early"], ["late"]]


@pytest.mark.parametrize("ahead_ms", [1, 999, 1000, 1001, 2000, 86_400_000, WEEK_MS, 2 * WEEK_MS])
async def test_a_message_is_not_due_a_millisecond_before_its_time(
    timers: TimerStore, clock: ManualClock, ahead_ms: int
) -> None:
    timers.send("a", NOW_MS + ahead_ms)
    timers.take_in()

    await clock.advance(ahead_ms - 1)
    before = timers.deliver()
    await clock.advance(1)

    assert (before, timers.deliver()) == ([], ["a"])


async def test_messages_of_one_millisecond_keep_the_order_of_their_sends(
    timers: TimerStore, clock: ManualClock
) -> None:
    names = [f"m{number}" for number in range(60)]
    for name in names:
        timers.send(name, NOW_MS + 700)

    await clock.advance(700)

    assert timers.deliver() == names


@pytest.mark.parametrize("key", ["without", "with"])
async def test_a_message_recalled_by_a_key_with_or_without_its_topic_is_not_delivered(
    timers: TimerStore, clock: ManualClock, key: str
) -> None:
    for name in ("a", "b"):
        timers.send(name, NOW_MS + 5000)
    timers.deliver()
    timers.recall("a", NOW_MS + 5000, with_topic=key == "with")

    await clock.advance(6000)

    assert timers.deliver() == ["b"]


@pytest.mark.parametrize("key", ["a", "orders+a", "other+a"])
async def test_a_marker_of_another_topic_takes_nothing_back(
    timers: TimerStore, clock: ManualClock, key: str
) -> None:
    timers.send("a", NOW_MS + 5000)
    timers.send("a", NOW_MS + 5000, TIMER_DEL_UNIQKEY=key, REAL_TOPIC="other")

    await clock.advance(6000)

    assert timers.deliver() == ["a"]


def test_without_timers_there_are_no_files(timers: TimerStore) -> None:
    timers.deliver()
    timers.close()

    assert not (timers.root / "timerwheel").exists()
    assert not (timers.root / FOLDER).exists()
    assert not (timers.root / "config" / "timercheck").exists()


async def test_files_have_the_bytes_that_rocketmq_writes(
    timers: TimerStore, clock: ManualClock
) -> None:
    await clock.advance(300)
    timers.send("a", NOW_MS + 5200)
    timers.send("b", NOW_MS + 5300)
    timers.recall("a", NOW_MS + 5200)
    entries = timers.store.entries(TIMER_TOPIC, 0, 0, 3)
    timers.deliver()
    timers.close()

    log = (timers.root / FOLDER / f"{0:020d}").read_bytes()
    hashed = -1008770331  # "orders".hashCode()
    assert len(log) == TIMER_LOG_BYTES
    assert log[:156] == b"".join(
        struct.pack(
            ">iqiqiqiiq", 52, number * 52 - 52 if number else -1, magic, NOW_MS, 5000, *place, due
        )
        for number, (magic, place, due) in enumerate(
            [
                (1, (*entries[0][:2], hashed), 200),
                (1, (*entries[1][:2], hashed), 300),
                (5, (*entries[2][:2], hashed), 1),
            ]
        )
    )
    wheel = (timers.root / "timerwheel").read_bytes()
    slot = (NOW_MS + 5000) // 1000 % (2 * 7 * 86400)
    assert len(wheel) == WHEEL_BYTES
    assert struct.unpack_from(">qqqii", wheel, slot * 32) == (NOW_MS // 1000 + 5, 0, 104, 1, 0)
    check = (timers.root / "config" / "timercheck").read_bytes()
    assert len(check) == 4096
    assert struct.unpack_from(">qqqqqqq", check) == (NOW_MS, 156, 3, 3, 0, NOW_MS + 300, 1)
    assert (timers.root / "timerwheel").stat().st_blocks * 512 < 100_000


async def test_the_last_unit_is_of_the_newest_message_also_after_one_was_put_on(
    timers: TimerStore, clock: ManualClock
) -> None:
    timers.send("put on", NOW_MS + WEEK_MS + DAY_MS)
    timers.take_in()
    await clock.advance(DAY_MS)
    timers.send("newer", NOW_MS + WEEK_MS)
    timers.take_in()
    *_, (newest, _, _) = timers.store.entries(TIMER_TOPIC, 0, 0, 2)

    await clock.advance(AHEAD_MS_MAX - DAY_MS + 5000)
    assert timers.deliver() == []
    timers.timers.save()

    # RocketMQ resumes the queue after the message of that unit.
    units = list(UNIT.iter_unpack((timers.root / FOLDER / f"{0:020d}").read_bytes()[: 4 * 52]))
    magics, offsets = [unit[2] for unit in units], [unit[5] for unit in units]
    assert magics == [KEEP | ROLL, KEEP, KEEP, KEEP | RECALL]
    assert offsets == [0, newest, 0, newest]
    await clock.advance(2 * DAY_MS)
    assert timers.deliver() == ["newer", "put on"]


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_after_a_stop_or_a_kill_the_rest_is_delivered_once(
    timers: TimerStore, clock: ManualClock, tmp_path: Path, end: str
) -> None:
    names = [f"m{number}" for number in range(100)]
    for number, name in enumerate(names):
        timers.send(name, NOW_MS + 900 + number * 3)
    await clock.advance(1000)
    timers.deliver(20)
    timers.timers.save()
    await clock.advance(200)
    timers.deliver(60)

    if end == "stop":
        timers.close()
    shutil.copytree(timers.root, tmp_path / "again")
    again = TimerStore(tmp_path / "again", clock)
    again.deliver()

    assert again.delivered() == names
    again.close()


async def test_what_is_pending_holds_retention_back(timers: TimerStore, clock: ManualClock) -> None:
    timers.send("a", NOW_MS + 5000)
    for number in range(30):
        timers.send(f"b{number}", NOW_MS + 500)
    first = timers.store.entries(TIMER_TOPIC, 0, 0, 1)[0][0]

    await clock.advance(1000)
    timers.deliver()
    timers.timers.save()
    held = timers.timers.needed_from()
    await clock.advance(6000)
    timers.deliver()
    timers.timers.save()

    assert (held, timers.timers.needed_from()) == (first, timers.store.visible)


async def test_files_of_the_timer_log_are_deleted_once_delivered(
    timers: TimerStore, clock: ManualClock
) -> None:
    for number in range(6):
        for at in range(20):
            timers.send(f"{number}-{at}", clock.now_ms() + 10)
        await clock.advance(2000)
        timers.deliver()
    before = len(list((timers.root / FOLDER).iterdir()))
    timers.timers.save()

    assert before == 6
    assert len(list((timers.root / FOLDER).iterdir())) == 1


def _flip(path: Path, at: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


# A byte of each field of the first unit, and of the second.
@pytest.mark.parametrize("at", [3, 11, 15, 23, 27, 29, 39, 43, 51, 57, 82, 88])
async def test_a_flipped_bit_of_the_timer_log_loses_and_repeats_nothing(
    tmp_path: Path, clock: ManualClock, at: int
) -> None:
    timers = TimerStore(tmp_path / "store", clock)
    names = ["a", "b", "c"]
    for name in names:
        timers.send(name, NOW_MS + 5200)
    timers.deliver()
    timers.close()
    _flip(timers.root / FOLDER / f"{0:020d}", at, at % 8)

    again = TimerStore(timers.root, clock)
    early = again.deliver()
    await clock.advance(5199)
    early += again.deliver()
    await clock.advance(60_000)
    again.deliver()

    assert (early, sorted(again.delivered())) == ([], names)
    again.close()


@pytest.mark.parametrize("name", ["timerwheel", "config/timercheck", "orbitmq/timers"])
@pytest.mark.parametrize("how", ["missing", "cut", "7", "15", "23", "55"])
async def test_a_damaged_file_beside_the_timer_log_loses_and_repeats_nothing(
    tmp_path: Path, clock: ManualClock, name: str, how: str
) -> None:
    timers = TimerStore(tmp_path / "store", clock)
    names = [f"m{number}" for number in range(50)]
    for number, each in enumerate(names):
        timers.send(each, NOW_MS + 100 + number * 100)
    await clock.advance(2500)
    timers.deliver()
    timers.close()
    path = timers.root / name
    match how:
        case "missing":
            path.unlink()
        case "cut":
            path.write_bytes(path.read_bytes()[:20])
        case _:
            _flip(path, int(how), 3)

    again = TimerStore(timers.root, clock)
    await clock.advance(10_000)
    again.deliver()

    assert again.delivered() == names
    again.close()


@pytest.mark.parametrize("how", ["missing", "cut"])
async def test_a_timer_log_that_lost_a_file_is_rebuilt(
    tmp_path: Path, clock: ManualClock, how: str
) -> None:
    timers = TimerStore(tmp_path / "store", clock)
    names = [f"m{number:03}" for number in range(70)]
    for number, name in enumerate(names):
        timers.send(name, NOW_MS + 100 + number * 50)
    await clock.advance(1900)
    timers.deliver()
    timers.close()
    path = timers.root / FOLDER / f"{TIMER_LOG_BYTES:020d}"
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:100])

    again = TimerStore(timers.root, clock)
    await clock.advance(10_000)
    again.deliver()

    assert again.delivered() == names
    again.close()


async def test_after_three_weeks_without_a_broker_everything_is_delivered(
    timers: TimerStore, clock: ManualClock
) -> None:
    names = [f"m{number}" for number in range(9)]
    for number, name in enumerate(names):
        timers.send(name, NOW_MS + number * 86_400_000)
    timers.deliver()
    timers.close()

    await clock.advance(3 * WEEK_MS)
    again = TimerStore(timers.root, clock)
    again.deliver()

    assert sorted(again.delivered()) == names
    again.close()


@pytest.mark.parametrize(
    ("due_ms", "slot_ms"), [(1, 0), (1000, 0), (1001, 1000), (1999, 1000), (2000, 1000)]
)
def test_a_slot_holds_what_is_due_after_it_until_a_second_later(due_ms: int, slot_ms: int) -> None:
    assert slot_of(due_ms) == slot_ms
