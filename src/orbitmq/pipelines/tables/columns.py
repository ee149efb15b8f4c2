"""Whether the columns of a batch fit those of a table, by Spark's types.

Columns have the same name if they differ in case only. A type never changes; whether a column may
have NULLs is up to the table.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from orbitmq.errors import TableError

_NAMED_MAX: Final = 5


def plain(kind: DataType) -> DataType:
    """A type whose parts all may be NULL, without metadata."""
    if isinstance(kind, StructType):
        return plain_columns(kind)
    if isinstance(kind, ArrayType):
        return ArrayType(plain(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(plain(kind.keyType), plain(kind.valueType))
    return kind


def plain_columns(columns: StructType) -> StructType:
    """Columns that all may be NULL, as may all of their parts."""
    return StructType([StructField(one.name, plain(one.dataType)) for one in columns])


def check_fit(
    table: StructType, batch: StructType, *, sink: str, target: str, adds_columns: bool
) -> tuple[StructField, ...]:
    """Raise TableError if a batch does not fit; returns the columns that the table has to get."""
    there = {one.name.lower(): one for one in table}
    given = {one.name.lower(): one for one in batch}
    problems = [
        f"column {given[name].name} is {_text(given[name])}, and that of the table is {_text(one)}"
        for name, one in there.items()
        if name in given and plain(given[name].dataType) != plain(one.dataType)
    ]
    added = tuple(
        StructField(one.name, plain(one.dataType)) for one in batch if one.name.lower() not in there
    )
    if not adds_columns:
        problems += [f"the table has no column {one.name} ({_text(one)})" for one in added]
        problems += [
            f"the rows have no column {one.name}, which the table has ({_text(one)})"
            for name, one in there.items()
            if name not in given
        ]
    if problems:
        raise TableError(
            sink,
            target,
            "; ".join(problems[:_NAMED_MAX]),
            hint="cast or name columns in a step; schema: add-columns adds columns to the table",
        )
    return added


def fitted(rows: DataFrame, table: StructType) -> DataFrame:
    """Rows with the columns of a table, in its order and spelling; what they lack is NULL."""
    given = {name.lower(): name for name in rows.columns}

    def column(one: StructField) -> Column:
        name = given.get(one.name.lower())
        if name is None:
            return functions.lit(None).cast(one.dataType).alias(one.name)
        return rows[quoted(name)].alias(one.name)

    return rows.select(*(column(one) for one in table))


def quoted(name: str) -> str:
    """A column as Spark's SQL names it."""
    return f"`{name.replace('`', '``')}`"


def _text(one: StructField) -> str:
    return one.dataType.simpleString()
