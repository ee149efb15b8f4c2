"""Turns the user's messages into the contents of a send request.

This is done once per send, so that all its attempts carry the same ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from orbitmq.client.core import namespaces
from orbitmq.client.core.sending.encoded_messages import EncodedMessages
from orbitmq.client.core.sending.message_checks import (
    BODY_BYTES_MAX,
    check_batch,
    check_batch_bytes,
    check_body_bytes,
    check_message,
    check_send_topic,
)
from orbitmq.errors import MessageError
from orbitmq.model import property_names
from orbitmq.model.messages import Message
from orbitmq.model.names import is_retry_topic
from orbitmq.model.unique_ids import UniqueIds
from orbitmq.record.batch import BatchedMessage, encode_batch
from orbitmq.record.compression import Compression, compress
from orbitmq.record.layout import COMPRESSED, PROPERTIES_BYTES_MAX, SystemFlag

_PREPARED: Final = int(SystemFlag.PREPARED)
# Larger bodies take over a millisecond to compress, too long for an event loop.
_QUICK_BYTES_MAX: Final = 32 * 1024

# Compat: without the property, brokers assume true.
_WAIT_PROPERTY: Final = {True: "", False: f"{property_names.WAIT_FOR_STORE}\x01false\x02"}
# For a retry topic, these go into fields of the request instead.
_MOVED: Final = frozenset({property_names.RETRIES, property_names.RETRIES_MAX})


class CompressionPolicy(NamedTuple):
    """Which bodies are compressed, and how."""

    kind: Compression = Compression.ZLIB
    level: int = 5
    # Smaller bodies are not compressed.
    body_bytes_min: int = 4096


# Perf: created in 0.3 us, a NamedTuple in 1 (timeit); there is one per message.
class Outgoing(msgspec.Struct, frozen=True):
    """A message or a batch, as a send request carries it."""

    # Includes the namespace.
    topic: str
    body: bytes
    properties: str
    flag: int
    system_flag: int
    # The unique id; for a batch all of them, separated by commas.
    message_id: str
    is_batch: bool = False
    # For a retry topic: retries so far, and the most allowed.
    retries: int | None = None
    retries_max: int | None = None
    # It answers a request, and goes to the client that waits for it.
    is_answer: bool = False


class MessagePreparer:
    """Checks and encodes the messages of one producer."""

    def __init__(
        self,
        unique_ids: UniqueIds,
        *,
        namespace: str = "",
        body_bytes_max: int = BODY_BYTES_MAX,
        compression: CompressionPolicy | None = None,
    ) -> None:
        self._unique_ids = unique_ids
        self._namespace = namespace
        self._body_bytes_max = body_bytes_max
        self._compression = compression or CompressionPolicy()
        self._shared_properties = (
            f"{property_names.INSTANCE_ID}\x01{namespace}\x02" if namespace else ""
        )

    def takes_long(self, message: Message | Sequence[Message] | EncodedMessages) -> bool:
        """Whether `prepare` should run in a thread: it will compress a large body."""
        return (
            (
                isinstance(message, Message)
                or (isinstance(message, EncodedMessages) and not message.is_batch)
            )
            and len(message.body) > _QUICK_BYTES_MAX
            and len(message.body) >= self._compression.body_bytes_min
        )

    def prepare(self, message: Message | Sequence[Message] | EncodedMessages) -> Outgoing:
        """Check and encode a message or a batch."""
        if isinstance(message, Message):
            return self._prepare_one(message)
        if isinstance(message, EncodedMessages):
            return self._prepare_encoded(message)
        return self._prepare_batch(message)

    def _prepare_one(self, message: Message) -> Outgoing:
        check_message(message, body_bytes_max=self._body_bytes_max)
        reserved = message.reserved_properties
        is_answer = (
            bool(reserved) and reserved.get(property_names.MESSAGE_TYPE) == property_names.ANSWER
        )
        # The reply topic belongs to the cluster: it has no namespace.
        namespace = "" if is_answer else self._namespace
        topic = namespaces.wrap(namespace, message.topic)
        check_send_topic(topic)
        message_id = reserved.get(property_names.UNIQUE_ID) or self._unique_ids.make()
        properties = _properties(message, message_id) + self._shared_properties
        body, system_flag = self._compressed(message.body)
        retries = retries_max = None
        if reserved:
            if reserved.get(property_names.HALF_MESSAGE) == "true":
                system_flag |= _PREPARED
            if is_retry_topic(topic):
                retries = _number(reserved.get(property_names.RETRIES))
                retries_max = _number(reserved.get(property_names.RETRIES_MAX))
        return Outgoing(
            topic,
            body,
            _checked_properties(properties),
            message.flag,
            system_flag,
            message_id,
            retries=retries,
            retries_max=retries_max,
            is_answer=is_answer,
        )

    def _prepare_batch(self, messages: Sequence[Message]) -> Outgoing:
        check_batch(messages, body_bytes_max=self._body_bytes_max)
        first = messages[0]
        topic = namespaces.wrap(self._namespace, first.topic)
        check_send_topic(topic)
        make_id = self._unique_ids.make
        message_ids: list[str] = []
        batched: list[BatchedMessage] = []
        for message in messages:
            message_id = message.reserved_properties.get(property_names.UNIQUE_ID) or make_id()
            properties = _checked_properties(
                _properties(message, message_id) + self._shared_properties
            )
            message_ids.append(message_id)
            batched.append(BatchedMessage(message.flag, message.body, properties.encode()))
        body = encode_batch(batched)
        check_batch_bytes(topic, len(body), body_bytes_max=self._body_bytes_max)
        return Outgoing(
            topic,
            body,
            # Compat: no id for the batch itself: 4.9 brokers append these properties to each
            # message, which would then have this id instead of its own.
            _WAIT_PROPERTY[first.wait_store_ok] + self._shared_properties,
            first.flag,
            0,
            ",".join(message_ids),
            is_batch=True,
        )

    def _prepare_encoded(self, encoded: EncodedMessages) -> Outgoing:
        topic = namespaces.wrap(self._namespace, encoded.topic)
        check_send_topic(topic)
        body, system_flag = encoded.body, 0
        if encoded.is_batch:
            check_batch_bytes(topic, len(body), body_bytes_max=self._body_bytes_max)
        else:
            check_body_bytes(topic, len(body), body_bytes_max=self._body_bytes_max)
            body, system_flag = self._compressed(body)
        return Outgoing(
            topic,
            body,
            # A single message has all its properties; 4.9 brokers need these for a batch too.
            self._shared_properties if encoded.is_batch else encoded.properties,
            encoded.flag,
            system_flag,
            "",
            is_batch=encoded.is_batch,
        )

    def _compressed(self, body: bytes) -> tuple[bytes, int]:
        """Compress a body if that makes it smaller; return it with its system flag."""
        if len(body) >= self._compression.body_bytes_min:
            kind, level, _ = self._compression
            packed = compress(body, kind, level)
            if len(packed) < len(body):
                return packed, COMPRESSED | kind.value
        return body, 0


def _properties(message: Message, message_id: str) -> str:
    """Return all properties as one text; they were checked when the message was made."""
    text = f"UNIQ_KEY\x01{message_id}\x02{_WAIT_PROPERTY[message.wait_store_ok]}"
    if message.tags:
        text += f"TAGS\x01{message.tags}\x02"
    if message.keys:
        text += f"KEYS\x01{' '.join(message.keys)}\x02"
    if message.delay_level:
        text += f"DELAY\x01{message.delay_level}\x02"
    if message.sharding_key:
        text += f"__SHARDINGKEY\x01{message.sharding_key}\x02"
    for name, value in message.properties.items():
        text += f"{name}\x01{value}\x02"
    for name, value in message.reserved_properties.items():
        is_moved = name in _MOVED and is_retry_topic(message.topic)
        if name != property_names.UNIQUE_ID and not is_moved:
            text += f"{name}\x01{value}\x02"
    return text


def _checked_properties(text: str) -> str:
    """Raise unless properties can be encoded and fit into a record; return them."""
    if text.isascii():
        properties_bytes = len(text)
    else:
        try:
            properties_bytes = len(text.encode())
        except UnicodeEncodeError as error:
            raise MessageError(
                f"properties hold {text[error.start]!r}, half of a character",
                hint="encode the value, for example as base64",
            ) from error
    if properties_bytes > PROPERTIES_BYTES_MAX:
        raise MessageError(
            f"properties take {properties_bytes} bytes; {PROPERTIES_BYTES_MAX} fit",
            hint="move large values into the body",
        )
    return text


def _number(text: str | None) -> int | None:
    return int(text) if text else None
