"""The largest body of each request, so that decoding one does not stall a server.

Requests that carry messages, or every topic of a broker, may fill a frame. The others are small
JSON documents; what real clients and tools send stays far below these limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orbitmq.errors import BodyTooLargeError
from orbitmq.protocol.codes import RequestCode, request_name

_MIB: Final = 1024 * 1024
BODY_BYTES_MAX: Final = _MIB
_LISTS_BYTES_MAX: Final = 4 * _MIB
# Requests of exactly-once writes.
_EXACTLY_ONCE: Final = range(21_000, 21_100)
# All options of a broker with their values take 3 KB.
_OPTIONS_BYTES_MAX: Final = 128 * 1024

_UNLIMITED: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
        RequestCode.CHECK_TRANSACTION_STATE,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.STAGE_ROWS,
        RequestCode.REGISTER_BROKER,
    }
)
_LIMITS: Final[Mapping[int, int]] = {
    **{code: BODY_BYTES_MAX for code in RequestCode if code not in _UNLIMITED},
    RequestCode.UPDATE_BROKER_CONFIG: _OPTIONS_BYTES_MAX,
    RequestCode.UPDATE_NAMESRV_CONFIG: _OPTIONS_BYTES_MAX,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _LISTS_BYTES_MAX,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _LISTS_BYTES_MAX,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: _LISTS_BYTES_MAX,
    RequestCode.LOCK_BATCH_MQ: _LISTS_BYTES_MAX,
    RequestCode.UNLOCK_BATCH_MQ: _LISTS_BYTES_MAX,
    **{code: _LISTS_BYTES_MAX for code in _EXACTLY_ONCE if code not in _UNLIMITED},
}


def body_bytes_max(code: int) -> int | None:
    """The largest body of a request; None if only the frame is limited, or nobody reads it."""
    return _LIMITS.get(code)


def check_body(code: int, body_bytes: int) -> None:
    """Raise BodyTooLargeError for a body above the limit of its request."""
    # Perf: nearly every body is below all limits.
    if body_bytes <= _OPTIONS_BYTES_MAX:
        return
    limit = body_bytes_max(code)
    if limit is not None and body_bytes > limit:
        raise BodyTooLargeError(request_name(code), body_bytes, limit)
