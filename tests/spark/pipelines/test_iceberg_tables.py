"""Iceberg tables: what their snapshots keep, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField
from pyspark.sql import SparkSession

from orbitmq.errors import TableError, TableStateError
from tests.spark.pipelines.written_tables import SINK, IcebergTrial


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> IcebergTrial:
    return IcebergTrial(spark, tmp_path)


def test_what_a_table_has_outlasts_its_snapshots(table: IcebergTrial) -> None:
    checkpoint = table.checkpoint("a", "b", "c")
    for batch in (0, 1):
        table.write(checkpoint, batch)
    iceberg = table.catalog.load_table("shop.orders")
    iceberg.append(pa.table({"id": [7], "item": ["other"]}))
    ours = [one.snapshot_id for one in iceberg.snapshots()[:-1]]
    iceberg.maintenance.expire_snapshots().by_ids(ours).commit()

    for batch in (1, 2):
        table.write(checkpoint, batch)

    assert table.ids() == [0, 1, 2, 7]


@pytest.mark.parametrize(("kept", "problem"), [(1, "lacks batches 1 to 1"), (0, "before 2")])
def test_a_table_that_was_rolled_back_is_refused(
    table: IcebergTrial, kept: int, problem: str
) -> None:
    table.catalog.create_namespace("shop")
    iceberg = table.catalog.create_table(
        "shop.orders", pa.schema([("id", pa.int64()), ("item", pa.string())])
    )
    iceberg.append(pa.table({"id": [7], "item": ["other"]}))
    checkpoint = table.checkpoint("a", "b", "c")
    for batch in (0, 1):
        table.write(checkpoint, batch)
    iceberg = table.catalog.load_table("shop.orders")
    with iceberg.manage_snapshots() as manage:
        manage.rollback_to_snapshot(iceberg.snapshots()[kept].snapshot_id)

    with pytest.raises(TableStateError, match=problem):
        table.write(checkpoint, 2)

    assert table.table.last_commit(SINK) is None or kept


def test_other_programs_may_append_to_the_table(table: IcebergTrial) -> None:
    checkpoint = table.checkpoint("a", "b")
    table.write(checkpoint, 0)

    table.catalog.load_table("shop.orders").append(pa.table({"id": [7], "item": ["other"]}))
    table.write(checkpoint, 1)

    assert table.ids() == [0, 1, 7]


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ("CAST(1 AS TINYINT) AS id", "column id: a table cannot hold tinyint"),
        ("array(CAST(1 AS SMALLINT)) AS id", "column id: a table cannot hold smallint"),
        ("NULL AS id", "column id: a table cannot hold void"),
    ],
)
def test_columns_that_iceberg_does_not_have_are_named(
    table: IcebergTrial, columns: str, problem: str
) -> None:
    with pytest.raises(TableError, match=problem):
        table.write(table.checkpoint("a"), 0, table.spark.sql(f"SELECT {columns}"))


def test_a_table_that_needs_more_of_its_writers_is_refused(table: IcebergTrial) -> None:
    table.catalog.create_namespace("shop")
    required = Schema(NestedField(1, "id", LongType(), required=True))
    schema = Schema(NestedField(1, "id", LongType()))
    by_id = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    table.catalog.create_table("shop.orders", required)
    rows = table.spark.sql("SELECT 1L AS id")

    with pytest.raises(TableError, match="column id of the table is required"):
        table.write(table.checkpoint("a"), 0, rows)
    table.catalog.drop_table("shop.orders")
    table.catalog.create_table("shop.orders", schema, partition_spec=by_id)
    with pytest.raises(TableError, match="the table is partitioned"):
        table.write(table.checkpoint("a"), 0, rows)
