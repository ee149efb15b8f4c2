"""Tables that tests write batch by batch, as queries with checkpoints do."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyiceberg.catalog import Catalog, load_catalog
from pyspark.sql import DataFrame, SparkSession

from orbitmq.pipelines.plan import DeltaSink, IcebergSink
from orbitmq.pipelines.tables.batches import Table, batch_writer
from orbitmq.pipelines.tables.delta import DeltaLake
from orbitmq.pipelines.tables.iceberg import Iceberg

SINK = "shop/table"


class TableTrial:
    """A table in a folder, and checkpoints of queries that write it."""

    sink: DeltaSink | IcebergSink

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    @property
    def table(self) -> Table:
        """The table as a sink has it."""
        raise NotImplementedError

    def rows(self) -> list[dict[str, Any]]:
        """What another reader finds in the table, ordered by `id`."""
        raise NotImplementedError

    def ids(self) -> list[int]:
        """The column `id` of it."""
        return [row["id"] for row in self.rows()]

    def adds_columns(self) -> None:
        """From now on the sink adds columns."""
        self.sink = replace(self.sink, adds_columns=True)

    def checkpoint(self, *ends: str, query: str = "") -> Path:
        """A checkpoint of a query that has planned batches, each up to one of the ends."""
        folder = self.folder / f"checkpoint-{uuid.uuid4()}"
        (folder / "offsets").mkdir(parents=True)
        (folder / "metadata").write_text(json.dumps({"id": query or str(uuid.uuid4())}))
        for number, end in enumerate(ends):
            (folder / "offsets" / str(number)).write_text(end)
        return folder

    def write(self, checkpoint: Path, batch: int, rows: DataFrame | None = None) -> None:
        """What Spark does with a batch of a query."""
        if rows is None:
            rows = self.spark.sql(f"SELECT {batch}L AS id, 'tea' AS item")
        write = batch_writer(
            self.table, sink=SINK, target=self.sink.target, checkpoint=str(checkpoint)
        )
        write(rows, batch)


class DeltaTrial(TableTrial):
    """A Delta table."""

    sink: DeltaSink

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, folder)
        self.sink = DeltaSink(
            name="table",
            reads="orders",
            path=str(folder / "orders"),
            partition_by=(),
            adds_columns=False,
        )

    @property
    def table(self) -> DeltaLake:
        """The table as a sink has it."""
        return DeltaLake(self.sink)

    def rows(self) -> list[dict[str, Any]]:
        """What another reader finds in the table, ordered by `id`."""
        return delta_rows(self.sink.path)


class IcebergTrial(TableTrial):
    """An Iceberg table, in a catalog that is a file."""

    sink: IcebergSink

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, folder)
        self.sink = IcebergSink(
            name="table",
            reads="orders",
            catalog="lake",
            identifier="shop.orders",
            properties=catalog_properties(folder),
            adds_columns=False,
        )

    @property
    def table(self) -> Iceberg:
        """The table as a sink has it."""
        return Iceberg(self.sink)

    @property
    def catalog(self) -> Catalog:
        """The catalog of the table."""
        return load_catalog(self.sink.catalog, **self.sink.properties)

    def rows(self) -> list[dict[str, Any]]:
        """What another reader finds in the table, ordered by `id`."""
        return iceberg_rows(self.catalog, self.sink.identifier)


def catalog_properties(folder: Path) -> dict[str, str]:
    """A catalog that is a file, for tables in a folder."""
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}


def delta_rows(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a Delta table, ordered by `id`."""
    return _ordered(DeltaTable(path).to_pyarrow_table().to_pylist())


def iceberg_rows(catalog: Catalog, identifier: str) -> list[dict[str, Any]]:
    """The rows of an Iceberg table, ordered by `id`."""
    return _ordered(catalog.load_table(identifier).scan().to_arrow().to_pylist())


def _ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: int(row["id"]))
