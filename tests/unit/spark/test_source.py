"""The source of topics, as Spark finds it."""

from __future__ import annotations

import pyspark_rocketmq
from orbitmq.spark.source import RocketMQSource


def test_spark_finds_the_format_by_the_name_of_the_module() -> None:
    assert pyspark_rocketmq.DefaultSource is RocketMQSource
    assert RocketMQSource.name() == "rocketmq"
