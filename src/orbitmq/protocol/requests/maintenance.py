"""Upkeep of a broker's files, asked for by hand."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanExpiredQueues(Header):
    """Drop queue files whose messages are gone."""

    CODE = RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanUnusedTopics(Header):
    """Drop the queues of topics that are no more."""

    CODE = RequestCode.CLEAN_UNUSED_TOPIC


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteExpiredLogs(Header):
    """Delete log files past their time now, not at the hour set for it."""

    CODE = RequestCode.DELETE_EXPIRED_COMMITLOG
