"""Checks of messages before they are sent: no broker could store what they refuse."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from orbitmq.errors import MessageError, MessageTypeError, TopicRefusedError
from orbitmq.model.messages import Message
from orbitmq.model.names import BROKER_ONLY_TOPICS, check_topic, is_retry_topic

# The default limit of brokers.
BODY_BYTES_MAX: Final = 4 * 1024 * 1024


# Perf: a producer sends to few topics; a repeated check takes 0.1 us instead of 1 (timeit).
@lru_cache(maxsize=1024)
def check_send_topic(topic: str) -> None:
    """Raise unless clients may send to the topic; its name includes the namespace."""
    check_topic(topic)
    if topic in BROKER_ONLY_TOPICS:
        raise TopicRefusedError(
            f"topic {topic} belongs to the brokers; no client may send to it",
            hint="choose another topic",
        )


def check_message(message: Message, *, body_bytes_max: int = BODY_BYTES_MAX) -> None:
    """Raise unless this is a message with a body that can be sent."""
    if not isinstance(message, Message):
        raise _no_message(message)
    check_body_bytes(message.topic, len(message.body), body_bytes_max=body_bytes_max)


def check_body_bytes(topic: str, body_bytes: int, *, body_bytes_max: int) -> None:
    """Raise unless a body of this size can be sent."""
    if body_bytes == 0:
        raise MessageError(
            f"the message to {topic} has an empty body",
            hint="brokers refuse empty messages; send at least one byte",
        )
    if body_bytes > body_bytes_max:
        raise MessageError(
            f"the body of {body_bytes} bytes to {topic} is above the limit of {body_bytes_max}",
            hint="send less, or raise max_message_bytes here and maxMessageSize at the broker",
        )


def check_batch(messages: Sequence[Message], *, body_bytes_max: int = BODY_BYTES_MAX) -> None:
    """Raise unless the messages can be sent as one batch."""
    if not _is_list(messages):
        raise _no_message(messages)
    if not messages:
        raise MessageError("a batch without messages", hint="send at least one message")
    for message in messages:
        check_message(message, body_bytes_max=body_bytes_max)
    first = messages[0]
    if is_retry_topic(first.topic):
        raise MessageError(
            f"{first.topic} takes no batches, since messages are retried one by one",
            hint="send them one by one",
        )
    for message in messages:
        if message.topic != first.topic:
            raise MessageError(
                f"a batch has messages to {first.topic} and to {message.topic}",
                hint="send a batch for each topic",
            )
        if message.wait_store_ok != first.wait_store_ok:
            raise MessageError(
                f"in a batch to {first.topic} some messages wait for the store and some do not",
                hint="give all of them the same wait_store_ok",
            )
        if message.delay_level:
            raise MessageError(
                f"a message with delay level {message.delay_level} to {first.topic} is in a batch",
                hint="send delayed messages one by one",
            )
        if message.has_due_time:
            raise MessageError(
                f"a message with a due time to {first.topic} is in a batch",
                hint="send delayed messages one by one",
            )


def check_batch_bytes(topic: str, batch_bytes: int, *, body_bytes_max: int) -> None:
    """Raise if an encoded batch is larger than a body may be."""
    if batch_bytes > body_bytes_max:
        raise MessageError(
            f"the batch of {batch_bytes} bytes to {topic} is above the limit of {body_bytes_max}",
            hint="send fewer messages at once",
        )


def _is_list(value: object) -> bool:
    # Text and bytes are sequences too, but not of messages.
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _no_message(value: object) -> MessageTypeError:
    return MessageTypeError(
        "message",
        value,
        takes="a Message or a list of them",
        hint="make one: Message(topic, body)",
    )
