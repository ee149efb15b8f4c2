"""Where a group starts to read a queue without a committed offset."""

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

# The values of the option `consume_from`, and what brokers get in heartbeats.
CONSUME_FROM: Final = {
    "last": FROM_LAST_OFFSET,
    "first": FROM_FIRST_OFFSET,
    "timestamp": FROM_TIMESTAMP,
}


class StartPoint(Enum):
    """A position in a queue whose offset the broker knows."""

    START = "the oldest message"
    END = "after the newest message"
    TIME = "the first message stored at a time or later"


def start_point(topic: str, consume_from: ConsumeFrom) -> StartPoint:
    """Choose where to start; deprecated values of Java's clients mean the end, as in Java."""
    if consume_from == FROM_FIRST_OFFSET:
        return StartPoint.START
    if consume_from == FROM_TIMESTAMP:
        # Failed messages of the group are younger than the group.
        return StartPoint.END if is_retry_topic(topic) else StartPoint.TIME
    # The first failure may be stored before the retry queue is read; it must not be missed.
    return StartPoint.START if is_retry_topic(topic) else StartPoint.END
