"""Requests by message and their replies: the properties that connect the two.

request   CORRELATION_ID, REPLY_TO_CLIENT (the requester's client id), TTL (ms); the broker
adds CLUSTER
reply     goes to the topic <CLUSTER>_REPLY_TOPIC with MSG_TYPE=reply and the same properties;
the broker adds PUSH_REPLY_TIME, the requester ARRIVE_TIME
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.errors import MessageError, MessageTypeError
from orbitmq.model import property_names
from orbitmq.model.messages import Message
from orbitmq.model.names import REPLY_TOPIC_SUFFIX
from orbitmq.model.queues import MessageQueue
from orbitmq.record.codec import encode_record
from orbitmq.record.compression import looks_compressed
from orbitmq.record.hosts import encode_host
from orbitmq.record.layout import (
    BORN_HOST_V6,
    COMPRESSED,
    HOST_BYTES_V4,
    STORE_HOST_V6,
    record_bytes,
)
from orbitmq.record.properties import decode_properties, encode_properties

if TYPE_CHECKING:
    from orbitmq.client.core.consuming.consume_results import Reply
    from orbitmq.protocol.requests.answers import PushAnswer

_NEEDED: Final = (
    property_names.CLUSTER,
    property_names.REPLY_TO_CLIENT,
    property_names.CORRELATION_ID,
)
_TTL_MS_MAX: Final = 2**63 - 1
_NO_HOST: Final = encode_host("0.0.0.0", 0)  # noqa: S104  # shown, not bound to


def reply_topic(cluster: str) -> str:
    """The topic that the replies of a cluster go to."""
    return cluster + REPLY_TOPIC_SUFFIX


def as_request(
    message: Message, *, client_id: str, correlation_id: str, timeout_ms: float
) -> Message:
    """Make a message a request of this client."""
    if message.delay_level or message.has_due_time:
        raise MessageError(
            "a request cannot be delayed: its requester waits for the reply",
            hint="leave out the delay, or send the message without waiting for a reply",
        )
    return message.with_reserved(
        {
            property_names.CORRELATION_ID: correlation_id,
            property_names.REPLY_TO_CLIENT: client_id,
            property_names.REPLY_TTL_MS: str(int(min(timeout_ms, _TTL_MS_MAX))),
        }
    )


def reply_message(request: ReceivedMessage, reply: Reply) -> Message:
    """Make the message that replies to a request."""
    if not isinstance(request, ReceivedMessage):
        raise MessageTypeError("the request", request, takes="a message that was received")
    properties = request.properties
    missing = [name for name in _NEEDED if not properties.get(name)]
    if missing:
        raise MessageError(
            f"the message {request.message_id} asks for no reply: it has no {', '.join(missing)}",
            hint="reply to messages that were sent with request() only",
        )
    reserved = {
        property_names.MESSAGE_TYPE: property_names.ANSWER,
        property_names.CORRELATION_ID: properties[property_names.CORRELATION_ID],
        property_names.REPLY_TO_CLIENT: properties[property_names.REPLY_TO_CLIENT],
    }
    if ttl_ms := properties.get(property_names.REPLY_TTL_MS):
        reserved[property_names.REPLY_TTL_MS] = ttl_ms
    return Message(
        reply_topic(properties[property_names.CLUSTER]),
        reply.body,
        tags=reply.tags,
        keys=reply.keys,
        properties=reply.properties,
        flag=reply.flag,
    ).with_reserved(reserved)


def received_reply(header: PushAnswer, body: bytes, arrived_ms: int) -> ReceivedMessage:
    """Return a reply that a broker pushed, as a message like any other."""
    properties = decode_properties((header.properties or "").encode())
    properties[property_names.REPLY_ARRIVED_MS] = str(arrived_ms)
    encoded = encode_properties(properties)
    topic = header.topic.encode()
    born_host, store_host = _host(header.born_host), _host(header.store_host)
    system_flag = header.system_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)
    if system_flag & COMPRESSED and not looks_compressed(body, system_flag):
        # Compat: Go's clients mark large replies as compressed, and send them as they are.
        system_flag &= ~COMPRESSED
    if len(born_host) > HOST_BYTES_V4:
        system_flag |= BORN_HOST_V6
    if len(store_host) > HOST_BYTES_V4:
        system_flag |= STORE_HOST_V6
    size = record_bytes(
        body_bytes=len(body),
        topic_bytes=len(topic),
        properties_bytes=len(encoded),
        system_flag=system_flag,
    )
    record = bytearray(size)
    encode_record(
        record, 0, topic, header.queue_id, 0, 0, body, encoded, header.flag, system_flag,
        header.born_timestamp_ms, born_host, header.store_timestamp_ms, store_host,
        header.retries or 0, 0,
    )  # fmt: skip
    queue = MessageQueue(topic=header.topic, broker_name="", queue_id=header.queue_id)
    return ReceivedMessage(bytes(record), 0, size, queue, 0)


def _host(text: str) -> bytes:
    """Encode `ip:port`; a host that is no IP address is unknown."""
    host, _, port = text.rpartition(":")
    try:
        return encode_host(host.strip("[]"), int(port))
    except (ValueError, struct.error):
        return _NO_HOST
