"""Lets Spark find `format("rocketmq")` by itself: it imports modules named `pyspark_…`."""

from orbitmq.spark.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
