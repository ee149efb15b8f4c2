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
        ("orders", "no JSON"),
        ("[]", "no JSON object"),
        ("{}", "names no queue"),
        ('{"t": [0]}', "names no brokers"),
        ('{"t": {"a": 0}}', "no list of queue ids"),
        ('{"t": {"a": ["0"]}}', "'0' is no queue id"),
        ('{"t": {"a": [-1]}}', "-1 is no queue id"),
        ('{"t": {"a": [true]}}', "True is no queue id"),
        ('{"t": {"a": [0, 0]}}', "a queue twice"),
    ],
)
def test_a_text_that_names_no_queues_shows_how_to_write_it(text: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=rf"assign cannot be read.*{reason}.*broker-a"):
        parse_queues(text, name="assign")


def test_each_queue_has_its_number() -> None:
    text = '{"t": {"a": {"0": 17, "1": -2}}}'

    assert parse_numbers(text, name="startingOffsets", low=-2) == {queue(0): 17, queue(1): -2}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"t": {"0": 17}}', "17 has no queue ids"),
        ('{"t": {"a": {"x": 17}}}', "'x' is no queue id"),
        ('{"t": {"a": {"0": "17"}}}', "'17' is no whole number of -1 or more"),
        ('{"t": {"a": {"0": -2}}}', "-2 is no whole number of -1 or more"),
        ('{"t": {"a": {"0": 1e400}}}', "inf is no whole number"),
        ('{"t": {"a": {"0": 1, "00": 7}}}', "'00' is no queue id"),
        ('{"t": {"a": {"0": 1, "0": 7}}}', "it is no JSON: it has '0' twice"),
        ('{"t": {"a": {"2147483648": 1}}}', "'2147483648' is no queue id"),
        ('{"t": {"a": {"%s": 1}}}' % ("9" * 5_000), "'9{99} is no queue id"),
        ('{"a":' * 200_000, "it is nested too deeply"),
        ('{"t": {"a": {"0": 9223372036854775808}}}', "9223372036854775808 is no whole number"),
    ],
)
def test_a_number_that_cannot_be_is_refused(text: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=rf"endingOffsets cannot be read: {reason}"):
        parse_numbers(text, name="endingOffsets", low=-1)


def test_a_queue_is_named_in_full() -> None:
    assert queue_text(queue(3)) == "queue 3 of topic 't' at broker 'a'"
