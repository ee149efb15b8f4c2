"""Messages as consumers get them; fields are decoded from the record on access.

All messages of one reply share its bytes: keeping one of them keeps all these bytes in memory.

Threads: reading is safe from any thread; at worst, two threads decompress the same body.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from orbitmq.client.core.namespaces import unwrap
from orbitmq.errors import ProtocolError
from orbitmq.model import property_names
from orbitmq.model.messages import Message
from orbitmq.model.names import is_retry_topic
from orbitmq.model.queues import MessageQueue
from orbitmq.record.codec import walk
from orbitmq.record.compression import decompress
from orbitmq.record.decode import decode_record
from orbitmq.record.hosts import decode_host
from orbitmq.record.layout import COMPRESSED, MAGIC_V2, SYSTEM_FLAG_AT
from orbitmq.record.message_id import encode_message_id
from orbitmq.record.properties import decode_properties, find_property
from orbitmq.record.scan import ENTRY

# All fields before the body, by which of the two hosts have 20 bytes. Perf: one call reads all of
# them in 0.3 us; reading them one by one takes 2 us (timeit).
_HEADS: Final = tuple(
    struct.Struct(f">4xI4xiiqqiq{born}sq{store}siqi")
    for born, store in ((8, 8), (20, 8), (8, 20), (20, 20))
)
_HOST_BITS_AT: Final = SYSTEM_FLAG_AT + 3
_SHORT: Final = struct.Struct(">h")
_TAGS: Final = property_names.TAGS.encode()
_UNIQUE_ID: Final = property_names.UNIQUE_ID.encode()
_KEYS: Final = property_names.KEYS.encode()
_DELAY_LEVEL: Final = property_names.DELAY_LEVEL.encode()
_REPLY_TO: Final = property_names.REPLY_TO_CLIENT.encode()
_RETRY_TOPIC: Final = property_names.RETRY_TOPIC.encode()
_NOT_OWN: Final = property_names.NOT_SENT_ON | property_names.RESERVED

_Head = tuple[int, int, int, int, int, int, int, bytes, int, bytes, int, int, int]


class ReceivedMessage:
    """A message that a broker stored."""

    __slots__ = (
        "_at",
        "_body",
        "_buffer",
        "_head",
        "_namespace",
        "_properties",
        "_topic",
        "queue",
        "queue_offset",
        "size",
        "stored_queue",
    )

    def __init__(
        self,
        buffer: bytes,
        at: int,
        size: int,
        queue: MessageQueue,
        queue_offset: int,
        namespace: str = "",
        stored_queue: MessageQueue | None = None,
    ) -> None:
        """Wrap the record at `buffer[at : at + size]`, which is known to be valid."""
        self._buffer = buffer
        self._at = at
        self._namespace = namespace
        self._head: _Head | None = None
        self._topic: str | None = None
        self._body: bytes | None = None
        self._properties: Mapping[str, str] | None = None
        # The queue it was read from; on a retry, a queue of its group's retry topic.
        self.queue = queue
        # The same queue as brokers name it, with the namespace.
        self.stored_queue = stored_queue or queue
        self.queue_offset = queue_offset
        # Size of the whole record in bytes.
        self.size = size

    # --- set by the producer --------------------------------------------------------------------

    @property
    def topic(self) -> str:
        """The topic it was sent to, even on a retry."""
        if self._topic is None:
            topic = self.stored_queue.topic
            if is_retry_topic(topic) and (origin := self._property(_RETRY_TOPIC)):
                topic = origin
            self._topic = unwrap(self._namespace, topic)
        return self._topic

    @property
    def body(self) -> bytes:
        """Its content, as the producer sent it."""
        if self._body is None:
            head = self._head or self._read_head()
            start = self._body_at(head)
            stored = self._buffer[start : start + head[12]]
            # Compat: as in Java, an empty body is never decompressed, whatever the flag says.
            is_compressed = head[5] & COMPRESSED and stored
            self._body = decompress(stored, head[5]) if is_compressed else stored
        return self._body

    @property
    def tags(self) -> str:
        """The tag that consumers can filter by; empty if there is none."""
        return self._property(_TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys by which it can be looked up."""
        return tuple(self._property(_KEYS).split())

    @property
    def flag(self) -> int:
        """A number that the producer may set; RocketMQ does not interpret it."""
        return (self._head or self._read_head())[2]

    @property
    def delay_level(self) -> int:
        """The delay level it was sent with; 0 for none."""
        level = self._property(_DELAY_LEVEL)
        return int(level) if level.isdecimal() else 0

    @property
    def properties(self) -> Mapping[str, str]:
        """All its properties: those of the user and of RocketMQ."""
        if self._properties is None:
            self._properties = MappingProxyType(decode_properties(self._properties_bytes()))
        return self._properties

    @property
    def wants_reply(self) -> bool:
        """Whether its producer sent it as a request, and waits for a reply."""
        return bool(self._property(_REPLY_TO))

    @property
    def born_ms(self) -> int:
        """When its producer sent it, in milliseconds since the epoch."""
        return (self._head or self._read_head())[6]

    @property
    def born_host(self) -> tuple[str, int]:
        """Address and port of its producer."""
        return decode_host((self._head or self._read_head())[7])

    # --- set by the broker ----------------------------------------------------------------------

    @property
    def message_id(self) -> str:
        """The id that its producer set, or else `offset_message_id`."""
        return self._property(_UNIQUE_ID) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The id made of its broker's address and its offset in the commit log."""
        head = self._head or self._read_head()
        return encode_message_id(head[9], head[4])

    @property
    def queue_id(self) -> int:
        """The id of its queue."""
        return self.queue.queue_id

    @property
    def broker_name(self) -> str:
        """The name of the broker it was read from."""
        return self.queue.broker_name

    @property
    def physical_offset(self) -> int:
        """Its byte offset in the commit log of its broker."""
        return (self._head or self._read_head())[4]

    @property
    def store_ms(self) -> int:
        """When the broker stored it, in milliseconds since the epoch."""
        return (self._head or self._read_head())[8]

    @property
    def store_host(self) -> tuple[str, int]:
        """Address and port of the broker that stored it."""
        return decode_host((self._head or self._read_head())[9])

    @property
    def system_flag(self) -> int:
        """RocketMQ's flag bits: compression, transaction state, kinds of addresses."""
        return (self._head or self._read_head())[5]

    @property
    def reconsume_times(self) -> int:
        """How often its group has failed to consume it."""
        return (self._head or self._read_head())[10]

    def count_retry(self) -> None:
        """Count another failure of a consumer that keeps it; for clients, not for users."""
        head = self._head or self._read_head()
        self._head = (*head[:10], head[10] + 1, *head[11:])

    @property
    def prepared_offset(self) -> int:
        """The commit log offset of the half message of its transaction."""
        return (self._head or self._read_head())[11]

    def as_message(self, topic: str = "") -> Message:
        """Return a copy to send on, by default to the topic it was first sent to.

        It has the body, tags, keys, flag and sharding key, and the user's own properties. RocketMQ's
        own are left out: the copy gets an id of its own, and is not delayed or retried again.
        """
        properties = self.properties
        if not topic:
            topic = unwrap(self._namespace, properties.get(property_names.RETRY_TOPIC, self.topic))
        return Message(
            topic,
            self.body,
            tags=self.tags,
            keys=self.keys,
            flag=self.flag,
            properties={
                name: value
                for name, value in properties.items()
                if name not in _NOT_OWN and not name.startswith(property_names.BROKER_PREFIX)
            },
            sharding_key=properties.get(property_names.SHARDING_KEY, ""),
        )

    def __repr__(self) -> str:
        return (
            f"<ReceivedMessage {self.message_id} topic={self.topic!r}, "
            f"queue {self.queue_id} of {self.broker_name!r} at {self.queue_offset}, "
            f"{self.size} bytes>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle its own bytes only, not the whole reply.
        record = self._buffer[self._at : self._at + self.size]
        queues = (self.queue, self.queue_offset, self._namespace, self.stored_queue)
        return ReceivedMessage, (record, 0, self.size, *queues)

    # --- the record -----------------------------------------------------------------------------

    def _read_head(self) -> _Head:
        layout = _HEADS[self._buffer[self._at + _HOST_BITS_AT] >> 4 & 3]
        # A single assignment: other threads see all of it or nothing.
        head: _Head = layout.unpack_from(self._buffer, self._at)
        self._head = head
        return head

    def _body_at(self, head: _Head) -> int:
        return self._at + _HEADS[head[5] >> 4 & 3].size

    def _properties_bytes(self) -> bytes:
        head = self._head or self._read_head()
        buffer = self._buffer
        at = self._body_at(head) + head[12]
        if head[0] == MAGIC_V2:
            at += 2 + _SHORT.unpack_from(buffer, at)[0]
        else:
            at += 1 + buffer[at]
        return buffer[at + 2 : self._at + self.size]

    def _property(self, name: bytes) -> str:
        """Read one property, without decoding the others."""
        if self._properties is not None:
            return self._properties.get(name.decode(), "")
        value = find_property(self._properties_bytes(), name)
        return value.decode(errors="replace") if value else ""


def received_messages(
    body: bytes, broker_name: str, *, namespace: str = ""
) -> list[ReceivedMessage]:
    """Find the messages in the body of a reply, in order."""
    found = walk(body, 0, len(body), 0, check_body=False, delay_levels_ms=(), with_keys=False)
    if found.position != len(body):
        raise ProtocolError(
            f"unreadable reply from broker {broker_name} at byte {found.position} of {len(body)}: "
            f"{found.stopped_by.verdict.value}"
            f"{': ' if found.stopped_by.reason else ''}{found.stopped_by.reason}"
        )
    messages: list[ReceivedMessage] = []
    in_order = True
    for (topic, queue_id), runs in found.runs.items():
        # Compat: as in Java, invalid UTF-8 is replaced, not refused.
        stored_queue = MessageQueue(
            topic=topic.decode(errors="replace"), queue_id=queue_id, broker_name=broker_name
        )
        queue = _without_namespace(stored_queue, namespace)
        in_order = in_order and not messages
        for run in runs:
            queue_offset = run.first
            for at, size, _ in ENTRY.iter_unpack(run.entries):
                messages.append(
                    ReceivedMessage(body, at, size, queue, queue_offset, namespace, stored_queue)
                )
                queue_offset += 1
    if len(messages) != found.records:
        return _with_unqueued(body, broker_name, namespace)
    if not in_order:
        messages.sort(key=_position)
    return messages


def _position(message: ReceivedMessage) -> int:
    return message._at


def _without_namespace(queue: MessageQueue, namespace: str) -> MessageQueue:
    """Return a queue as users of the namespace name it."""
    if not namespace:
        return queue
    return msgspec.structs.replace(queue, topic=unwrap(namespace, queue.topic))


def _with_unqueued(body: bytes, broker_name: str, namespace: str) -> list[ReceivedMessage]:
    """Find the messages of a reply with half messages, which a walk only counts."""
    messages: list[ReceivedMessage] = []
    at = 0
    while at < len(body):
        stored = decode_record(body, at)
        stored_queue = MessageQueue(
            topic=stored.topic, queue_id=stored.queue_id, broker_name=broker_name
        )
        queue = _without_namespace(stored_queue, namespace)
        messages.append(
            ReceivedMessage(
                body, at, stored.size, queue, stored.queue_offset, namespace, stored_queue
            )
        )
        at += stored.size
    return messages
