"""Refusals: which response code a client gets for an error."""

from __future__ import annotations

from typing import Final

from orbitmq.errors import (
    ArchiveConflictError,
    ArchiveMissingError,
    ArchiveRefusedError,
    BatchConflictError,
    DiskFullError,
    FilterSyntaxError,
    GroupMissingError,
    GroupRefusedError,
    HeartbeatRefusedError,
    MessageError,
    NameRuleError,
    OffsetRefusedError,
    OrbitError,
    QueryMissingError,
    RecallHandleError,
    StateError,
    StoreFencedError,
    SubscriptionConflictError,
    SubscriptionMissingError,
    SubscriptionOutdatedError,
    TopicMissingError,
    TopicRefusedError,
)
from orbitmq.protocol.codes import ResponseCode

_CODES: Final[tuple[tuple[type[OrbitError], ResponseCode], ...]] = (
    (NameRuleError, ResponseCode.INVALID_PARAMETER),
    (TopicMissingError, ResponseCode.TOPIC_NOT_EXIST),
    (TopicRefusedError, ResponseCode.INVALID_PARAMETER),
    (GroupMissingError, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    (GroupRefusedError, ResponseCode.NO_PERMISSION),
    (ArchiveMissingError, ResponseCode.QUERY_NOT_FOUND),
    (ArchiveConflictError, ResponseCode.ILLEGAL_OPERATION),
    (ArchiveRefusedError, ResponseCode.INVALID_PARAMETER),
    (OffsetRefusedError, ResponseCode.INVALID_PARAMETER),
    (HeartbeatRefusedError, ResponseCode.INVALID_PARAMETER),
    (SubscriptionMissingError, ResponseCode.SUBSCRIPTION_NOT_EXIST),
    (SubscriptionOutdatedError, ResponseCode.SUBSCRIPTION_NOT_LATEST),
    (SubscriptionConflictError, ResponseCode.SUBSCRIPTION_NOT_LATEST),
    (FilterSyntaxError, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    (MessageError, ResponseCode.MESSAGE_ILLEGAL),
    (BatchConflictError, ResponseCode.ILLEGAL_OPERATION),
    (RecallHandleError, ResponseCode.ILLEGAL_OPERATION),
    (QueryMissingError, ResponseCode.QUERY_NOT_FOUND),
    (DiskFullError, ResponseCode.SERVICE_NOT_AVAILABLE),
    (StoreFencedError, ResponseCode.SERVICE_NOT_AVAILABLE),
    (StateError, ResponseCode.SERVICE_NOT_AVAILABLE),
)


def code_of(error: OrbitError) -> int:
    """The code of an error; SYSTEM_ERROR for one that is not listed."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return ResponseCode.SYSTEM_ERROR
