"""The source of topics, as Spark finds it."""

from __future__ import annotations

import pytest

import pyspark_rocketmq
from orbitmq.errors import SettingsError, UnknownOptionError
from orbitmq.spark.options.column_names import COLUMN_NAMES, USUAL_COLUMNS
from orbitmq.spark.reading.batch_reader import BatchReader
from orbitmq.spark.rows.schema import table_projection
from orbitmq.spark.source import RocketMQSource
from tests.unit.fresh_process import printed_by


def source(**given: str) -> RocketMQSource:
    return RocketMQSource({"namesrvaddr": "127.0.0.1:1", **given})


def test_spark_finds_the_format_by_the_name_of_the_module() -> None:
    assert pyspark_rocketmq.DefaultSource is RocketMQSource
    assert RocketMQSource.name() == "rocketmq"


def test_the_columns_are_those_that_people_use_unless_others_are_named() -> None:
    assert source(subscribe="t").schema().names == list(USUAL_COLUMNS)
    assert source(subscribe="t", columns="all").schema().names == list(COLUMN_NAMES)
    assert source(subscribe="t", columns="body, TOPIC").schema().names == ["body", "topic"]


def test_options_change_the_columns() -> None:
    names = source(subscribe="t", properties="none", includebody="false").schema().names

    assert set(USUAL_COLUMNS) - set(names) == {"properties", "body"}
    schema = source(subscribe="t", properties="map").schema()
    assert schema["properties"].dataType.simpleString() == "map<string,string>"


def test_a_wrong_option_is_an_error_when_the_source_is_loaded() -> None:
    with pytest.raises(UnknownOptionError, match="did you mean startingOffsets"):
        source(subscribe="t", startingoffset="earliest").schema()


def test_a_table_that_is_only_written_to_has_columns_too() -> None:
    assert source(topic="t").schema().names == list(USUAL_COLUMNS)
    assert source(topic="t", columns="topic,body").schema().names == ["topic", "body"]


def test_a_reader_takes_the_columns_of_the_user() -> None:
    wanted = table_projection(["topic", "body"]).spark_schema

    reading = source(subscribe="t", topic="u").reader(wanted)

    assert isinstance(reading, BatchReader)
    assert reading._projection.spark_schema == wanted


def test_a_batch_cannot_start_at_the_end() -> None:
    given = source(subscribe="t", startingoffsets="latest")

    assert given.schema()
    with pytest.raises(SettingsError, match="cannot be latest in a batch"):
        given.reader(table_projection().spark_schema)


def test_a_stream_does_not_import_what_only_tasks_and_writers_need() -> None:
    # Spark starts a process for every stream, and waits for it.
    program = """
import sys
from orbitmq.spark.source import RocketMQSource
source = RocketMQSource({"namesrvaddr": "127.0.0.1:1", "subscribe": "t"})
source.streamReader(source.schema())
import orbitmq.spark.reading.queue_view
print(*sys.modules)
"""

    imported = set(printed_by(program).split())

    assert "orbitmq.client.aio.pull.record_reader" in imported
    for needless in (
        "orbitmq.client.aio.admin.admin",
        "orbitmq.client.aio.sending.producer",
        "orbitmq.client.aio.push.push_consumer",
        "orbitmq.filtering.sql",
        "orbitmq.settings.settings",
        "orbitmq.spark.reading.queue_fetch",
        "pyarrow.compute",
    ):
        assert needless not in imported
