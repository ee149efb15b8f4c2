"""Bounds are kept, and what was taken comes back."""

from __future__ import annotations

import pytest

from orbitmq.errors import TooManyCallsError
from orbitmq.transport.limits import ByteBudget, CallBudget, CallBudgets


def test_bytes_are_taken_until_none_are_left() -> None:
    budget = ByteBudget(100)

    assert budget.take(60)
    assert not budget.take(41)
    assert budget.take(40)
    assert budget.taken == 100
    budget.give_back(100)
    assert budget.taken == 0


def test_nobody_returns_bytes_that_were_not_taken() -> None:
    budget = ByteBudget(100)

    for count in (1, -1):
        with pytest.raises(AssertionError):
            budget.give_back(count)


def test_calls_are_begun_until_the_bound_is_reached() -> None:
    budget = CallBudget("one-way", 2)
    budget.take("a:1")
    budget.take("a:1")

    with pytest.raises(TooManyCallsError, match="2 one-way calls are already under way") as caught:
        budget.take("a:1")
    assert caught.value.retryable

    budget.give_back()
    budget.take("a:1")
    assert budget.under_way == 2


def test_nobody_ends_a_call_that_was_not_begun() -> None:
    with pytest.raises(AssertionError):
        CallBudget("one-way", 2).give_back()


def test_a_call_for_the_time_of_a_block_ends_with_it_even_when_it_fails() -> None:
    budgets = CallBudgets(oneway_max=1, unanswered_max=2)

    with budgets.oneway.one_to("a:1"):
        assert budgets.oneway.under_way == 1
    with pytest.raises(ValueError, match="inside"), budgets.oneway.one_to("a:1"):
        raise ValueError("inside")

    assert budgets.oneway.under_way == 0
    assert budgets.unanswered.calls_max == 2
