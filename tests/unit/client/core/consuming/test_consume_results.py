"""What listeners may return."""

from __future__ import annotations

import pytest

from orbitmq.client.core.consuming.consume_results import (
    RETRY_LATER,
    SUCCESS,
    SUSPEND,
    RetryLater,
    Suspend,
    concurrent_result,
    ordered_result,
)
from orbitmq.errors import ConsumeResultError


def test_nothing_is_success() -> None:
    assert concurrent_result(None) is SUCCESS
    assert ordered_result(None) is SUCCESS


def test_results_pass_as_they_are() -> None:
    later = RetryLater(delay_level=-1, succeeded=2)
    pause = Suspend(pause_ms=10)

    assert [concurrent_result(one) for one in (SUCCESS, RETRY_LATER, later)] == [
        SUCCESS,
        RETRY_LATER,
        later,
    ]
    assert [ordered_result(one) for one in (SUCCESS, SUSPEND, pause)] == [SUCCESS, SUSPEND, pause]


def test_a_result_of_the_other_kind_is_refused_with_what_to_return_instead() -> None:
    with pytest.raises(ConsumeResultError, match="return RETRY_LATER, or make the consumer with"):
        concurrent_result(SUSPEND)
    with pytest.raises(ConsumeResultError, match="return SUSPEND: the same messages"):
        ordered_result(RETRY_LATER)


@pytest.mark.parametrize("returned", [True, False, 0, "ok", b""])
def test_anything_else_is_refused(returned: object) -> None:
    with pytest.raises(ConsumeResultError, match=r"returned .*, of type .*RETRY_LATER if not"):
        concurrent_result(returned)
    with pytest.raises(ConsumeResultError, match=r"returned .*, of type .*SUSPEND if not"):
        ordered_result(returned)


def test_impossible_values_are_refused_when_made() -> None:
    with pytest.raises(ConsumeResultError, match="delay level -2"):
        RetryLater(delay_level=-2)
    with pytest.raises(ConsumeResultError, match="-1 messages cannot"):
        RetryLater(succeeded=-1)
    with pytest.raises(ConsumeResultError, match="for 9 ms"):
        Suspend(pause_ms=9)
    with pytest.raises(ConsumeResultError, match="use 10 to 30000"):
        Suspend(pause_ms=30_001)
