"""Requests that are answered later."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.clock import settle
from orbitmq.transport.deferred_work import DEFERRED_BYTES_MIN, DeferredWork
from orbitmq.transport.limits import ByteBudget


@pytest.fixture
def budget() -> ByteBudget:
    """What all connections share."""
    return ByteBudget(2_000_000)


@pytest.fixture
def work(budget: ByteBudget) -> DeferredWork:
    return DeferredWork(1_000_000, budget)


def test_small_requests_occupy_a_least_amount(work: DeferredWork, budget: ByteBudget) -> None:
    assert work.begin(1) == DEFERRED_BYTES_MIN
    assert work.begin(500_000) == 500_000
    assert budget.taken == 500_000 + DEFERRED_BYTES_MIN


def test_what_is_above_the_bound_of_the_connection_is_refused(
    work: DeferredWork, budget: ByteBudget
) -> None:
    charge = work.begin(600_000)

    assert work.begin(500_000) == 0
    assert budget.taken == 600_000
    work.end(charge)
    assert work.begin(500_000) == 500_000


def test_so_is_what_is_above_the_bound_of_all(work: DeferredWork, budget: ByteBudget) -> None:
    assert budget.take(1_950_000)

    assert work.begin(100_000) == 0
    assert not work.is_under_way
    budget.give_back(1_950_000)
    assert work.begin(100_000) == 100_000
    assert work.is_under_way


async def test_the_end_of_all_can_be_awaited(work: DeferredWork, budget: ByteBudget) -> None:
    await work.all_done()
    charges = [work.begin(1), work.begin(2)]

    waiting = asyncio.create_task(work.all_done())
    work.end(charges[0])
    await settle()
    assert not waiting.done()
    work.end(charges[1])

    await waiting
    assert budget.taken == 0
