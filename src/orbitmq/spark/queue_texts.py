"""Queues as options write them: JSON objects of topic, broker and queue id.

assign             {"orders": {"broker-a": [0, 1]}}
offsets, times     {"orders": {"broker-a": {"0": 17, "1": -2}}}
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from orbitmq.errors import SettingsError
from orbitmq.model.queues import MessageQueue

QUEUES_EXAMPLE: Final = '{"orders": {"broker-a": [0, 1]}}'
NUMBERS_EXAMPLE: Final = '{"orders": {"broker-a": {"0": 17, "1": -2}}}'


def parse_queues(text: str, *, name: str) -> list[MessageQueue]:
    """Read a list of queues; `name` is the option that holds it."""
    found: list[MessageQueue] = []
    for topic, broker_name, queue_ids in _by_broker(text, name, QUEUES_EXAMPLE):
        if not isinstance(queue_ids, list):
            raise _refusal(name, f"{queue_ids!r} is no list of queue ids", QUEUES_EXAMPLE)
        for queue_id in queue_ids:
            if not _is_number(queue_id) or queue_id < 0:
                raise _refusal(name, f"{queue_id!r} is no queue id", QUEUES_EXAMPLE)
            found.append(MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id))
    if not found:
        raise _refusal(name, "it names no queue", QUEUES_EXAMPLE)
    if len(set(found)) < len(found):
        raise _refusal(name, "it names a queue twice", QUEUES_EXAMPLE)
    return found


def parse_numbers(text: str, *, name: str, low: int) -> dict[MessageQueue, int]:
    """Read a number for each queue, none below `low`; `name` is the option that holds it."""
    found: dict[MessageQueue, int] = {}
    for topic, broker_name, numbers in _by_broker(text, name, NUMBERS_EXAMPLE):
        if not isinstance(numbers, dict):
            raise _refusal(name, f"{numbers!r} has no queue ids", NUMBERS_EXAMPLE)
        for queue_id, number in numbers.items():
            if not queue_id.isdecimal() or not queue_id.isascii():
                raise _refusal(name, f"{queue_id!r} is no queue id", NUMBERS_EXAMPLE)
            if not _is_number(number) or not low <= number < 2**63:
                raise _refusal(
                    name, f"{number!r} is no whole number of {low} or more", NUMBERS_EXAMPLE
                )
            queue = MessageQueue(topic=topic, broker_name=broker_name, queue_id=int(queue_id))
            found[queue] = number
    return found


def queue_text(queue: MessageQueue) -> str:
    """Name a queue in messages for people."""
    return f"queue {queue.queue_id} of topic {queue.topic!r} at broker {queue.broker_name!r}"


def _by_broker(text: str, name: str, example: str) -> Iterator[tuple[str, str, object]]:
    try:
        topics = json.loads(text)
    except ValueError as error:
        raise _refusal(name, f"it is no JSON: {error}", example) from None
    if not isinstance(topics, dict):
        raise _refusal(name, "it is no JSON object", example)
    for topic, brokers in topics.items():
        if not isinstance(brokers, dict):
            raise _refusal(name, f"{brokers!r} of topic {topic!r} names no brokers", example)
        for broker_name, of_broker in brokers.items():
            yield topic, broker_name, of_broker


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _refusal(name: str, reason: str, example: str) -> SettingsError:
    return SettingsError(f"{name} cannot be read: {reason}", hint=f"write it as {example}")
