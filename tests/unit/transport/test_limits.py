"""Bounds are kept, and bytes and calls are returned."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.clock import settle
from orbitmq.errors import TooManyCallsError
from orbitmq.transport.limits import (
    DEFERRED_BYTES_MIN,
    ByteBudget,
    CallBudget,
    CallBudgets,
    DeferredWork,
)


def test_bytes_are_taken_until_none_are_left() -> None:
    budget = ByteBudget(100)

    assert budget.take(60)
    assert not budget.take(41)
    assert budget.take(40)
    assert budget.taken == 100
    budget.give_back(100)
    assert budget.taken == 0


def test_bytes_that_were_not_taken_cannot_be_returned() -> None:
    budget = ByteBudget(100)

    for count in (1, -1):
        with pytest.raises(AssertionError):
            budget.give_back(count)


def test_calls_begin_until_the_bound_is_reached() -> None:
    budget = CallBudget("one-way", 2)
    budget.take("a:1")
    budget.take("a:1")

    with pytest.raises(TooManyCallsError, match="2 one-way calls are already in flight") as caught:
        budget.take("a:1")
    assert caught.value.retryable

    budget.give_back()
    budget.take("a:1")
    assert budget.in_flight == 2


def test_a_call_that_did_not_begin_cannot_end() -> None:
    with pytest.raises(AssertionError):
        CallBudget("one-way", 2).give_back()


def test_a_call_counted_for_a_block_ends_with_it_even_if_it_fails() -> None:
    budgets = CallBudgets(oneway_max=1, unanswered_max=2)

    with budgets.oneway.one_to("a:1"):
        assert budgets.oneway.in_flight == 1
    with pytest.raises(ValueError, match="inside"), budgets.oneway.one_to("a:1"):
        raise ValueError("inside")

    assert budgets.oneway.in_flight == 0
    assert budgets.unanswered.calls_max == 2


@pytest.fixture
def budget() -> ByteBudget:
    """What all connections share."""
    return ByteBudget(2_000_000)


@pytest.fixture
def work(budget: ByteBudget) -> DeferredWork:
    return DeferredWork(1_000_000, budget)


def test_small_deferred_requests_occupy_a_minimum(work: DeferredWork, budget: ByteBudget) -> None:
    assert work.begin(1) == DEFERRED_BYTES_MIN
    assert work.begin(500_000) == 500_000
    assert budget.taken == 500_000 + DEFERRED_BYTES_MIN


def test_deferred_requests_above_the_bound_of_the_connection_are_refused(
    work: DeferredWork, budget: ByteBudget
) -> None:
    charge = work.begin(600_000)

    assert work.begin(500_000) == 0
    assert budget.taken == 600_000
    work.end(charge)
    assert work.begin(500_000) == 500_000


def test_deferred_requests_above_the_shared_bound_are_refused(
    work: DeferredWork, budget: ByteBudget
) -> None:
    assert budget.take(1_950_000)

    assert work.begin(100_000) == 0
    assert not work.is_pending
    budget.give_back(1_950_000)
    assert work.begin(100_000) == 100_000
    assert work.is_pending


async def test_the_last_deferred_answer_can_be_awaited(
    work: DeferredWork, budget: ByteBudget
) -> None:
    await work.all_done()
    charges = [work.begin(1), work.begin(2)]

    waiting = asyncio.create_task(work.all_done())
    work.end(charges[0])
    await settle()
    assert not waiting.done()
    work.end(charges[1])

    await waiting
    assert budget.taken == 0
