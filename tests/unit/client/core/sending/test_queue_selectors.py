"""Queues chosen by an argument, as Java producers choose them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.core.sending.queue_selectors import at_random, by_hash, by_machine_room
from orbitmq.errors import MessageError, NoQueueError
from orbitmq.model.messages import Message
from orbitmq.model.queues import MessageQueue

MESSAGE = Message("t", b"x")


def queues_of(count: int, broker_name: str = "a") -> list[MessageQueue]:
    return [
        MessageQueue(broker_name=broker_name, queue_id=queue_id, topic="t")
        for queue_id in range(count)
    ]


@pytest.mark.parametrize(
    ("argument", "count", "queue_id"),
    [
        # Worked out by Java 17, with the hashCode of String, Integer, Long and Boolean.
        ("order-1", 4, 2),  # -1207111310
        ("polygenelubricants", 7, 2),  # Integer.MIN_VALUE
        ("größe", 5, 2),  # 98762257
        ("", 3, 0),
        (17, 4, 1),
        (-17, 4, 1),
        (2**31 - 1, 10, 7),
        (-(2**31), 10, 8),
        (2**32 + 5, 8, 4),  # 5 ^ 1
        (-(2**32) - 1, 8, 1),  # as a Long: 1
        (2**31 + 5, 7, 4),  # as a Long: -2147483643
        (-(2**63), 10, 8),  # Integer.MIN_VALUE
        (True, 100, 31),
        (False, 100, 37),
    ],
)
def test_a_hash_chooses_the_queue_that_java_chooses(
    argument: object, count: int, queue_id: int
) -> None:
    assert by_hash(queues_of(count), MESSAGE, argument).queue_id == queue_id


@given(st.text(), st.integers(1, 50))
def test_equal_arguments_choose_the_same_queue(argument: str, count: int) -> None:
    queues = queues_of(count)

    equal = argument.encode().decode()

    assert by_hash(queues, MESSAGE, argument) is by_hash(queues, MESSAGE, equal)


def test_without_an_argument_the_sharding_key_counts() -> None:
    queues = queues_of(7)
    message = Message("t", b"x", sharding_key="order-1")

    assert by_hash(queues, message, None) is by_hash(queues, MESSAGE, "order-1")


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        (None, r"nothing to choose a queue of topic 't' by.*sharding_key"),
        (1.5, r"hash of 1.5 of type float.*use a str, or an int"),
        (2**63, "at most 64 bits"),
    ],
)
def test_an_argument_without_a_java_hash_is_refused(argument: Any, text: str) -> None:
    with pytest.raises(MessageError, match=text):
        by_hash(queues_of(4), MESSAGE, argument)


def test_any_queue_may_be_chosen_at_random() -> None:
    queues = queues_of(3)

    assert {at_random(queues, MESSAGE, None).queue_id for _ in range(200)} == {0, 1, 2}


def test_a_machine_room_is_the_beginning_of_a_broker_name() -> None:
    queues = [*queues_of(2, "east@a"), *queues_of(2, "west@b"), *queues_of(1, "c")]
    selector = by_machine_room("west", "north")

    assert {selector(queues, MESSAGE, None).broker_name for _ in range(20)} == {"west@b"}


def test_a_room_without_brokers_is_an_error_that_names_the_others() -> None:
    with pytest.raises(NoQueueError, match=r"no queue in machine room 'north'.*'', 'east'"):
        by_machine_room("north")([*queues_of(2, "east@a"), *queues_of(1, "c")], MESSAGE, None)
    with pytest.raises(MessageError, match="name at least one"):
        by_machine_room()
