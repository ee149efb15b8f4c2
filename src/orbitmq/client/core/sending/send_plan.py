"""Send plan: how often a send is tried, what is tried again, what failures say.

One deadline covers all tries of a send. A try that fails in a way that another broker may not is
followed by the next at once; only when there is no other broker does it wait a moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

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
    TooManyCallsError,
    TransportError,
)
from orbitmq.protocol.codes import ResponseCode


class SendMode(Enum):
    """How a send tells of its end."""

    AWAITED = "awaited"
    ASYNC = "async"
    ONEWAY = "one-way"


# Compat: the same as Java's producer.
RETRIED_CODES: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
# What says that a broker is unwell, rather than that a topic or a message does not suit it.
_UNWELL_CODES: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.GO_AWAY,
    }
)
# What says that the route may have changed.
_ROUTE_CODES: Final = frozenset(
    {ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.GO_AWAY}
)
_HINTS: Final[dict[int, str]] = {
    ResponseCode.SYSTEM_BUSY: "the brokers are overloaded; send more slowly, or retry later",
    ResponseCode.SERVICE_NOT_AVAILABLE: "the broker cannot store anything now; look at its log "
    "and its disk",
    ResponseCode.MESSAGE_ILLEGAL: "the broker's limits may be lower than the producer's",
    ResponseCode.NO_PERMISSION: "the topic or the broker does not allow sending, or the access "
    "key does not",
    ResponseCode.TOPIC_NOT_EXIST: "create the topic, or let the broker create it "
    "(autoCreateTopicEnable)",
}


def tries_max(mode: SendMode, *, retries: int, async_retries: int, queue_is_fixed: bool) -> int:
    """Say how often a send is tried at most.

    Compat: as Java, an awaited send to a queue of the user's choice is tried once: what comes
    behind it in that queue shall not overtake it unnoticed.
    """
    match mode:
        case SendMode.AWAITED:
            return 1 if queue_is_fixed else retries + 1
        case SendMode.ASYNC:
            return async_retries + 1
        case SendMode.ONEWAY:
            return 1


def is_retried(error: Exception) -> bool:
    """Whether another try may end better."""
    if isinstance(error, RemoteError):
        return error.code in RETRIED_CODES
    # Too many calls are under way on this side: another try would only be one more.
    return isinstance(error, (TransportError, BrokerUnknownError)) and not isinstance(
        error, TooManyCallsError
    )


def is_fault_of_broker(error: Exception) -> bool:
    """Whether the broker should be avoided for a while."""
    if isinstance(error, RemoteError):
        return error.code in _UNWELL_CODES
    return isinstance(error, TransportError) and not isinstance(error, TooManyCallsError)


def makes_route_doubtful(error: Exception) -> bool:
    """Whether the route of the topic should be asked for again."""
    if isinstance(error, RemoteError):
        return error.code in _ROUTE_CODES
    return isinstance(
        error, (ConnectError, ConnectionLostError, CallTimeoutError, BrokerUnknownError)
    )


def may_be_stored(error: Exception) -> bool:
    """Whether a broker may have stored the message although the try failed."""
    if isinstance(error, ProtocolError):
        # An answer came that makes no sense; but for a request too large to be sent at all.
        return not isinstance(error, FrameTooLargeError)
    # The bare kinds: an answer came and was lost on this side.
    return isinstance(error, (ConnectionLostError, CallTimeoutError)) or type(error) in (
        OrbitError,
        TransportError,
    )


def pause_ms(pause_ms: float, tries_made: int, left_ms: float) -> float:
    """Say how long to wait before the same broker is tried again; longer each time.

    At least half of the time that is left stays for the try itself.
    """
    return min(pause_ms * 2.0 ** (tries_made - 1), left_ms / 2)


def failure(
    topic: str, tries: Sequence[FailedTry], *, elapsed_ms: float, timeout_ms: float
) -> SendError:
    """Make the error that a send ends with."""
    last = tries[-1].error if tries else None
    kind = SendError
    if last is None or isinstance(last, CallTimeoutError):
        kind = SendTimeoutError
    elif not is_retried(last):
        kind = SendRefusedError
    elif elapsed_ms >= timeout_ms:
        kind = SendTimeoutError
    error = kind(
        topic,
        tries,
        elapsed_ms=elapsed_ms,
        may_be_stored=any(may_be_stored(tried.error) for tried in tries),
        hint=_hint(last, timeout_ms),
    )
    error.__cause__ = last
    return error


def _hint(last: Exception | None, timeout_ms: float) -> str:
    if isinstance(last, RemoteError):
        return _HINTS.get(last.code, last.hint)
    if isinstance(last, ConnectError):
        return "check that the broker runs and that its address can be reached from here"
    if last is None or isinstance(last, CallTimeoutError):
        return f"the brokers are slow or stuck; or give it more time than {timeout_ms:.0f} ms"
    return getattr(last, "hint", "") or "retry later"
