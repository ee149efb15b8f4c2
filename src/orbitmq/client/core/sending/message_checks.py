"""What a producer refuses to send: messages that no broker could store."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from orbitmq.errors import MessageError, MessageTypeError, TopicRefusedError
from orbitmq.model.messages import Message
from orbitmq.model.names import BROKER_ONLY_TOPICS, check_topic, is_retry_topic

# What brokers take unless they are set otherwise.
BODY_BYTES_MAX: Final = 4 * 1024 * 1024


# Perf: a producer sends to few topics; asking again takes 0.1 us instead of 1 (timeit).
@lru_cache(maxsize=1024)
def check_send_topic(topic: str) -> None:
    """Raise unless clients may send to the topic, which has its namespace already."""
    check_topic(topic)
    if topic in BROKER_ONLY_TOPICS:
        raise TopicRefusedError(
            f"topic {topic} belongs to the brokers; no client may send to it",
            hint="choose another topic",
        )


def check_message(message: Message, *, body_bytes_max: int = BODY_BYTES_MAX) -> None:
    """Raise unless the body of the message can be sent."""
    if not isinstance(message, Message):
        raise _no_message(message)
    check_body_bytes(message.topic, len(message.body), body_bytes_max=body_bytes_max)


def check_body_bytes(topic: str, body_bytes: int, *, body_bytes_max: int) -> None:
    """Raise unless brokers take a body of this size."""
    if body_bytes == 0:
        raise MessageError(
            f"the message to {topic} has an empty body",
            hint="give it at least one byte: brokers take no empty messages",
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
        raise MessageError("a batch without messages", hint="put at least one in it")
    for message in messages:
        check_message(message, body_bytes_max=body_bytes_max)
    first = messages[0]
    if is_retry_topic(first.topic):
        raise MessageError(
            f"{first.topic} takes no batches: its messages are tried again one by one",
            hint="send them one by one",
        )
    for message in messages:
        if message.topic != first.topic:
            raise MessageError(
                f"one batch holds messages to {first.topic} and to {message.topic}",
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


def check_batch_bytes(topic: str, batch_bytes: int, *, body_bytes_max: int) -> None:
    """Raise when a batch, written, is larger than a body may be."""
    if batch_bytes > body_bytes_max:
        raise MessageError(
            f"the batch of {batch_bytes} bytes to {topic} is above the limit of {body_bytes_max}",
            hint="send fewer messages at once",
        )


def _is_list(value: object) -> bool:
    # Text and bytes are sequences as well, of what is no message.
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _no_message(value: object) -> MessageTypeError:
    return MessageTypeError(
        "what is sent",
        value,
        takes="a Message or a list of them",
        hint="make one: Message(topic, body)",
    )
