"""What Delta cannot hold, or we cannot write, is named before a row is written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from orbitmq.pipelines.tables.delta_form import partition_text, unfit_column, unfit_table

NESTED = StructType(
    [StructField("d", ArrayType(MapType(StringType(), TimestampNTZType())))],
)


@pytest.mark.parametrize(
    ("columns", "partition_by", "problem"),
    [
        ({"a": LongType(), "b": DateType(), "c": NESTED}, ["b"], ""),
        ({"a": NullType()}, [], "column a: a table cannot hold void"),
        ({"a": ArrayType(VariantType())}, [], "column a: a table cannot hold variant"),
        ({"a": StructType()}, [], "column a: a struct needs a field"),
        ({"a b": LongType()}, [], "column a b: a name cannot have ' '"),
        (
            {"a": StructType([StructField("b,c", LongType())])},
            [],
            "column a: a name cannot have ','",
        ),
        ({"a": LongType()}, ["a"], "a table needs a column that it is not partitioned by"),
        (
            {"a": LongType(), "b": TimestampType()},
            ["b"],
            "a table cannot be partitioned by b, which is timestamp: take a text, a whole number, "
            "a date or a boolean",
        ),
    ],
)
def test_columns(columns: dict[str, DataType], partition_by: list[str], problem: str) -> None:
    form = StructType([StructField(name, kind) for name, kind in columns.items()])

    assert unfit_column(form, partition_by) == problem


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, None), ("", None), ("a", "a"), (7, "7"), (True, "true"), (False, "false")],
)
def test_values_of_partitions(value: str | int | None, text: str | None) -> None:
    assert partition_text(value) == text


def created(
    folder: Path, configuration: dict[str, str] | None = None, *, is_nullable: bool = True
) -> DeltaTable:
    form = pa.schema([pa.field("id", pa.int64(), nullable=is_nullable)])
    return DeltaTable.create(
        folder,
        Schema.from_arrow(form),
        configuration=configuration,
    )


def test_tables(tmp_path: Path) -> None:
    assert unfit_table(created(tmp_path / "a", {"delta.appendOnly": "true"})) == ""
    assert "id of the table is NOT NULL" in unfit_table(created(tmp_path / "b", is_nullable=False))
    mapped = created(tmp_path / "c", {"delta.columnMapping.mode": "name"})
    assert "other names in its files" in unfit_table(mapped)


def test_a_table_with_a_constraint(tmp_path: Path) -> None:
    table = created(tmp_path)
    table.alter.add_constraint({"positive": "id > 0"})

    assert unfit_table(DeltaTable(tmp_path)) == "the table has a constraint, positive"
