"""Offsets: committed by groups, bounds of queues, resetting and cloning."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from orbitmq.java_json import JavaInt, JavaLong, ObjectKeyed
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header, Long, wire


@dataclass(frozen=True, slots=True, kw_only=True)
class GetCommittedOffset(Header):
    """Ask for a group's committed offset in a queue."""

    CODE = RequestCode.QUERY_CONSUMER_OFFSET
    consumer_group: str
    topic: str
    queue_id: int
    # Compat: None is not false: a Java broker may answer 0 for a group that committed nothing.
    zero_if_missing: bool | None = wire("setZeroIfNotFound", None)
    broker_name: str | None = wire("bname", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffset(Header):
    """Commit a group's offset in a queue."""

    CODE = RequestCode.UPDATE_CONSUMER_OFFSET
    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: Long
    broker_name: str | None = wire("bname", None)
    # OrbitMQ's own, of slaves that hand over what clients committed there: a lower offset than the
    # group has is ignored.
    only_forward: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOffset(Header):
    """Ask for the offset at a time."""

    CODE = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    topic: str
    queue_id: int
    timestamp_ms: Long = wire("timestamp")
    boundary: str | None = wire("boundaryType", None)
    broker_name: str | None = wire("bname", None)

    @property
    def wants_last_before(self) -> bool:
        """Whether the last message up to the time is wanted, not the first from it on."""
        # Compat: to Java every other text means the other boundary; letter case is ignored.
        return self.boundary is not None and self.boundary.lower() == "upper"


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMaxOffset(Header):
    """Ask for the end of a queue: the offset that the next message will have."""

    CODE = RequestCode.GET_MAX_OFFSET
    topic: str
    queue_id: int
    # Whether to count only messages that consumers can see.
    committed: bool = True
    broker_name: str | None = wire("bname", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMinOffset(Header):
    """Ask for the start of a queue."""

    CODE = RequestCode.GET_MIN_OFFSET
    topic: str
    queue_id: int
    broker_name: str | None = wire("bname", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetReply(Header):
    """The offset that was asked for."""

    offset: Long


@dataclass(frozen=True, slots=True, kw_only=True)
class GetOldestTime(Header):
    """Ask when the oldest message of a queue was stored."""

    CODE = RequestCode.GET_EARLIEST_MSG_STORETIME
    topic: str
    queue_id: int
    broker_name: str | None = wire("bname", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class OldestTimeReply(Header):
    """When the oldest message was stored; -1 for a queue without messages."""

    timestamp_ms: Long = wire("timestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAllCommittedOffsets(Header):
    """Ask for the content of the broker's file of committed offsets, as slaves do."""

    CODE = RequestCode.GET_ALL_CONSUMER_OFFSET


@dataclass(frozen=True, slots=True, kw_only=True)
class GetDelayProgress(Header):
    """Ask for the content of the broker's file of delay progress, as slaves do."""

    CODE = RequestCode.GET_ALL_DELAY_OFFSET


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffsets(Header):
    """Set a group's offsets in a topic to a time or an offset; the reply's body is `QueueOffsetTable`."""

    CODE = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    topic: str
    group: str
    # -1 is the end of the queue.
    timestamp_ms: Long = wire("timestamp")
    # Whether offsets may also move forward.
    force: bool = wire("isForce")
    # -1 is every queue of the topic.
    queue_id: int = -1
    # With None or -1 the time counts.
    offset: Long | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetConsumerOffsets(ResetOffsets):
    """The broker sends a consumer, one way, its new offsets: `QueueOffsetTable`, or a list for C++."""

    CODE = RequestCode.RESET_CONSUMER_CLIENT_OFFSET


class QueueOffsetTable(msgspec.Struct, kw_only=True):
    """An offset for each queue.

    Compat: write it in the fastjson dialect only. Consumers in Go split the text by hand, and
    silently ignore a reset with quoted keys.
    """

    offsets: ObjectKeyed[MessageQueue, JavaLong] = msgspec.field(
        default_factory=ObjectKeyed, name="offsetTable"
    )

    def as_list(self) -> QueueOffsetList:
        """Return the same as a list, for consumers in C++, which cannot read object keys."""
        return QueueOffsetList(
            offsets=[
                ListedQueueOffset(
                    broker_name=queue.broker_name,
                    offset=offset,
                    queue_id=queue.queue_id,
                    topic=queue.topic,
                )
                for queue, offset in self.offsets.items()
            ]
        )


class ListedQueueOffset(msgspec.Struct, frozen=True, kw_only=True):
    """A queue and its offset, side by side."""

    broker_name: str = msgspec.field(name="brokerName")
    offset: JavaLong
    queue_id: JavaInt = msgspec.field(name="queueId")
    topic: str


class QueueOffsetList(msgspec.Struct, kw_only=True):
    """An offset for each queue, as C++ reads it."""

    offsets: list[ListedQueueOffset] = msgspec.field(default_factory=list, name="offsetTable")


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneOffsets(Header):
    """Copy a group's offsets to another group, in one topic or in all."""

    CODE = RequestCode.CLONE_GROUP_OFFSET
    source_group: str = wire("srcGroup")
    target_group: str = wire("destGroup")
    topic: str | None = None
    offline: bool = False
