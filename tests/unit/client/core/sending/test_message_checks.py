"""Checks before a send: each rule, and an error that names the cause and the fix."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.client.core.sending.message_checks import (
    check_batch,
    check_batch_bytes,
    check_message,
    check_send_topic,
)
from orbitmq.errors import MessageError, MessageTypeError, NameRuleError, TopicRefusedError
from orbitmq.model.messages import Message


@pytest.mark.parametrize("topic", ["orders", "%RETRY%billing", "t" * 127, "tenant%orders"])
def test_a_topic_that_follows_the_rule_passes(topic: str) -> None:
    check_send_topic(topic)


@pytest.mark.parametrize(
    ("topic", "problem"),
    [
        ("", "blank"),
        ("with space", "letters, digits"),
        ("täglich", "letters, digits"),
        ("t" * 128, "at most 127"),
    ],
)
def test_a_topic_that_breaks_the_rule_is_refused(topic: str, problem: str) -> None:
    with pytest.raises(NameRuleError, match=problem):
        check_send_topic(topic)


def test_a_topic_of_the_brokers_is_refused() -> None:
    with pytest.raises(TopicRefusedError, match="no client may send to it"):
        check_send_topic("SCHEDULE_TOPIC_XXXX")


@pytest.mark.parametrize("other", ["text", b"bytes", None, {"topic": "orders"}])
def test_what_is_no_message_is_refused(other: Any) -> None:
    with pytest.raises(MessageTypeError, match="it takes a Message or a list of them"):
        check_message(other)


def test_an_empty_body_is_refused() -> None:
    with pytest.raises(MessageError, match="the message to orders has an empty body"):
        check_message(Message("orders", b""))


def test_a_body_may_be_as_large_as_the_limit() -> None:
    check_message(Message("orders", b"12345"), body_bytes_max=5)

    with pytest.raises(MessageError, match=r"6 bytes to orders is above the limit of 5 .*raise"):
        check_message(Message("orders", b"123456"), body_bytes_max=5)


def test_messages_that_go_together_pass() -> None:
    check_batch([Message("orders", b"1", tags="a"), Message("orders", b"2", keys="k")])


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], "without messages"),
        ([Message("orders", b"1"), Message("bills", b"2")], "to orders and to bills"),
        (
            [Message("orders", b"1"), Message("orders", b"2", wait_store_ok=False)],
            "the same wait_store_ok",
        ),
        ([Message("orders", b"1", delay_level=3)], "delay level 3"),
        ([Message("%RETRY%group", b"1")], "takes no batches"),
        ([Message("orders", b"1"), Message("orders", b"")], "empty body"),
        ([Message("orders", b"123456789")], "above the limit of 8"),
    ],
)
def test_messages_that_do_not_go_together_are_refused(
    messages: list[Message], problem: str
) -> None:
    with pytest.raises(MessageError, match=problem):
        check_batch(messages, body_bytes_max=8)


@pytest.mark.parametrize("other", [7, None, iter([Message("orders", b"1")])])
def test_a_batch_must_be_a_sequence(other: Any) -> None:
    with pytest.raises(MessageTypeError, match="it takes a Message or a list of them"):
        check_batch(other)


def test_a_member_of_a_batch_must_be_a_message() -> None:
    with pytest.raises(MessageTypeError, match="type str"):
        check_batch([Message("orders", b"1"), "two"])  # type: ignore[list-item]  # what users try


def test_a_batch_may_be_as_large_as_the_limit() -> None:
    check_batch_bytes("orders", 10, body_bytes_max=10)

    with pytest.raises(MessageError, match="batch of 11 bytes to orders is above the limit of 10"):
        check_batch_bytes("orders", 11, body_bytes_max=10)
