"""The source of store directories, as Spark finds it."""

from __future__ import annotations

import pyspark_rocketmq_store
from orbitmq.spark.store_source import RocketMQStoreSource


def test_spark_finds_the_format_by_the_name_of_the_module() -> None:
    assert pyspark_rocketmq_store.DefaultSource is RocketMQStoreSource
    assert RocketMQStoreSource.name() == "rocketmq-store"
