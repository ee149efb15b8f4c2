"""The source of store directories, as Spark finds it."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

import pyspark_rocketmq_store
from orbitmq.errors import SettingsError
from orbitmq.spark.store_source import RocketMQStoreSource


def test_spark_finds_the_format_by_the_name_of_the_module() -> None:
    assert pyspark_rocketmq_store.DefaultSource is RocketMQStoreSource
    assert RocketMQStoreSource.name() == "rocketmq-store"


def test_files_are_neither_a_stream_nor_a_target() -> None:
    source = RocketMQStoreSource({})

    with pytest.raises(
        SettingsError, match=r"cannot be read as a stream.*format\('rocketmq'\) streams"
    ):
        source.streamReader(StructType())
    with pytest.raises(SettingsError, match=r"cannot be written.*format\('rocketmq'\) sends"):
        source.writer(StructType(), overwrite=False)
