"""Queues as options write them: JSON objects of topic, broker and queue id.

assign             {"orders": {"broker-a": [0, 1]}}
offsets, times     {"orders": {"broker-a": {"0": 17, "1": -2}}}
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from orbitmq.errors import SettingsError
from orbitmq.model.queues import MessageQueue
from orbitmq.spark.options.times import time_ms

_QUEUE_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}")

QUEUES_EXAMPLE: Final = '{"orders": {"broker-a": [0, 1]}}'
NUMBERS_EXAMPLE: Final = '{"orders": {"broker-a": {"0": 17, "1": -2}}}'


def parse_queues(text: str, *, name: str) -> list[MessageQueue]:
    """Parse a list of queues; `name` is the option that holds it."""
    found: list[MessageQueue] = []
    for topic, broker_name, queue_ids in _by_broker(text, name, QUEUES_EXAMPLE):
        if not isinstance(queue_ids, list):
            raise _refusal(name, f"{queue_ids!r} is not a list of queue ids", QUEUES_EXAMPLE)
        for queue_id in queue_ids:
            if not _is_number(queue_id) or not 0 <= queue_id < 2**31:
                raise _refusal(name, f"{queue_id!r:.100} is not a queue id", QUEUES_EXAMPLE)
            found.append(MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id))
    if not found:
        raise _refusal(name, "it names no queue", QUEUES_EXAMPLE)
    if len(set(found)) < len(found):
        raise _refusal(name, "it names a queue twice", QUEUES_EXAMPLE)
    return found


def parse_times(text: str, *, name: str) -> dict[MessageQueue, int]:
    """Parse a time for each queue, in milliseconds or as an ISO text."""
    return parse_numbers(text, name=name, low=0, takes_times=True)


def parse_numbers(
    text: str, *, name: str, low: int, takes_times: bool = False
) -> dict[MessageQueue, int]:
    """Parse a number for each queue, none below `low`; `name` is the option that holds it."""
    found: dict[MessageQueue, int] = {}
    for topic, broker_name, numbers in _by_broker(text, name, NUMBERS_EXAMPLE):
        if not isinstance(numbers, dict):
            raise _refusal(name, f"{numbers!r} has no queue ids", NUMBERS_EXAMPLE)
        for queue_id, given in numbers.items():
            number = given
            if takes_times and isinstance(given, str):
                number = time_ms(given, name=name)
            # Java's queue ids are ints; and "00" beside "0" would name the same queue.
            if not _QUEUE_ID.fullmatch(queue_id) or int(queue_id) >= 2**31:
                raise _refusal(name, f"{queue_id!r:.100} is not a queue id", NUMBERS_EXAMPLE)
            if not _is_number(number) or not low <= number < 2**63:
                raise _refusal(
                    name, f"{number!r} is not a whole number of {low} or more", NUMBERS_EXAMPLE
                )
            queue = MessageQueue(topic=topic, broker_name=broker_name, queue_id=int(queue_id))
            found[queue] = number
    return found


def queue_text(queue: MessageQueue) -> str:
    """Name a queue in error texts and logs."""
    return f"queue {queue.queue_id} of topic {queue.topic!r} on broker {queue.broker_name!r}"


def _by_broker(text: str, name: str, example: str) -> Iterator[tuple[str, str, object]]:
    try:
        topics = json.loads(text, object_pairs_hook=_without_repeats)
    except ValueError as error:
        raise _refusal(name, f"it is not JSON: {error}", example) from None
    except RecursionError:
        raise _refusal(name, "it is nested too deeply", example) from None
    if not isinstance(topics, dict):
        raise _refusal(name, "it is not a JSON object", example)
    for topic, brokers in topics.items():
        if not isinstance(brokers, dict):
            raise _refusal(
                name, f"{brokers!r}, given for topic {topic!r}, names no brokers", example
            )
        for broker_name, queues in brokers.items():
            yield topic, broker_name, queues


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{repeated!r} is repeated")
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _refusal(name: str, reason: str, example: str) -> SettingsError:
    return SettingsError(f"cannot parse {name}: {reason}", hint=f"write it as {example}")
