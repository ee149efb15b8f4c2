"""Lets Spark find `format("rocketmq-store")` by itself: one format per module."""

from orbitmq.spark.store_source import RocketMQStoreSource as DefaultSource

__all__ = ["DefaultSource"]
