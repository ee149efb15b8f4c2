"""The columns of topics as tables, and the selection of them that a read returns.

The content of a column never depends on which other columns are read.

| column | what it holds |
|---|---|
| topic | the topic of the queue, as stored: for a retry queue, `%RETRY%` and the group |
| brokerName, queueId, queueOffset | the message's position in its topic |
| physicalOffset | the offset of its record in the log of the broker |
| msgId | the id its producer gave it, or else, as in Java's clients, an id of its location |
| keys, tags | as stored; null if it has none |
| flag | the producer's own number |
| properties | all of them, as stored: name, 0x01, value, 0x02, repeated; or as a map |
| body | its content, decompressed |
| bornTimestamp, storeTimestamp | when its producer sent it, and the broker stored it |
| bornHost, storeHost | its producer and broker, as `address:port`, `[address]:port` for IPv6 |
| sysFlag | RocketMQ's bits; as in Java's clients, without that of a compressed body |
| reconsumeTimes | how often its group failed to consume it |

Bytes in texts that are not UTF-8 are replaced by U+FFFD, as in Java.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from orbitmq.errors import SettingsError
from orbitmq.spark.options.column_names import nearest_column

PropertiesForm = Literal["string", "map"]

_TEXT: Final = StringType()
_MAP: Final = MapType(StringType(), StringType())

# In the order of a read without a schema from the user.
_COLUMNS: Final[dict[str, DataType]] = {
    "topic": _TEXT,
    "brokerName": _TEXT,
    "queueId": IntegerType(),
    "queueOffset": LongType(),
    "physicalOffset": LongType(),
    "msgId": _TEXT,
    "keys": _TEXT,
    "tags": _TEXT,
    "flag": IntegerType(),
    "properties": _TEXT,
    "body": BinaryType(),
    "bornTimestamp": TimestampType(),
    "storeTimestamp": TimestampType(),
    "bornHost": _TEXT,
    "storeHost": _TEXT,
    "sysFlag": IntegerType(),
    "reconsumeTimes": IntegerType(),
}
COLUMN_NAMES: Final = tuple(_COLUMNS)
# Columns that may be null.
_OPTIONAL: Final = frozenset({"keys", "tags"})
# Columns that are taken from properties.
_FROM_PROPERTIES: Final = frozenset({"msgId", "keys", "tags"})

_ARROW_TYPES: Final[dict[type[DataType], pa.DataType]] = {
    StringType: pa.string(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    BinaryType: pa.binary(),
    TimestampType: pa.timestamp("us", tz="UTC"),
}


@dataclass(frozen=True)
class Projection:
    """The columns that a read returns, in order; pickled to the tasks."""

    spark_schema: StructType

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(self.spark_schema.names)

    @cached_property
    def properties(self) -> PropertiesForm:
        """The form of the column `properties`, if there is one."""
        types = {field.name: field.dataType for field in self.spark_schema}
        return "map" if isinstance(types.get("properties"), MapType) else "string"

    @cached_property
    def has_maps(self) -> bool:
        """Whether there is a column of properties as maps."""
        return "properties" in self.names and self.properties == "map"

    @cached_property
    def has_entries(self) -> bool:
        """Whether any column needs the entries of properties."""
        return self.has_maps or not _FROM_PROPERTIES.isdisjoint(self.names)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema that every batch must have; Spark checks only the first batch."""
        return pa.schema(
            [
                pa.field(field.name, _arrow_type(field.dataType), nullable=field.nullable)
                for field in self.spark_schema
            ]
        )


def default_projection(
    *, properties: Literal["string", "map", "none"] = "string", include_body: bool = True
) -> Projection:
    """The columns of a read without a schema from the user."""
    types = dict(_COLUMNS)
    if properties == "map":
        types["properties"] = _MAP
    elif properties == "none":
        del types["properties"]
    if not include_body:
        del types["body"]
    return Projection(
        StructType(
            [StructField(name, kind, nullable=name in _OPTIONAL) for name, kind in types.items()]
        )
    )


def projection_of(schema: StructType) -> Projection:
    """The columns of a user's schema: any of ours, each once, in any order."""
    if not schema.names:
        raise SettingsError("the schema has no columns", hint=_known_columns())
    for field in schema:
        _check(field)
    repeated = {name for name in schema.names if schema.names.count(name) > 1}
    if repeated:
        raise SettingsError(f"the schema has column {min(repeated)!r} more than once")
    return Projection(schema)


def _check(field: StructField) -> None:
    """Refuse an unknown column, or one of a wrong type."""
    expected = _COLUMNS.get(field.name)
    if expected is None:
        nearest = nearest_column(field.name, _COLUMNS)
        raise SettingsError(
            f"the schema has a column {field.name!r}, which messages do not have",
            hint=f"did you mean {nearest}?" if nearest else _known_columns(),
        )
    if field.name == "properties" and isinstance(field.dataType, MapType):
        fits = isinstance(field.dataType.keyType, StringType) and isinstance(
            field.dataType.valueType, StringType
        )
    else:
        fits = isinstance(field.dataType, type(expected))
    if not fits:
        takes = expected.simpleString().upper()
        if field.name == "properties":
            takes += " or MAP<STRING, STRING>"
        raise SettingsError(
            f"column {field.name!r} cannot be {field.dataType.simpleString().upper()}",
            hint=f"use {takes}, and cast it after the read",
        )
    if field.name in _OPTIONAL and not field.nullable:
        raise SettingsError(
            f"column {field.name!r} cannot be NOT NULL: it is optional in messages",
            hint="leave NOT NULL out",
        )


def _known_columns() -> str:
    return f"the columns are {', '.join(_COLUMNS)}"


def _arrow_type(spark_type: DataType) -> pa.DataType:
    if isinstance(spark_type, MapType):
        value = pa.field("value", pa.string(), nullable=spark_type.valueContainsNull)
        return pa.map_(pa.string(), value)
    return _ARROW_TYPES[type(spark_type)]
