"""The columns that rows to be written may have."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from orbitmq.errors import SettingsError
from orbitmq.spark.options.column_names import COLUMN_NAMES
from orbitmq.spark.options.write_options import WriteOptions
from orbitmq.spark.rows.schema import PropertiesForm, table_projection
from orbitmq.spark.writing.write_columns import write_columns

ANYWHERE = WriteOptions(namesrv="127.0.0.1:9876")
ORDERS = dataclasses.replace(ANYWHERE, topic="orders")
TYPES: dict[str, DataType] = {
    "BINARY": BinaryType(),
    "STRING": StringType(),
    "TINYINT": ByteType(),
    "INT": IntegerType(),
    "BIGINT": LongType(),
    "ARRAY<STRING>": ArrayType(StringType()),
    "ARRAY<INT>": ArrayType(IntegerType()),
    "MAP<STRING,STRING>": MapType(StringType(), StringType()),
    "MAP<STRING,INT>": MapType(StringType(), IntegerType()),
    "STRUCT<a:INT>": StructType([StructField("a", IntegerType())]),
}


def _schema(text: str) -> StructType:
    """Parse a schema; Spark's own parser needs a JVM."""
    columns = [column.split() for column in text.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind, *_ in columns])


@pytest.mark.parametrize(
    "text",
    [
        "body BINARY",
        "body STRING, topic STRING",
        "body BINARY, keys ARRAY<STRING>, properties MAP<STRING,STRING>",
        "body BINARY, keys STRING, tags STRING, flag INT, properties STRING, shardingKey STRING",
        "body BINARY, brokerName STRING, queueId INT, delayLevel BIGINT",
        "body BINARY NOT NULL, flag TINYINT, brokerName STRING",
    ],
)
def test_columns_of_messages_are_taken(text: str) -> None:
    schema = _schema(text)

    assert write_columns(schema, ORDERS).names == set(schema.names)


@pytest.mark.parametrize("properties", ["string", "map"])
def test_rows_of_a_source_can_be_written(properties: PropertiesForm) -> None:
    schema = table_projection(COLUMN_NAMES, properties=properties).spark_schema

    columns = write_columns(schema, ANYWHERE)

    assert columns.names == {
        "topic",
        "body",
        "keys",
        "tags",
        "flag",
        "properties",
        "brokerName",
        "queueId",
    }
    assert "msgId" not in columns


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("body BINARY, tag STRING", "no column 'tag' .*did you mean tags"),
        ("body BINARY, QUEUEID INT", "'queueId' and no 'brokerName'"),
        ("BODY INT", "'BODY' cannot be INT .*BINARY or STRING"),
        ("Body BINARY, body BINARY", "columns 'Body' and 'body' are both 'body'"),
        ("body BINARY, MsgId STRING, msgid STRING", "'MsgId' and 'msgid' are both 'msgId'"),
        ("body BINARY, customer STRING", "no column 'customer' .*drop it"),
        ("body INT", "'body' cannot be INT .*BINARY or STRING: .*to_json"),
        ("body STRUCT<a:INT>", "'body' cannot be STRUCT<A:INT>"),
        ("body BINARY, keys ARRAY<INT>", "'keys' cannot be ARRAY<INT>"),
        ("body BINARY, properties MAP<STRING,INT>", "'properties' cannot be MAP<STRING,INT>"),
        ("body BINARY, delayLevel STRING", "'delayLevel' cannot be STRING .*whole number"),
        ("body BINARY, queueId INT", "'queueId' and no 'brokerName'"),
        ("value BINARY", "no column 'value'"),
        ("tags STRING", "no column 'body' among tags"),
        ("body BINARY, body BINARY", "more than one column 'body'"),
    ],
)
def test_other_columns_are_refused_with_advice(text: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        write_columns(_schema(text), ORDERS)


def test_columns_in_another_case_get_our_names() -> None:
    columns = write_columns(_schema("Topic STRING, MSGID STRING, BODY BINARY"), ANYWHERE)
    batch = pa.RecordBatch.from_pydict({"Topic": ["orders"], "MSGID": ["1"], "BODY": [b"a"]})

    assert columns.names == {"topic", "body"}
    assert columns.with_our_names(batch).schema.names == ["topic", "msgId", "body"]


def test_rows_without_a_topic_are_refused() -> None:
    with pytest.raises(SettingsError, match=r'which topic .*option\("topic"'):
        write_columns(_schema("body BINARY"), ANYWHERE)


def test_delays_are_refused_with_exactly_once() -> None:
    options = dataclasses.replace(ORDERS, delivery="exactlyOnce")

    with pytest.raises(SettingsError, match=r"delayLevel .*atLeastOnce"):
        write_columns(_schema("body BINARY, delayLevel INT"), options)
