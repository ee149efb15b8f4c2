"""What Delta can hold: columns, values of partitions, statistics of files."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from orbitmq.pipelines.tables.parquet_parts import PartitionValue, statistics_of

_IN_FOLDERS: Final = (StringType, ByteType, ShortType, IntegerType, LongType, DateType, BooleanType)
_SIMPLE: Final = (
    *_IN_FOLDERS,
    FloatType,
    DoubleType,
    DecimalType,
    BinaryType,
    TimestampType,
    TimestampNTZType,
)
# Delta refuses them in names of columns.
_NOT_IN_NAMES: Final = " ,;{}()\n\t="
# A longer text is cut, as Delta does.
_TEXT_MAX: Final = 32
# A float has these digits exactly.
_DECIMAL_DIGITS_MAX: Final = 15
# Of writers, what a commit of new files keeps to, or is checked for below.
_FEATURES: Final = {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "deletionVectors",
    "generatedColumns",
    "invariants",
    "timestampNtz",
}
_FEATURES_IN_VERSION: Final = 7


def unfit_column(columns: StructType, partition_by: Sequence[str]) -> str:
    """What of some columns Delta cannot hold; empty if it can hold all."""
    if len(partition_by) == len(columns):
        return "a table needs a column that it is not partitioned by"
    by = {name.lower() for name in partition_by}
    for column in columns:
        wrong = _unfit(column.dataType) or _unfit_name(column.name)
        if wrong:
            return f"column {column.name}: {wrong}"
        if column.name.lower() in by and not isinstance(column.dataType, _IN_FOLDERS):
            return (
                f"a table cannot be partitioned by {column.name}, which is "
                f"{column.dataType.simpleString()}: take a text, a whole number, a date or a boolean"
            )
    return ""


def _unfit(kind: DataType) -> str:
    if isinstance(kind, StructType):
        found = (_unfit(one.dataType) or _unfit_name(one.name) for one in kind)
        return next(filter(None, found), "") if len(kind) else "a struct needs a field"
    if isinstance(kind, ArrayType):
        return _unfit(kind.elementType)
    if isinstance(kind, MapType):
        return _unfit(kind.keyType) or _unfit(kind.valueType)
    # A subclass is another type, such as a text of fixed length.
    return "" if type(kind) in _SIMPLE else f"a table cannot hold {kind.simpleString()}"


def _unfit_name(name: str) -> str:
    wrong = next((letter for letter in name if letter in _NOT_IN_NAMES), "")
    return f"a name cannot have {wrong!r}" if wrong else ""


def unfit_table(table: DeltaTable) -> str:
    """What of a table is beyond a writer that only adds files; empty if nothing is."""
    protocol = table.protocol()
    beyond = set(protocol.writer_features or ()) - _FEATURES
    if protocol.min_writer_version > _FEATURES_IN_VERSION or beyond:
        named = ", ".join(sorted(beyond)) or f"writer version {protocol.min_writer_version}"
        return f"the table needs writers that know {named}"
    configuration = table.metadata().configuration
    for name, value in configuration.items():
        if name.startswith("delta.constraints."):
            return f"the table has a constraint, {name.removeprefix('delta.constraints.')}"
        if name == "delta.columnMapping.mode" and value != "none":
            return "the columns of the table have other names in its files (column mapping)"
    for field in table.schema().fields:
        if not field.nullable:
            return f"column {field.name} of the table is NOT NULL"
        rules = [name for name in field.metadata if name.startswith("delta.")]
        if rules:
            return f"column {field.name} of the table has a rule, {rules[0]}"
    return ""


def partition_text(value: PartitionValue) -> str | None:
    """A value of a partition; Delta has no empty text there, and takes it for NULL."""
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None or value == "" else str(value)


def statistics_form(metadata: pq.FileMetaData) -> dict[str, object]:
    """The statistics of a file, as Delta writes them."""
    found = statistics_of(metadata)
    low = {name: _low(one.low) for name, one in found.items()}
    high = {name: _high(one.high) for name, one in found.items()}
    return {
        "numRecords": metadata.num_rows,
        "minValues": {name: value for name, value in low.items() if value is not None},
        "maxValues": {name: value for name, value in high.items() if value is not None},
        "nullCount": {name: one.nulls for name, one in found.items() if one.nulls is not None},
    }


def _low(value: Any) -> object:
    if isinstance(value, str):
        return value[:_TEXT_MAX]
    if isinstance(value, datetime.datetime):
        return _time_text(value)
    return _exact(value)


def _high(value: Any) -> object:
    if isinstance(value, str):
        return value if len(value) <= _TEXT_MAX else None
    if isinstance(value, datetime.datetime):
        # Times have milliseconds there, so this one is rounded up.
        try:
            return _time_text(value + datetime.timedelta(microseconds=-value.microsecond % 1000))
        except OverflowError:
            return None
    return _exact(value)


def _exact(value: Any) -> object:
    """A value as JSON has it; None if that would not be a bound of it."""
    if isinstance(value, Decimal):
        return float(value) if len(value.as_tuple().digits) <= _DECIMAL_DIGITS_MAX else None
    if isinstance(value, datetime.date):
        return value.isoformat()
    # Not of floats: Parquet leaves NaN out, which for Spark is above all others.
    if isinstance(value, bool | float | bytes):
        return None
    return int(value) if isinstance(value, int) and math.isfinite(value) else None


def _time_text(value: datetime.datetime) -> str:
    text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text if value.tzinfo is None else f"{text}Z"
