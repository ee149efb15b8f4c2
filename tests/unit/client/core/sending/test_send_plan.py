"""How often a send is tried, which failures are retried, and the final error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.core.sending import send_plan
from orbitmq.client.core.sending.send_plan import SendMode
from orbitmq.errors import (
    BrokerUnknownError,
    CallTimeoutError,
    ConnectError,
    ConnectionLostError,
    FailedTry,
    FrameTooLargeError,
    OrbitError,
    ProtocolError,
    RemoteError,
    SendError,
    SendRefusedError,
    SendTimeoutError,
    StateError,
    TooManyCallsError,
    WriteBlockedError,
)

WHERE = "127.0.0.1:1"


def answered(code: int) -> RemoteError:
    return RemoteError(code, "no", call="SEND", address=WHERE)


LOST = ConnectionLostError(WHERE, "reset")
LATE = CallTimeoutError(WHERE, "SEND", 3000)
REFUSED = ConnectError(WHERE, "refused")
BLOCKED = WriteBlockedError(WHERE, 5)
FULL = TooManyCallsError(WHERE, "unanswered", 5)
UNKNOWN = BrokerUnknownError("a", topic="t")


@pytest.mark.parametrize(
    ("mode", "queue_is_fixed", "tries"),
    [
        (SendMode.AWAITED, False, 4),
        (SendMode.AWAITED, True, 1),
        (SendMode.ASYNC, False, 6),
        (SendMode.ASYNC, True, 6),
        (SendMode.ONEWAY, False, 1),
        (SendMode.ONEWAY, True, 1),
    ],
)
def test_each_form_of_send_has_its_own_number_of_tries(
    mode: SendMode,
    queue_is_fixed: bool,  # noqa: FBT001  # a row of the table
    tries: int,
) -> None:
    assert (
        send_plan.tries_max(mode, retries=3, async_retries=5, queue_is_fixed=queue_is_fixed)
        == tries
    )


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205, 1500])
def test_codes_that_another_broker_may_not_give_are_retried(code: int) -> None:
    assert send_plan.is_retried(answered(code))


@pytest.mark.parametrize("code", [3, 13, 15, 26, 29, 215, 604])
def test_codes_that_every_broker_would_give_are_final(code: int) -> None:
    assert not send_plan.is_retried(answered(code))


@pytest.mark.parametrize(
    ("error", "consequences"),
    [
        # Retried, a fault of the broker, a stale route, maybe stored.
        (LOST, (True, True, True, True)),
        (LATE, (True, True, True, True)),
        (REFUSED, (True, True, True, False)),
        (BLOCKED, (True, True, False, False)),
        (UNKNOWN, (True, False, True, False)),
        (FULL, (False, False, False, False)),
        (answered(2), (True, True, False, False)),
        (answered(1500), (True, True, True, False)),
        (answered(14), (True, True, True, False)),
        (answered(17), (True, False, True, False)),
        (answered(16), (True, False, True, False)),
        (answered(13), (False, False, False, False)),
        (ProtocolError("stored, but not where"), (False, False, False, True)),
    ],
)
def test_each_error_has_its_consequences(error: OrbitError, consequences: tuple[bool, ...]) -> None:
    assert consequences == (
        send_plan.is_retried(error),
        send_plan.is_broker_fault(error),
        send_plan.suggests_stale_route(error),
        send_plan.may_be_stored(error),
    )


@pytest.mark.parametrize("error", [StateError("stopped"), FrameTooLargeError(9, 5)])
def test_a_message_that_was_never_sent_is_not_stored(error: OrbitError) -> None:
    assert not send_plan.may_be_stored(error)
    assert not send_plan.is_retried(error)


@given(st.integers(0, 1000), st.integers(1, 100), st.floats(0.1, 10_000))
def test_a_pause_leaves_half_of_the_time_for_the_try(
    pause_ms: int, tries: int, left_ms: float
) -> None:
    waited_ms = send_plan.pause_ms(pause_ms, tries, left_ms)

    assert 0 <= waited_ms <= left_ms / 2
    assert waited_ms <= pause_ms * 2 ** (tries - 1)


def test_a_failure_lists_every_try_and_ends_with_what_to_do() -> None:
    tries = [FailedTry("a", WHERE, LOST, 12.4), FailedTry("b", WHERE, answered(2), 3)]

    error = send_plan.failure("t", tries, elapsed_ms=16, timeout_ms=3000)

    assert type(error) is SendError
    assert str(error) == (
        "a message to topic 't' was not acknowledged, 2 tries in 16 ms; it may be stored "
        "nevertheless: a after 12 ms: the connection to 127.0.0.1:1 was lost: reset; "
        "b after 3 ms: 127.0.0.1:1 answered SEND with code 2: no "
        "(the brokers are overloaded; send more slowly, or retry later)"
    )
    assert error.tries == tuple(tries)
    assert (error.code, error.retryable, error.may_be_stored) == (2, True, True)
    assert error.__cause__ is tries[-1].error


@pytest.mark.parametrize(
    ("error", "elapsed_ms", "kind", "text"),
    [
        (LATE, 3000, SendTimeoutError, "not acknowledged in time.*allow more than 3000 ms"),
        (LATE, 100, SendTimeoutError, "not acknowledged in time"),
        (REFUSED, 3000, SendTimeoutError, "check that the broker runs"),
        (REFUSED, 10, SendError, "not acknowledged, 1 try in 10 ms: a after 5 ms: cannot connect"),
        (answered(17), 10, SendError, "create the topic"),
        (answered(13), 10, SendRefusedError, "was refused.*limits may be lower"),
        (FULL, 10, SendRefusedError, "slow down"),
        (UNKNOWN, 10, SendError, "it is down, or has left"),
    ],
)
def test_each_failure_has_its_error_class_and_hint(
    error: OrbitError, elapsed_ms: float, kind: type[SendError], text: str
) -> None:
    failed = send_plan.failure(
        "t", [FailedTry("a", WHERE, error, 5)], elapsed_ms=elapsed_ms, timeout_ms=3000
    )

    assert type(failed) is kind
    with pytest.raises(kind, match=text):
        raise failed


def test_a_send_whose_time_is_over_before_its_first_try_is_a_timeout() -> None:
    error = send_plan.failure("t", [], elapsed_ms=50, timeout_ms=50)

    assert isinstance(error, SendTimeoutError)
    assert error.code is None
    assert not error.may_be_stored
    assert "0 tries in 50 ms" in str(error)
