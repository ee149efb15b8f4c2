"""The columns of topics as tables, and the selection of them that a read returns.

The content of a column never depends on which other columns are read. Names are in any letter case;
rows have those of the user.

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

from collections.abc import Iterable
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
from orbitmq.spark.options.column_names import USUAL_COLUMNS, check_named_once, column_named

PropertiesForm = Literal["string", "map"]

_TEXT: Final = StringType()
_MAP: Final = MapType(StringType(), StringType())

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
        """Our names of the columns, in order."""
        return tuple(column_named(name, where="the schema") for name in self.spark_schema.names)

    @cached_property
    def properties(self) -> PropertiesForm:
        """The form of the column `properties`, if there is one."""
        types = dict(zip(self.names, (field.dataType for field in self.spark_schema), strict=True))
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
    def has_bodies(self) -> bool:
        """Whether there is a column of bodies."""
        return "body" in self.names

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema of decoded batches, with our names."""
        return self._arrow_schema(self.names)

    @cached_property
    def asked_schema(self) -> pa.Schema:
        """The schema that every batch for Spark must have; Spark checks only the first batch."""
        return self._arrow_schema(tuple(self.spark_schema.names))

    def _arrow_schema(self, names: tuple[str, ...]) -> pa.Schema:
        return pa.schema(
            [
                pa.field(name, _arrow_type(field.dataType), nullable=field.nullable)
                for name, field in zip(names, self.spark_schema, strict=True)
            ]
        )


def table_projection(
    names: Iterable[str] = USUAL_COLUMNS,
    *,
    properties: PropertiesForm = "string",
    may_be_null: bool = False,
) -> Projection:
    """The columns of these names, of the types that they have unless the user gives a schema.

    With `may_be_null`, every column may be null, and not only those of optional fields.
    """
    types = {**_COLUMNS, "properties": _MAP if properties == "map" else _TEXT}
    return Projection(
        StructType(
            [
                StructField(name, types[name], nullable=may_be_null or name in _OPTIONAL)
                for name in names
            ]
        )
    )


def projection_of(schema: StructType, *, may_be_null: bool = False) -> Projection:
    """The columns of a user's schema: any of ours, each once, in any order.

    With `may_be_null`, those that are NOT NULL are refused.
    """
    if not schema.names:
        raise SettingsError(
            "the schema has no columns", hint=f"the columns are {', '.join(_COLUMNS)}"
        )
    projection = Projection(schema)
    for name, field in zip(projection.names, schema, strict=True):
        _check(name, field)
        if may_be_null and not field.nullable:
            raise SettingsError(
                f"column {field.name!r} is NOT NULL, and with onUnreadable=null it may be null",
                hint="leave NOT NULL out",
            )
    check_named_once(projection.names, where="the schema")
    return projection


def _check(name: str, field: StructField) -> None:
    """Refuse a column of a wrong type."""
    expected = _COLUMNS[name]
    if name == "properties" and isinstance(field.dataType, MapType):
        fits = isinstance(field.dataType.keyType, StringType) and isinstance(
            field.dataType.valueType, StringType
        )
    else:
        fits = isinstance(field.dataType, type(expected))
    if not fits:
        takes = expected.simpleString().upper()
        if name == "properties":
            takes += " or MAP<STRING, STRING>"
        raise SettingsError(
            f"column {field.name!r} cannot be {field.dataType.simpleString().upper()}",
            hint=f"use {takes}, and cast it after the read",
        )
    if name in _OPTIONAL and not field.nullable:
        raise SettingsError(
            f"column {field.name!r} cannot be NOT NULL: it is optional in messages",
            hint="leave NOT NULL out",
        )


def _arrow_type(spark_type: DataType) -> pa.DataType:
    if isinstance(spark_type, MapType):
        value = pa.field("value", pa.string(), nullable=spark_type.valueContainsNull)
        return pa.map_(pa.string(), value)
    return _ARROW_TYPES[type(spark_type)]
