"""Send plan: number of attempts, failures that are retried, the final error.

One deadline covers all attempts of a send. A failure that another broker may not have is retried at
once; only if there is no other broker does the retry wait a moment. If no master can be connected to,
nothing was sent: the send waits for a new one until its deadline, whatever its number of attempts.
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
    ReplyNotDeliveredError,
    SendError,
    SendRefusedError,
    SendTimeoutError,
    TooManyCallsError,
    TransportError,
)
from orbitmq.protocol.codes import ResponseCode


class SendMode(Enum):
    """How a send reports its result."""

    AWAITED = "awaited"
    ASYNC = "async"
    ONEWAY = "one-way"


# Compat: the same as in Java's producer.
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
# The broker has a problem, rather than with this topic or message.
_UNWELL_CODES: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.GO_AWAY,
    }
)
# The route may have changed: the topic is elsewhere, or the broker is a slave since a promotion.
_ROUTE_CODES: Final = frozenset(
    {
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.GO_AWAY,
    }
)
_PROMOTE: Final = "a slave takes its place with: orbitmq broker promote"
_HINTS: Final[dict[int, str]] = {
    ResponseCode.SYSTEM_BUSY: "the brokers are overloaded; send more slowly, or retry later",
    ResponseCode.SERVICE_NOT_AVAILABLE: "the broker cannot store messages now; check its log "
    "and its disk",
    ResponseCode.MESSAGE_ILLEGAL: "the broker's limits may be lower than the producer's",
    ResponseCode.NO_PERMISSION: "the topic or the broker does not allow sending, or the access "
    "key does not",
    ResponseCode.TOPIC_NOT_EXIST: "create the topic, or let the broker create it "
    "(autoCreateTopicEnable)",
}


def tries_max(mode: SendMode, *, retries: int, async_retries: int, queue_is_fixed: bool) -> int:
    """Return how often a send is tried at most.

    Compat: as in Java, an awaited send to a queue of the user's choice is tried once, so that later
    messages in that queue do not overtake it unnoticed.
    """
    match mode:
        case SendMode.AWAITED:
            return 1 if queue_is_fixed else retries + 1
        case SendMode.ASYNC:
            return async_retries + 1
        case SendMode.ONEWAY:
            return 1


def is_retried(error: Exception) -> bool:
    """Whether another attempt may succeed."""
    if isinstance(error, RemoteError):
        return error.code in RETRIED_CODES
    # Too many calls of this client are in flight: a retry would only add one.
    return isinstance(error, (TransportError, BrokerUnknownError)) and not isinstance(
        error, TooManyCallsError
    )


def lacks_master(error: Exception) -> bool:
    """Whether nothing was sent as the master is gone; a name server may soon know another."""
    return isinstance(error, (ConnectError, BrokerUnknownError))


def may_be_slave(error: Exception) -> bool:
    """Whether a broker stored nothing, maybe as another one took its place as master."""
    return isinstance(error, RemoteError) and error.code == ResponseCode.SERVICE_NOT_AVAILABLE


def is_broker_fault(error: Exception) -> bool:
    """Whether the broker should be avoided for a while."""
    if isinstance(error, RemoteError):
        return error.code in _UNWELL_CODES and not isinstance(error, ReplyNotDeliveredError)
    return isinstance(error, TransportError) and not isinstance(error, TooManyCallsError)


def suggests_stale_route(error: Exception) -> bool:
    """Whether the route of the topic should be refreshed."""
    if isinstance(error, RemoteError):
        return error.code in _ROUTE_CODES
    return isinstance(
        error, (ConnectError, ConnectionLostError, CallTimeoutError, BrokerUnknownError)
    )


def may_be_stored(error: Exception) -> bool:
    """Whether a broker may have stored the message although the attempt failed."""
    if isinstance(error, ProtocolError):
        # The reply was invalid; except for a request that was too large to be sent at all.
        return not isinstance(error, FrameTooLargeError)
    # The base classes themselves: a reply came and was lost in this client.
    return isinstance(error, (ConnectionLostError, CallTimeoutError)) or type(error) in (
        OrbitError,
        TransportError,
    )


def pause_ms(pause_ms: float, tries_made: int, left_ms: float) -> float:
    """Return how long to wait before a retry on the same broker; longer each time.

    At least half of the remaining time is left for the attempt itself.
    """
    return min(pause_ms * 2.0 ** (tries_made - 1), left_ms / 2)


def failure(
    topic: str, tries: Sequence[FailedTry], *, elapsed_ms: float, timeout_ms: float
) -> SendError:
    """Make the final error of a send."""
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
        return f"check that the broker runs and that its address is reachable from here; {_PROMOTE}"
    if isinstance(last, BrokerUnknownError):
        return f"{last.hint}; {_PROMOTE}"
    if last is None or isinstance(last, CallTimeoutError):
        return f"the brokers are slow or stuck; check them, or allow more than {timeout_ms:.0f} ms"
    return getattr(last, "hint", "") or "retry later"
