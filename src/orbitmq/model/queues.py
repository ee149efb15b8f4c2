"""Queues and the two kinds of offset, which must never be mixed up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, NewType

import msgspec

PhysicalOffset = NewType("PhysicalOffset", int)  # byte position in the commit log
QueueOffset = NewType("QueueOffset", int)  # number of an entry in one consume queue


class MessageQueue(msgspec.Struct, frozen=True, order=True, kw_only=True):
    """One queue of one topic at one broker; as a map key it travels as this object."""

    broker_name: str = msgspec.field(name="brokerName")
    queue_id: int = msgspec.field(name="queueId")
    topic: str


class QueueBounds(NamedTuple):
    """One queue: its first message that is left, and the number behind its last visible one."""

    topic: str
    queue_id: int
    start: QueueOffset
    end: QueueOffset


def by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    """Sort queues into their brokers, by name."""
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found
