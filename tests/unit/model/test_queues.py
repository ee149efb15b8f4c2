"""A queue as a value: compared, ordered, and written as Java writes it."""

from __future__ import annotations

from orbitmq import java_json
from orbitmq.model.queues import MessageQueue, by_broker


def test_a_queue_is_the_key_of_a_map_as_an_object() -> None:
    queue = MessageQueue(broker_name="b", queue_id=0, topic="T")

    assert java_json.encode({queue: 5}) == b'{{"brokerName":"b","queueId":0,"topic":"T"}:5}'


def test_queues_are_ordered_by_broker_then_number() -> None:
    queues = [
        MessageQueue(broker_name=name, queue_id=number, topic="T")
        for name, number in (("b", 0), ("a", 10), ("a", 2))
    ]

    assert [(queue.broker_name, queue.queue_id) for queue in sorted(queues)] == [
        ("a", 2),
        ("a", 10),
        ("b", 0),
    ]


def test_queues_are_grouped_by_broker() -> None:
    first, other, second = (
        MessageQueue(broker_name=name, queue_id=number, topic="T")
        for name, number in (("b", 0), ("a", 1), ("b", 2))
    )

    assert by_broker([first, other, second]) == {"b": [first, second], "a": [other]}
