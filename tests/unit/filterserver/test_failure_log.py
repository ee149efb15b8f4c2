"""How often failures of filter functions are logged."""

from __future__ import annotations

import pytest

from orbitmq.clock import ManualClock
from orbitmq.errors import FilterFunctionError
from orbitmq.filterserver.failure_log import FAILURES_MAX, FailureLog


def failure(cause: str, *, name: str = "shop.Paid", offset: int = 0) -> FilterFunctionError:
    return FilterFunctionError(name, f"{cause}; message A at offset {offset}")


async def test_the_same_failure_is_logged_once_a_minute_with_the_number_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    failures = FailureLog(clock)

    for offset in range(4):
        failures.note(failure("ValueError", offset=offset), "g")
    failures.note(failure("KeyError"), "g")
    failures.note(failure("ValueError", name="shop.Late"), "g")
    await clock.advance(59_999)
    failures.note(failure("ValueError"), "g")
    await clock.advance(1)
    failures.note(failure("ValueError", offset=9), "g")

    assert caplog.messages == [
        "filter function failed group=g left_out=0 "
        "reason=filter shop.Paid: ValueError; message A at offset 0",
        "filter function failed group=g left_out=0 "
        "reason=filter shop.Paid: KeyError; message A at offset 0",
        "filter function failed group=g left_out=0 "
        "reason=filter shop.Late: ValueError; message A at offset 0",
        "filter function failed group=g left_out=4 "
        "reason=filter shop.Paid: ValueError; message A at offset 9",
    ]


def test_of_more_failures_than_are_remembered_the_oldest_is_logged_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = FailureLog(ManualClock())
    for number in range(FAILURES_MAX + 1):
        failures.note(failure(f"ValueError: {number}"), "g")
    caplog.clear()

    failures.note(failure(f"ValueError: {FAILURES_MAX}"), "g")
    failures.note(failure("ValueError: 0"), "g")

    assert len(caplog.messages) == 1
