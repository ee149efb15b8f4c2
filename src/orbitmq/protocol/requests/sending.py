"""Sending messages: single or as a batch, with long or short field names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from orbitmq.model import property_names
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header, Long, wire

# The region of a broker that is not configured otherwise.
USUAL_REGION: Final = "DefaultRegion"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessage(Header):
    """Store the message in the body; with `batch`, the messages packed into it."""

    CODE = RequestCode.SEND_MESSAGE
    producer_group: str
    topic: str
    # A topic that does not exist is created from this one, with this number of queues.
    template_topic: str = wire("defaultTopic")
    template_queues: int = wire("defaultTopicQueueNums")
    # A negative number leaves the choice to the broker.
    queue_id: int
    system_flag: int = wire("sysFlag")
    born_timestamp_ms: Long = wire("bornTimestamp")
    flag: int
    properties: str | None = None
    retries: int | None = wire("reconsumeTimes", None)
    unit_mode: bool | None = None
    retries_max: int | None = wire("maxReconsumeTimes", None)
    batch: bool | None = None
    broker_name: str | None = wire("bname", None)


_LETTERS: Final = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
    "unitMode": "k",
    "maxReconsumeTimes": "l",
    "batch": "m",
    "bname": "n",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessageShort(SendMessage):
    """The same request with one-letter field names, as Java sends it."""

    CODE = RequestCode.SEND_MESSAGE_V2

    @classmethod
    def decode(cls, fields: dict[str, str]) -> Self:
        """Read this header from fields named by letters."""
        named = {name: fields[letter] for name, letter in _LETTERS.items() if letter in fields}
        return super(SendMessageShort, cls).decode(named)

    def encode(self) -> dict[str, str]:
        """Write this header as fields named by letters."""
        return {_LETTERS[name]: text for name, text in SendMessage.encode(self).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBatch(SendMessageShort):
    """The same request for a batch; the `batch` field marks one, not this code."""

    CODE = RequestCode.SEND_BATCH_MESSAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAnswer(SendMessage):
    """The message in the body answers a request: push it to the client that waits for it."""

    CODE = RequestCode.SEND_REPLY_MESSAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAnswerShort(SendMessageShort):
    """The same request with one-letter field names, as Java sends it."""

    CODE = RequestCode.SEND_REPLY_MESSAGE_V2


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReply(Header):
    """Where a message was stored, or the first one of a batch.

    Compat: Java reads these fields of every reply that says "stored", including timeouts of flush
    and replication, and fails if they are missing.
    """

    # In the order of the fast form (`broker/send_replies.py`).
    region: str = wire(property_names.REGION, USUAL_REGION)
    trace: bool = wire(property_names.TRACE_ON, default=True)
    # Of a batch: one id a message, with commas between them.
    message_id: str = wire("msgId")
    queue_id: int
    queue_offset: Long
    transaction_id: str | None = None
    batch_unique_id: str | None = wire("batchUniqId", None)
    recall_handle: str | None = None
    # DISK or MEMORY: where the message was at the time of the reply; RocketMQ does not report it.
    durability: str | None = None
    # How many brokers had it then, and how many of them on disk; of a sync master of ours.
    copies: int | None = None
    copies_on_disk: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallMessage(Header):
    """Take back a message that is not due yet."""

    CODE = RequestCode.RECALL_MESSAGE
    producer_group: str | None = None
    topic: str
    recall_handle: str
    broker_name: str | None = wire("bname", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallReply(Header):
    """The unique id of the message that was taken back."""

    message_id: str = wire("msgId")
