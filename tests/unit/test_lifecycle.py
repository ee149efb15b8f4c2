"""Starting and stopping: once, again and again, and never by accident."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.clock import ManualClock, settle
from orbitmq.errors import StateError
from orbitmq.lifecycle import OwnedTasks, Periodic, RunOnce, run_to_completion
from tests.leftovers import no_tasks_since

# --- RunOnce ----------------------------------------------------------------------------------


async def test_a_part_runs_once() -> None:
    state = RunOnce("the pump")
    state.begin()
    with pytest.raises(StateError, match="the pump is already started"):
        state.begin()
    assert not state.stopping
    state.check_not_stopped()

    assert await state.begin_stop()
    assert state.stopping
    state.end_stop()

    for again in (state.begin, state.check_not_stopped):
        with pytest.raises(StateError, match="the pump is stopped"):
            again()


async def test_only_a_running_part_can_be_used() -> None:
    state = RunOnce("the pump")
    with pytest.raises(StateError, match=r"the pump is not started.*start\(\)"):
        state.check_running()
    state.begin()

    state.check_running()

    await state.begin_stop()
    with pytest.raises(StateError, match="the pump is stopped"):
        state.check_running()


async def test_a_second_stop_waits_for_the_first() -> None:
    state = RunOnce("the pump")
    state.begin()
    assert await state.begin_stop()
    second = asyncio.create_task(state.begin_stop())
    await settle()
    assert not second.done()

    state.end_stop()

    assert await second is False
    assert await state.begin_stop() is False


async def test_a_part_that_never_ran_has_nothing_to_stop() -> None:
    state = RunOnce("the pump")

    assert await state.begin_stop() is False
    assert await state.begin_stop() is False
    with pytest.raises(StateError):
        state.begin()


# --- Periodic ---------------------------------------------------------------------------------


async def test_each_round_runs_after_a_pause() -> None:
    clock = ManualClock(0)
    rounds: list[int] = []
    periodic = Periodic("count", 10, lambda: rounds.append(clock.now_ms()), clock)
    periodic.start()
    await settle()

    await clock.advance(35)
    await periodic.stop()
    await clock.advance(100)

    assert rounds == [10, 20, 30]


async def test_a_round_that_fails_is_logged_and_the_next_one_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock(0)
    rounds: list[int] = []

    async def fail() -> None:
        rounds.append(clock.now_ms())
        raise ValueError("in a round")

    periodic = Periodic("failing", 10, fail, clock)
    periodic.start()
    await settle()
    await clock.advance(20)
    await periodic.stop()

    assert rounds == [10, 20]
    assert caplog.text.count("round failed task=failing") == 2


async def test_an_error_of_ours_that_lasts_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(0)
    errors = [StateError("full"), StateError("full"), None, StateError("full"), StateError("other")]

    async def fail() -> None:
        error = errors.pop(0)
        if error is not None:
            raise error

    periodic = Periodic("failing", 10, fail, clock)
    periodic.start()
    await settle()
    await clock.advance(50)
    await periodic.stop()

    assert not errors
    assert [record.getMessage() for record in caplog.records] == [
        "round failed task=failing reason=full",
        "round failed task=failing reason=full",
        "round failed task=failing reason=other",
    ]


async def test_stopping_interrupts_a_round_and_can_be_repeated() -> None:
    clock = ManualClock(0)
    entered, interrupted = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            interrupted.set()
            raise

    periodic = Periodic("hanging", 10, hang, clock)
    await periodic.stop()
    periodic.start()
    await settle()
    await clock.advance(10)
    assert entered.is_set()

    await periodic.stop()
    await periodic.stop()

    assert interrupted.is_set()


async def test_a_round_that_turns_its_cancellation_into_an_error_still_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock(0)

    async def obstinate() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("while it was cancelled")

    periodic = Periodic("obstinate", 10, obstinate, clock)
    periodic.start()
    await settle()
    await clock.advance(10)

    async with asyncio.timeout(30):
        await periodic.stop()

    assert "round failed task=obstinate" in caplog.text


async def test_a_round_may_stop_its_own_repetition() -> None:
    before = asyncio.all_tasks()
    clock = ManualClock(0)
    rounds: list[int] = []

    async def last() -> None:
        rounds.append(clock.now_ms())
        await periodic.stop()

    periodic = Periodic("last", 10, last, clock)
    periodic.start()
    await settle()
    await clock.advance(100)

    assert rounds == [10]
    await no_tasks_since(before)


async def test_periodic_work_is_not_started_twice_but_can_be_restarted() -> None:
    clock = ManualClock(0)
    rounds: list[int] = []
    periodic = Periodic("count", 10, lambda: rounds.append(clock.now_ms()), clock)
    periodic.start()
    with pytest.raises(StateError, match="count is already started"):
        periodic.start()
    await periodic.stop()

    periodic.start()
    await settle()
    await clock.advance(10)
    await periodic.stop()

    assert rounds == [10]


# --- OwnedTasks -------------------------------------------------------------------------------


async def test_tasks_are_counted_and_awaited_with_those_they_start() -> None:
    tasks = OwnedTasks()
    done: list[str] = []

    async def second() -> None:
        await settle()
        done.append("second")

    async def first() -> None:
        tasks.start(second(), name="second")
        done.append("first")

    tasks.start(first(), name="first")
    assert len(tasks) == 1

    await tasks.all_done()

    assert done == ["first", "second"]
    assert len(tasks) == 0


async def test_an_error_of_a_task_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    tasks = OwnedTasks()

    async def fail() -> None:
        raise ValueError("inside")

    tasks.start(fail(), name="doomed")
    await tasks.all_done()
    await tasks.cancel()

    assert caplog.text.count("task failed task=doomed") == 1


async def test_cancelling_lets_even_a_task_that_has_not_started_clean_up() -> None:
    tasks = OwnedTasks()
    cleaned: list[int] = []

    async def hang(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(number)

    tasks.start(hang(1), name="begun")
    await settle()
    tasks.start(hang(2), name="not begun")

    await tasks.cancel()

    assert sorted(cleaned) == [1, 2]
    assert len(tasks) == 0


# --- detached work ----------------------------------------------------------------------------


async def test_work_continues_when_its_caller_is_cancelled() -> None:
    go_on, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await go_on.wait()
        ended.set()

    caller = asyncio.create_task(run_to_completion(work(), name="work"))
    await settle()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    go_on.set()

    await asyncio.wait_for(ended.wait(), 60)


async def test_an_error_of_detached_work_is_raised_to_its_caller() -> None:
    async def work() -> None:
        raise StateError("broken")

    with pytest.raises(StateError, match="broken"):
        await run_to_completion(work(), name="work")
