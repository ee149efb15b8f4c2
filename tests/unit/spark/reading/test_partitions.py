"""What one Spark task reads."""

from __future__ import annotations

from typing import Any

from pyspark import cloudpickle

from orbitmq.model.queues import MessageQueue
from orbitmq.spark.reading.partitions import QueuePartition, QueueRange

QUEUE = MessageQueue(topic="orders", broker_name="broker-a", queue_id=3)
pickler: Any = cloudpickle


def test_a_partition_reaches_a_task_as_it_was_planned() -> None:
    partition = QueuePartition((QueueRange(QUEUE, 5, 9), QueueRange(QUEUE, 20, 21)))

    received = pickler.loads(pickler.dumps(partition))

    assert received == partition
    assert received.rows == 5


def test_a_range_is_named_by_topic_broker_and_queue() -> None:
    assert str(QueueRange(QUEUE, 5, 9)) == "orders/broker-a/3 [5, 9)"
