"""The columns of a batch fit those of a table, or each one that does not is named."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from orbitmq.errors import TableError
from orbitmq.pipelines.tables.columns import check_fit

ID, ITEM, TAGS = LongType(), StringType(), ArrayType(StringType())
BUYER = StructType([StructField("name", StringType(), nullable=False)])
PRICE = DecimalType(8, 2)
TABLE: dict[str, DataType] = {"id": ID, "item": ITEM, "buyer": BUYER, "tags": TAGS}


def columns(kinds: dict[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def added(batch: dict[str, DataType], *, adds_columns: bool = False) -> list[str]:
    found = check_fit(
        columns(TABLE), columns(batch), sink="out", target="table t", adds_columns=adds_columns
    )
    return [f"{one.name} {one.dataType.simpleString()}" for one in found]


def test_order_case_and_nulls_do_not_matter() -> None:
    buyer = StructType([StructField("name", StringType())])

    assert added({"tags": TAGS, "ITEM": ITEM, "buyer": buyer, "id": ID}) == []


@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        ({**TABLE, "id": IntegerType()}, "column id is int, and that of the table is bigint"),
        ({**TABLE, "price": PRICE}, r"the table has no column price \(decimal\(8,2\)\)"),
        (
            {"id": ID, "tags": TAGS, "buyer": BUYER},
            r"the rows have no column item, which the table has \(string\)",
        ),
        (
            {**TABLE, "buyer": StructType([*BUYER, StructField("age", IntegerType())])},
            "column buyer is struct<name:string,age:int>, and that of the table is "
            "struct<name:string>",
        ),
    ],
)
def test_a_fixed_table_refuses_what_does_not_fit(batch: dict[str, DataType], problem: str) -> None:
    with pytest.raises(TableError, match=f"out is not written to table t: {problem}"):
        added(batch)


def test_columns_are_added_if_the_sink_says_so() -> None:
    assert added({"id": ID, "price": PRICE}, adds_columns=True) == ["price decimal(8,2)"]


def test_a_type_never_changes() -> None:
    with pytest.raises(TableError, match="column tags is array<int>"):
        added({"tags": ArrayType(IntegerType())}, adds_columns=True)
