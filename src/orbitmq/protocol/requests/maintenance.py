"""Clean-up of a broker's files, requested by an operator."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanExpiredQueues(Header):
    """Delete queue files whose messages are gone."""

    CODE = RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanUnusedTopics(Header):
    """Delete the queues of deleted topics."""

    CODE = RequestCode.CLEAN_UNUSED_TOPIC


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteExpiredLogs(Header):
    """Delete expired log files now, not at the configured hour."""

    CODE = RequestCode.DELETE_EXPIRED_COMMITLOG
