"""Where a group starts to read a queue in which it has committed nothing."""

from __future__ import annotations

from enum import Enum
from typing import Final

from orbitmq.model.names import is_retry_topic
from orbitmq.model.subscriptions import (
    FROM_FIRST_OFFSET,
    FROM_LAST_OFFSET,
    FROM_TIMESTAMP,
    ConsumeFrom,
)

# As users say it, and as brokers are told.
CONSUME_FROM: Final = {
    "last": FROM_LAST_OFFSET,
    "first": FROM_FIRST_OFFSET,
    "timestamp": FROM_TIMESTAMP,
}


class StartPoint(Enum):
    """A place in a queue that its broker can be asked for."""

    START = "the oldest message"
    END = "behind the newest message"
    TIME = "the first message stored at a time or later"


def start_point(topic: str, consume_from: ConsumeFrom) -> StartPoint:
    """Say where to start; the older ways of Java's clients mean the end, as they do there."""
    if consume_from == FROM_FIRST_OFFSET:
        return StartPoint.START
    if consume_from == FROM_TIMESTAMP:
        # What the group failed to consume is younger than the group.
        return StartPoint.END if is_retry_topic(topic) else StartPoint.TIME
    # A first failure may be stored before the queue of retries is looked at; it must not be missed.
    return StartPoint.START if is_retry_topic(topic) else StartPoint.END
