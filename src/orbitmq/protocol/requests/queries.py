"""Finding messages: by key, by position in the log; and the entries of a queue."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from orbitmq.java_json import JavaInt, JavaLong
from orbitmq.model.subscriptions import Subscription
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header, Long, wire


class KeyType(StrEnum):
    """What a query looks messages up by."""

    KEY = "K"
    UNIQUE_ID = "U"
    TAG = "T"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindMessages(Header):
    """Ask for the messages with a key; the reply's body is their records, back to back."""

    CODE = RequestCode.QUERY_MESSAGE
    topic: str
    key: str
    messages_max: int = wire("maxNum")
    begin_ms: Long = wire("beginTimestamp")
    end_ms: Long = wire("endTimestamp")
    # The key is a message's unique key, not one that its sender chose.
    by_unique_key: bool = wire("_UNIQUE_KEY_QUERY", default=False)
    # What the key is, for RocketMQ 5.5 and later: see `KeyType`.
    key_type: str | None = wire("indexType", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FindMessagesReply(Header):
    """The time and position up to which messages are indexed."""

    indexed_until_ms: Long = wire("indexLastUpdateTimestamp")
    indexed_until: Long = wire("indexLastUpdatePhyoffset")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadMessage(Header):
    """Ask for the message at a position of the commit log; the reply's body is its record."""

    CODE = RequestCode.VIEW_MESSAGE_BY_ID
    physical_offset: Long = wire("offset")
    topic: str | None = None
    # Messages that are not visible yet count too; slaves of ours ask so.
    hidden: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadQueueEntries(Header):
    """Ask for the entries of a queue; the reply's body is `QueueEntries`."""

    CODE = RequestCode.QUERY_CONSUME_QUEUE
    topic: str
    queue_id: int
    queue_offset: Long = wire("index")
    count: int
    # With a group, each entry shows whether the group's filter matches it.
    consumer_group: str | None = None


class QueueEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a consume queue."""

    bit_map: str | None = msgspec.field(default=None, name="bitMap")
    matches: bool = msgspec.field(default=False, name="eval")
    extension: str | None = msgspec.field(default=None, name="extendDataJson")
    # The error, if the filter could not be evaluated.
    remark: str | None = msgspec.field(default=None, name="msg")
    physical_offset: JavaLong = msgspec.field(name="physicOffset")
    record_bytes: JavaInt = msgspec.field(name="physicSize")
    tag_hash: JavaLong = msgspec.field(name="tagsCode")


class QueueEntries(msgspec.Struct, kw_only=True):
    """Entries of a consume queue, and the bounds of the queue."""

    filter_text: str | None = msgspec.field(default=None, name="filterData")
    max_offset: JavaLong = msgspec.field(name="maxQueueIndex")
    min_offset: JavaLong = msgspec.field(name="minQueueIndex")
    entries: list[QueueEntry] = msgspec.field(default_factory=list, name="queueData")
    subscription: Subscription | None = msgspec.field(default=None, name="subscriptionData")
