"""Time: the machine's, and one that is moved by hand."""

from __future__ import annotations

import asyncio
import threading

import pytest

from orbitmq.clock import Clock, ForwardClock, ManualClock, SystemClock, settle, time_limit


async def test_the_system_clock_advances() -> None:
    clock = SystemClock()
    fired = asyncio.Event()
    began_ms, began_monotonic_ms = clock.now_ms(), clock.monotonic_ms()

    clock.call_later(5, fired.set)
    await fired.wait()
    await clock.sleep_ms(5)

    assert clock.monotonic_ms() - began_monotonic_ms >= 9
    assert clock.now_ms() >= began_ms > 1_700_000_000_000


async def test_a_cancelled_timer_never_fires() -> None:
    for clock in (SystemClock(), ManualClock()):
        fired: list[str] = []
        clock.call_later(1, lambda: fired.append("taken back")).cancel()  # noqa: B023
        later = asyncio.Event()
        clock.call_later(5, later.set)

        if isinstance(clock, ManualClock):
            await clock.advance(5)
        await later.wait()

        assert fired == []


async def test_a_manual_clock_stands_still_until_it_is_advanced() -> None:
    clock = ManualClock(1000)
    sleeping = asyncio.create_task(clock.sleep_ms(50))
    await settle()
    assert (clock.now_ms(), clock.monotonic_ms()) == (1000, 1000.0)

    await clock.advance(49)
    assert not sleeping.done()
    await clock.advance(1)

    assert sleeping.done()
    assert clock.now_ms() == 1050


async def test_timers_fire_when_due_and_in_order() -> None:
    clock = ManualClock(0)
    fired: list[tuple[str, int]] = []

    def note(name: str) -> None:
        fired.append((name, clock.now_ms()))

    clock.call_later(20, lambda: note("later"))
    clock.call_later(10, lambda: note("first"))
    clock.call_later(10, lambda: note("second"))

    def set_another() -> None:
        clock.call_later(5, lambda: note("set on the way"))

    clock.call_later(10, set_another)

    await clock.advance(100)

    assert fired == [("first", 10), ("second", 10), ("set on the way", 15), ("later", 20)]
    assert clock.now_ms() == 100


async def test_what_a_timer_wakes_runs_before_the_next_timer() -> None:
    clock = ManualClock(0)
    seen: list[int] = []

    async def tick() -> None:
        for _ in range(3):
            await clock.sleep_ms(10)
            seen.append(clock.now_ms())

    ticking = asyncio.create_task(tick())
    await settle()
    await clock.advance(30)
    await ticking

    assert seen == [10, 20, 30]


async def test_a_sleep_of_zero_and_a_cancelled_sleep_leave_no_timer() -> None:
    clock = ManualClock()
    await clock.sleep_ms(0)
    sleeping = asyncio.create_task(clock.sleep_ms(10))
    await settle()

    sleeping.cancel()
    await asyncio.wait({sleeping})
    await clock.advance(10)

    assert sleeping.cancelled()


@pytest.mark.parametrize("clock", [SystemClock(), ManualClock()], ids=["system", "manual"])
async def test_a_time_limit_ends_a_block_on_time(clock: Clock) -> None:
    async def hang() -> None:
        async with time_limit(clock, 30):
            await asyncio.Event().wait()

    hanging = asyncio.create_task(hang())
    await settle()
    if isinstance(clock, ManualClock):
        await clock.advance(29)
        assert not hanging.done()
        await clock.advance(1)

    with pytest.raises(TimeoutError):
        await hanging


async def test_a_time_limit_of_zero_ends_at_the_first_wait() -> None:
    reached: list[float] = []

    async def wait(timeout_ms: float) -> None:
        async with time_limit(ManualClock(), timeout_ms):
            reached.append(timeout_ms)
            await asyncio.Event().wait()

    for timeout_ms in (0, -5):
        with pytest.raises(TimeoutError):
            await wait(timeout_ms)

    assert reached == [0, -5]


async def test_a_block_that_ends_in_time_is_not_disturbed_afterwards() -> None:
    clock = ManualClock()
    async with time_limit(clock, 10):
        await settle()

    await clock.advance(100)

    with pytest.raises(ValueError, match="its own"):
        async with time_limit(clock, 10):
            raise ValueError("its own")


async def test_the_inner_of_two_time_limits_is_distinguished_from_the_outer() -> None:
    clock = ManualClock()
    ended: list[str] = []

    async def wait() -> None:
        try:
            async with time_limit(clock, 100):
                try:
                    async with time_limit(clock, 10):
                        await asyncio.Event().wait()
                except TimeoutError:
                    ended.append("inner")
                await asyncio.Event().wait()
        except TimeoutError:
            ended.append("outer")

    waiting = asyncio.create_task(wait())
    await settle()
    await clock.advance(10)
    assert ended == ["inner"]
    await clock.advance(90)
    await waiting

    assert ended == ["inner", "outer"]


async def test_cancelling_passes_through_a_time_limit() -> None:
    async def hang() -> None:
        async with time_limit(ManualClock(), 10):
            await asyncio.Event().wait()

    hanging = asyncio.create_task(hang())
    await settle()
    hanging.cancel()
    await asyncio.wait({hanging})

    assert hanging.cancelled()


def test_adjusting_a_manual_clock_lets_no_time_pass() -> None:
    clock = ManualClock(5000)

    clock.adjust(-3000)

    assert (clock.now_ms(), clock.monotonic_ms()) == (2000, 5000)


async def test_a_forward_clock_runs_and_can_be_moved() -> None:
    clock = ForwardClock()
    fired: list[str] = []
    began_ms, began_monotonic_ms = clock.now_ms(), clock.monotonic_ms()
    clock.call_later(60_000, lambda: fired.append("in a minute"))
    clock.call_later(3_600_000, lambda: fired.append("in an hour"))
    clock.call_later(60_000, lambda: fired.append("taken back")).cancel()
    soon = asyncio.Event()
    clock.call_later(61_005, soon.set)
    await clock.sleep_ms(1)

    await asyncio.to_thread(clock.advance, 61_000)

    assert clock.now_ms() - began_ms >= 61_000
    assert clock.monotonic_ms() - began_monotonic_ms >= 61_000
    assert fired == ["in a minute"]
    await soon.wait()


async def test_moving_a_forward_clock_skips_timers_of_a_closed_loop() -> None:
    clock = ForwardClock()
    fired: list[str] = []

    async def set_timer() -> None:
        clock.call_later(1000, lambda: fired.append("late"))

    await asyncio.to_thread(lambda: asyncio.run(set_timer()))
    await asyncio.to_thread(clock.advance, 2000)

    assert fired == []


async def test_a_busy_loop_has_a_turn_in_every_step_of_a_forward_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Otherwise a step would skip a turn if the machine stalls for a second.
    monkeypatch.setattr("orbitmq.clock._TURN_SECONDS_MAX", 60)
    clock = ForwardClock()
    clock.call_later(3_600_000, lambda: None)
    loop = asyncio.get_running_loop()
    moved = threading.Event()
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        if not moved.wait(0.005):  # nothing else gets done for so long
            loop.call_soon(turn)

    def move() -> None:
        clock.advance(30_000)
        moved.set()

    loop.call_soon(turn)
    await asyncio.to_thread(move)

    assert turns >= 60


async def test_a_forward_clock_can_be_moved_on_a_loop_that_waits_for_it() -> None:
    clock = ForwardClock()
    fired = asyncio.Event()
    clock.call_later(60_000, fired.set)

    clock.advance(60_000)

    async with asyncio.timeout(60):
        await fired.wait()
