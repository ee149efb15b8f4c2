"""The types of columns: what Spark's become, and which of PostgreSQL's they fit.

A type fits if every value of it can be stored as it is. Texts also go into types that check them;
a text that such a type refuses fails the batch.
"""

from __future__ import annotations

import re
from typing import Final

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

from orbitmq.errors import SettingsError

_NUMERIC: Final = re.compile(r"numeric(?:\((\d+),(-?\d+)\))?")
_LENGTH: Final = re.compile(r"\(\d+\)")
# Decimal digits that hold any value of a type.
_DIGITS: Final[dict[type[DataType], int]] = {
    ByteType: 3,
    ShortType: 5,
    IntegerType: 10,
    LongType: 19,
}
# The first is what a new table has.
_FITTING: Final[dict[type[DataType], tuple[str, ...]]] = {
    BooleanType: ("boolean",),
    ByteType: ("smallint", "integer", "bigint"),
    ShortType: ("smallint", "integer", "bigint"),
    IntegerType: ("integer", "bigint"),
    LongType: ("bigint",),
    FloatType: ("real", "double precision"),
    DoubleType: ("double precision",),
    StringType: ("text", "character varying", "citext", "uuid", "json", "jsonb"),
    BinaryType: ("bytea",),
    DateType: ("date",),
    TimestampType: ("timestamp with time zone",),
    TimestampNTZType: ("timestamp without time zone",),
    ArrayType: ("jsonb", "json"),
    MapType: ("jsonb", "json"),
    StructType: ("jsonb", "json"),
}
NESTED: Final = (ArrayType, MapType, StructType)


def created_type(kind: DataType, column: str) -> str:
    """The type that a column of a new table has; raises SettingsError if there is none."""
    if isinstance(kind, DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    found = _FITTING.get(type(kind))
    if found is None:
        raise SettingsError(
            f"column {column} is {kind.simpleString()}, which PostgreSQL has no type for",
            hint="cast it in a step, as in CAST(… AS string)",
        )
    return found[0]


def fits(kind: DataType, stored: str) -> bool:
    """Whether a column's type, as PostgreSQL writes it, takes all values of one of Spark's."""
    numeric = _NUMERIC.fullmatch(stored)
    if numeric is not None and (isinstance(kind, DecimalType) or type(kind) in _DIGITS):
        if numeric[1] is None:
            return True
        whole, fraction = (
            (kind.precision - kind.scale, kind.scale)
            if isinstance(kind, DecimalType)
            else (_DIGITS[type(kind)], 0)
        )
        return int(numeric[1]) - int(numeric[2]) >= whole and int(numeric[2]) >= fraction
    return _LENGTH.sub("", stored) in _FITTING.get(type(kind), ())
