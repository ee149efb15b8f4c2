"""Errors of listeners in the log."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orbitmq.client.aio.push.listener_failures import KINDS_MAX, REPEAT_MS, ListenerFailures
from orbitmq.clock import ManualClock
from tests.unit.client.aio.received import received


def fail(error: Exception) -> None:
    raise error


def fail_elsewhere(error: Exception) -> None:
    raise error


def raised(error: Exception, fail: Callable[[Exception], None] = fail) -> Exception:
    """Give the error a traceback."""
    with pytest.raises(type(error)) as caught:
        fail(error)
    return caught.value


async def test_a_kind_of_error_is_logged_once_with_its_traceback_then_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    failures = ListenerFailures("billing", clock)

    for offset in range(1000):
        failures.add(raised(ValueError(offset)), received(offset))

    (record,) = caplog.records
    assert record.exc_info
    assert "group=billing topic=orders broker=broker-a queue=1 offset=0 message=id-0" in caplog.text

    await clock.advance(REPEAT_MS)
    failures.add(raised(ValueError(1000)), received(1000))

    assert "failed again times=1000" in caplog.records[-1].getMessage()
    assert "offset=1000 error=ValueError(1000)" in caplog.records[-1].getMessage()
    assert len(caplog.records) == 2


def test_kinds_differ_by_type_and_line(caplog: pytest.LogCaptureFixture) -> None:
    failures = ListenerFailures("billing", ManualClock())

    failures.add(raised(ValueError()), received(0))
    failures.add(raised(KeyError()), received(0))
    failures.add(raised(ValueError(), fail_elsewhere), received(0))
    failures.add(ValueError("never raised"), received(0))
    failures.add(raised(ValueError()), received(0))

    assert len(caplog.records) == 4


def test_the_number_of_kinds_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    failures = ListenerFailures("billing", ManualClock())

    for number in range(KINDS_MAX + 10):
        failures.add(type(f"Error{number}", (Exception,), {})(), received(0))

    assert len(caplog.records) == KINDS_MAX + 1
