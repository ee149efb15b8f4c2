"""The suite itself: Spark runs, and its worker processes reach a cluster."""

from __future__ import annotations

from pyspark.sql import SparkSession

from orbitmq.client import PullConsumer
from tests.spark.topics import Topics


def test_a_worker_of_spark_reaches_the_cluster(spark: SparkSession, topics: Topics) -> None:
    topic, namesrv = topics.filled(10, queues=2), topics.cluster.namesrv

    def count(_partition: object) -> list[int]:
        with PullConsumer("worker", namesrv=namesrv) as consumer:
            return [consumer.max_offset(queue) for queue in consumer.queues(topic)]

    ends = spark.sparkContext.parallelize([0], 1).mapPartitions(count).collect()

    assert sorted(ends) == [2, 2, 3, 3]


def test_sent_messages_are_read_by_queue(topics: Topics) -> None:
    topic = topics.filled(8, queues=2)

    bodies = [message.body.decode() for message in topics.messages(topic)]

    assert bodies == [f"message {number}" for number in (0, 4, 1, 5, 2, 6, 3, 7)]


def test_the_session_retries_tasks_and_shuffles_into_two(spark: SparkSession) -> None:
    assert spark.sparkContext.master == "local[2,3]"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_checkpoints_are_written_without_a_process_for_each_path(spark: SparkSession) -> None:
    chosen = spark.conf.get("spark.sql.streaming.checkpointFileManagerClass")

    assert chosen is not None
    assert chosen.endswith(".FileSystemBasedCheckpointFileManager")
