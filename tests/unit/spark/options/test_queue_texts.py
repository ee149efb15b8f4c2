"""Queues, offsets and times of queues in JSON."""

from __future__ import annotations

import pytest

from orbitmq.errors import SettingsError
from orbitmq.model.queues import MessageQueue
from orbitmq.spark.options.queue_texts import parse_numbers, parse_queues, queue_text


def queue(queue_id: int, broker_name: str = "a", topic: str = "t") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)


def test_queues_are_listed_by_topic_and_broker() -> None:
    text = '{"t": {"a": [0, 2], "b": [1]}, "u": {"a": [0]}}'

    assert parse_queues(text, name="assign") == [
        queue(0),
        queue(2),
        queue(1, "b"),
        queue(0, "a", "u"),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("orders", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "names no queue"),
        ('{"t": [0]}', "names no brokers"),
        ('{"t": {"a": 0}}', "not a list of queue ids"),
        ('{"t": {"a": ["0"]}}', "'0' is not a queue id"),
        ('{"t": {"a": [-1]}}', "-1 is not a queue id"),
        ('{"t": {"a": [true]}}', "True is not a queue id"),
        ('{"t": {"a": [0, 0]}}', "a queue twice"),
    ],
)
def test_an_error_about_queues_shows_how_to_write_them(text: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=rf"cannot parse assign.*{reason}.*broker-a"):
        parse_queues(text, name="assign")


def test_each_queue_has_its_number() -> None:
    text = '{"t": {"a": {"0": 17, "1": -2}}}'

    assert parse_numbers(text, name="startingOffsets", low=-2) == {queue(0): 17, queue(1): -2}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"t": {"0": 17}}', "17 has no queue ids"),
        ('{"t": {"a": {"x": 17}}}', "'x' is not a queue id"),
        ('{"t": {"a": {"0": "17"}}}', "'17' is not a whole number of -1 or more"),
        ('{"t": {"a": {"0": -2}}}', "-2 is not a whole number of -1 or more"),
        ('{"t": {"a": {"0": 1e400}}}', "inf is not a whole number"),
        ('{"t": {"a": {"0": 1, "00": 7}}}', "'00' is not a queue id"),
        ('{"t": {"a": {"0": 1, "0": 7}}}', "it is not JSON: '0' is repeated"),
        ('{"t": {"a": {"2147483648": 1}}}', "'2147483648' is not a queue id"),
        ('{"t": {"a": {"%s": 1}}}' % ("9" * 5_000), "'9{99} is not a queue id"),
        ('{"a":' * 200_000, "it is nested too deeply"),
        ('{"t": {"a": {"0": 9223372036854775808}}}', "9223372036854775808 is not a whole number"),
    ],
)
def test_an_impossible_number_is_refused(text: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=rf"cannot parse endingOffsets: {reason}"):
        parse_numbers(text, name="endingOffsets", low=-1)


def test_a_queue_is_named_in_full() -> None:
    assert queue_text(queue(3)) == "queue 3 of topic 't' on broker 'a'"
