"""Warnings that peers cause: a few a second, then a count."""

from __future__ import annotations

import logging

import pytest

from orbitmq.clock import ManualClock
from orbitmq.transport.warning_limit import WarningLimit


def _written(caplog: pytest.LogCaptureFixture) -> list[str]:
    written = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    caplog.clear()
    return written


async def test_the_first_ten_of_a_second_are_logged_and_the_rest_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    limit = WarningLimit(clock, "connections closed for bad input or refused")

    for number in range(25):
        limit.warn("closed peer=%d", number)
        await clock.advance(10)
    assert _written(caplog) == [f"closed peer={number}" for number in range(10)]

    await clock.advance(749)
    assert _written(caplog) == []
    await clock.advance(1)
    assert _written(caplog) == ["further connections closed for bad input or refused count=15"]


async def test_a_second_within_the_limit_ends_silently(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    limit = WarningLimit(clock, "connections closed for bad input or refused")

    for second in range(3):
        for _ in range(10):
            limit.warn("closed second=%d", second)
        assert _written(caplog) == [f"closed second={second}"] * 10
        await clock.advance(1000)
        assert _written(caplog) == []


async def test_a_second_can_be_ended_early_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    limit = WarningLimit(clock, "connections closed for bad input or refused")
    for _ in range(12):
        limit.warn("closed")
    _written(caplog)

    limit.end_second()
    limit.end_second()
    await clock.advance(1000)

    assert _written(caplog) == ["further connections closed for bad input or refused count=2"]
