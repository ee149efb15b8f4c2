"""Queues and the two kinds of offset, which must never be mixed up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, NewType

import msgspec

PhysicalOffset = NewType("PhysicalOffset", int)  # byte position in the commit log
QueueOffset = NewType("QueueOffset", int)  # number of an entry in one consume queue


class MessageQueue(msgspec.Struct, frozen=True, order=True, kw_only=True):
    """One queue of one topic on one broker; as a map key it is sent as this object."""

    broker_name: str = msgspec.field(name="brokerName")
    queue_id: int = msgspec.field(name="queueId")
    topic: str


class QueueBounds(NamedTuple):
    """One queue: the offset of its oldest message, and the one after its newest visible message."""

    topic: str
    queue_id: int
    start: QueueOffset
    end: QueueOffset


def by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    """Group queues by broker name."""
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found
