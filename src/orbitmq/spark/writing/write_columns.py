"""The columns that rows to be written may have, checked before the write.

| column | type | what it sets |
|---|---|---|
| body | BINARY or STRING | the content; required, and not empty |
| topic | STRING | where the row goes, unless the option `topic` sets it for all rows |
| keys | STRING or ARRAY<STRING> | keys to look the message up by |
| tags | STRING | tags for consumers to filter by |
| flag | a whole number | the producer's own number |
| properties | MAP<STRING, STRING>, or STRING as a source returns it | the user's own properties |
| brokerName, queueId | STRING, a whole number | the queue, both together |
| shardingKey | STRING | rows with the same key go to the same queue, in order |
| delayLevel | a whole number | which of the broker's delay levels to wait before delivery |

Names are in any letter case. Null sets nothing. Columns that a source returns and no sender can set
are ignored, so that rows can be written as they were read: a copy gets an id, times and offsets of
its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from orbitmq.errors import SettingsError
from orbitmq.spark.options.column_names import COLUMN_NAMES, nearest_column

if TYPE_CHECKING:
    import pyarrow as pa

    from orbitmq.spark.options.write_options import WriteOptions

_TEXT: Final = "STRING"
_NUMBER: Final = "a whole number"
# The types of each column, in words.
_TAKES: Final = {
    "topic": _TEXT,
    "body": "BINARY or STRING",
    "keys": "STRING or ARRAY<STRING>",
    "tags": _TEXT,
    "flag": _NUMBER,
    "properties": "MAP<STRING, STRING> or STRING",
    "brokerName": _TEXT,
    "queueId": _NUMBER,
    "shardingKey": _TEXT,
    "delayLevel": _NUMBER,
}
# Columns that a source returns, and that the broker or the sink sets for every message.
IGNORED: Final = frozenset(COLUMN_NAMES) - frozenset(_TAKES)
_SPELLED: Final = {name.lower(): name for name in (*COLUMN_NAMES, *_TAKES)}


@dataclass(frozen=True, slots=True)
class WriteColumns:
    """The columns of rows that are written; pickled to the tasks."""

    # Our names of them.
    names: frozenset[str]
    # Our names of those that are spelled in another way.
    renamed: Mapping[str, str] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def with_our_names(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows, with our names of the columns."""
        if not self.renamed:
            return batch
        names = [self.renamed.get(name, name) for name in batch.schema.names]
        return batch.rename_columns(names)


def write_columns(schema: StructType, options: WriteOptions) -> WriteColumns:
    """Check the columns of rows to be written."""
    given: dict[str, str] = {}
    for column in schema:
        name = _SPELLED.get(column.name.lower())
        if name is None:
            raise _unknown(column.name)
        if name in given:
            raise _repeated(name, given[name], column.name)
        given[name] = column.name
        if name not in IGNORED and not _fits(name, column.dataType):
            raise SettingsError(
                f"column {column.name!r} cannot be {column.dataType.simpleString().upper()}",
                hint=f"it must be {_TAKES[name]}: {_advice(name)}",
            )
    names = frozenset(given) & frozenset(_TAKES)
    if "body" not in names:
        raise SettingsError(
            f"there is no column 'body' among {_listed(schema.names)}",
            hint='give the content that name, as in df.selectExpr("to_json(struct(*)) AS body")',
        )
    if not options.topic and "topic" not in names:
        raise SettingsError(
            "nothing says which topic the rows go to",
            hint='.option("topic", "orders") sets it for all rows, a column topic for each row',
        )
    if "queueId" in names and "brokerName" not in names:
        raise SettingsError(
            "there is a column 'queueId' and no 'brokerName'",
            hint="queues are numbered by broker: give both, or a shardingKey, or neither",
        )
    if "delayLevel" in names and options.is_exactly_once:
        raise SettingsError(
            "rows with a delayLevel cannot be written exactly once",
            hint="drop the column, or write with delivery=atLeastOnce",
        )
    return WriteColumns(names, {text: name for name, text in given.items() if text != name})


def _fits(name: str, kind: DataType) -> bool:
    match name:
        case "body":
            return isinstance(kind, (BinaryType, StringType))
        case "keys":
            return isinstance(kind, StringType) or (
                isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType)
            )
        case "properties":
            return isinstance(kind, StringType) or (
                isinstance(kind, MapType)
                and isinstance(kind.keyType, StringType)
                and isinstance(kind.valueType, StringType)
            )
        case "flag" | "queueId" | "delayLevel":
            return isinstance(kind, (ByteType, ShortType, IntegerType, LongType))
        case _:
            return isinstance(kind, StringType)


def _advice(name: str) -> str:
    if name == "body":
        return "convert it, for example with to_json or CAST"
    return "cast it before the write"


def _repeated(name: str, first: str, second: str) -> SettingsError:
    if first == second:
        return SettingsError(f"there is more than one column {name!r}")
    return SettingsError(
        f"columns {first!r} and {second!r} are both {name!r}: letter case makes no difference",
        hint="drop or rename one of them",
    )


def _unknown(name: str) -> SettingsError:
    nearest = nearest_column(name, _TAKES)
    return SettingsError(
        f"messages have no column {name!r}",
        hint=f"did you mean {nearest}?"
        if nearest
        else f"drop it, or put it into the body or the properties; columns: {_listed(_TAKES)}",
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
