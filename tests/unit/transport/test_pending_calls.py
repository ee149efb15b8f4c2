"""Pending calls: each ends once, by its answer, its deadline, or the end of all."""

from __future__ import annotations

import asyncio
import logging

import pytest

from orbitmq.clock import ManualClock, settle
from orbitmq.errors import CallTimeoutError, ConnectionLostError, OrbitError, TooManyCallsError
from orbitmq.protocol.command import Command
from orbitmq.transport.limits import CallBudget
from orbitmq.transport.pending_calls import PendingCalls

Outcomes = list[Command | OrbitError]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(0)


@pytest.fixture
def budget() -> CallBudget:
    return CallBudget("unanswered", 1000)


@pytest.fixture
def calls(clock: ManualClock, budget: CallBudget) -> PendingCalls:
    return PendingCalls("peer:1", budget, clock)


def _answer(opaque: int) -> Command:
    return Command(code=0, opaque=opaque, flag=1)


async def test_an_answer_ends_the_call_of_its_opaque(
    calls: PendingCalls, budget: CallBudget
) -> None:
    first: Outcomes = []
    second: Outcomes = []
    one = calls.add(10, 1000, first.append)
    two = calls.add(10, 1000, second.append)
    assert (len(calls), budget.in_flight) == (2, 2)

    answer = _answer(two)
    assert calls.answer(answer)

    assert (first, second) == ([], [answer])
    assert not calls.answer(_answer(two))
    assert calls.answer(_answer(one))
    assert (len(calls), budget.in_flight) == (0, 0)


async def test_overdue_calls_fail_each_at_its_own_deadline(
    calls: PendingCalls, clock: ManualClock, budget: CallBudget
) -> None:
    failed: list[tuple[int, int]] = []
    for timeout_ms in (300, 100, 200, 101):
        calls.add(
            10,
            timeout_ms,
            lambda outcome, timeout_ms=timeout_ms: (  # type: ignore[misc]  # bound now
                failed.append((timeout_ms, clock.now_ms()))
                if isinstance(outcome, CallTimeoutError)
                else None
            ),
        )

    await clock.advance(99)
    assert failed == []
    await clock.advance(1)
    assert failed == [(100, 100)]
    await clock.advance(400)

    assert [timeout_ms for timeout_ms, _ in failed] == [100, 101, 200, 300]
    assert all(timeout_ms <= at <= timeout_ms + 6 for timeout_ms, at in failed)
    assert budget.in_flight == 0


async def test_many_calls_are_swept_in_few_rounds(calls: PendingCalls, clock: ManualClock) -> None:
    outcomes: Outcomes = []
    for number in range(1000):
        calls.add(10, 1000 + number / 10, outcomes.append)

    await clock.advance(1000 + 100 + 10)

    assert len(outcomes) == 1000
    assert {type(outcome) for outcome in outcomes} == {CallTimeoutError}


async def test_a_call_with_no_time_left_fails_at_once(
    calls: PendingCalls, clock: ManualClock
) -> None:
    outcomes: Outcomes = []
    calls.add(10, -1, outcomes.append)

    await clock.advance(0)

    assert [type(outcome) for outcome in outcomes] == [CallTimeoutError]


async def test_ending_all_gives_each_an_error_of_its_own_and_stops_the_timer(
    calls: PendingCalls, clock: ManualClock, budget: CallBudget
) -> None:
    outcomes: Outcomes = []
    for _ in range(3):
        calls.add(10, 1000, outcomes.append)

    calls.fail_all(lambda: ConnectionLostError("peer:1", "gone"))
    await clock.advance(5000)

    assert len({id(outcome) for outcome in outcomes}) == 3
    assert {type(outcome) for outcome in outcomes} == {ConnectionLostError}
    assert budget.in_flight == 0


async def test_a_forgotten_call_calls_nobody_back(
    calls: PendingCalls, clock: ManualClock, budget: CallBudget
) -> None:
    outcomes: Outcomes = []
    opaque = calls.add(10, 1000, outcomes.append)

    calls.forget(opaque)
    calls.forget(opaque)
    assert not calls.answer(_answer(opaque))
    await clock.advance(5000)

    assert outcomes == []
    assert budget.in_flight == 0


async def test_a_callback_that_raises_is_logged_and_the_others_are_called(
    calls: PendingCalls, clock: ManualClock, budget: CallBudget, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes: Outcomes = []

    def broken(_: object) -> None:
        raise ValueError("from the callback")

    answered = calls.add(10, 1000, broken)
    for callback in (broken, outcomes.append) * 2:
        calls.add(10, 1000, callback)

    assert calls.answer(_answer(answered))
    await clock.advance(1000)
    calls.add(10, 1000, broken)
    calls.add(10, 1000, outcomes.append)
    calls.fail_all(lambda: ConnectionLostError("peer:1", "gone"))

    assert len(outcomes) == 3
    assert budget.in_flight == 0
    assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 4


async def test_a_call_over_the_bound_is_refused_and_leaves_no_entry(clock: ManualClock) -> None:
    budget = CallBudget("unanswered", 1)
    calls = PendingCalls("peer:1", budget, clock)
    outcomes: Outcomes = []
    calls.add(10, 1000, outcomes.append)

    with pytest.raises(TooManyCallsError):
        calls.add(10, 1000, outcomes.append)

    assert len(calls) == 1


async def test_an_opaque_in_use_is_not_given_out_again(calls: PendingCalls) -> None:
    held = calls.add(10, 1000, lambda _: None)
    calls._next_opaque = 0x7FFFFFFF  # the last number
    assert calls.unused_opaque() == 0
    calls._next_opaque = held - 1

    assert calls.unused_opaque() == held + 1


async def test_waiting_for_all_ends_when_the_last_call_does(calls: PendingCalls) -> None:
    await calls.all_done()
    opaques = [calls.add(10, 1000, lambda _: None) for _ in range(3)]
    waiting = [asyncio.create_task(calls.all_done()) for _ in range(2)]
    await settle()

    calls.answer(_answer(opaques[0]))
    calls.forget(opaques[1])
    await settle()
    assert not any(task.done() for task in waiting)
    calls.answer(_answer(opaques[2]))

    await asyncio.gather(*waiting)


async def test_on_overdue_gets_the_start_of_the_oldest_unanswered_call(
    clock: ManualClock, budget: CallBudget
) -> None:
    began_ms: list[float] = []
    calls = PendingCalls("peer:1", budget, clock, on_overdue=began_ms.append)
    start_ms = clock.monotonic_ms()
    outcomes: Outcomes = []
    calls.add(10, 1000, outcomes.append)
    await clock.advance(500)
    calls.add(10, 500, outcomes.append)
    calls.answer(_answer(calls.add(10, 500, outcomes.append)))

    await clock.advance(600)

    assert began_ms == [start_ms]
    assert len(outcomes) == 3
