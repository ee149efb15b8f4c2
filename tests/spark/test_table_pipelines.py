"""Pipelines that write Delta and Iceberg tables, also when they fail or are killed."""

from __future__ import annotations

import datetime
import json
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from orbitmq.errors import PipelineError
from orbitmq.pipelines.file.pipeline_file import read_pipeline
from orbitmq.pipelines.running.runner import Runner
from orbitmq.pipelines.running.state import CHECKPOINTS, OF_SINK
from tests.spark.kills import ROOT
from tests.spark.topics import Topics
from tests.spark.written_tables import catalog_properties, delta_rows, iceberg_rows

# From the start of a JVM to its first batches, on a busy machine.
START_TIMEOUT_S = 400
pytestmark = pytest.mark.timeout(1200)

FILE = """\
name: shop
namesrv: {namesrv}
sources:
  orders:
    topic: {orders}
    decode: json
    columns:
      id: bigint
      item: string
      sold: date
      price: "decimal(8, 2)"
      placed: timestamp
      local: timestamp_ntz
      rate: double
      small: int
      is_gift: boolean
      raw: binary
      tags: array<string>
      counts: map<string, int>
      buyer: "struct<name: string, age: int>"
      select: string
      "ä-`b`.c": int
steps:
  kept:
    sql: SELECT {columns} FROM orders
sinks:
  delta:
    from: kept
    delta: tables/orders
    partition_by: [item, sold]
  iceberg:
    from: kept
    iceberg: lake.shop.orders
    catalog: {catalog}
"""
ALL = "* EXCEPT (message)"
FAILING = "* EXCEPT (message, id), CAST(id / (2 - id) * (2 - id) AS BIGINT) AS id"
WHOLE = {
    "id": 1,
    "item": "a/b=ü %25'\"",
    "sold": "2026-01-31",
    "price": 12.5,
    "placed": "2026-01-31T12:30:00.123456Z",
    "local": "2026-01-31T12:30:00.123456",
    "rate": 0.1,
    "small": -7,
    "is_gift": True,
    "raw": "AAE=",
    "tags": ["x", None],
    "counts": {"a": 1, "b": None},
    "buyer": {"name": "Ann", "age": 30},
    "select": "word",
    "ä-`b`.c": 5,
}
READ = {
    **WHOLE,
    "sold": datetime.date(2026, 1, 31),
    "price": Decimal("12.50"),
    "placed": datetime.datetime(2026, 1, 31, 12, 30, 0, 123456, tzinfo=datetime.UTC),
    "local": datetime.datetime(2026, 1, 31, 12, 30, 0, 123456),  # noqa: DTZ001
    "raw": b"\x00\x01",
    "counts": [("a", 1), ("b", None)],
}


class Shop:
    """A pipeline that writes a Delta and an Iceberg table."""

    def __init__(self, spark: SparkSession, topics: Topics, folder: Path) -> None:
        self.spark = spark
        self.topics = topics
        self.folder = folder
        self.orders = topics.create(queues=2)
        self.file = folder / "shop.yaml"
        self.write(FILE)

    def write(self, text: str, columns: str = ALL) -> None:
        self.file.write_text(
            text.format(
                namesrv=self.topics.cluster.namesrv,
                orders=self.orders,
                columns=columns,
                catalog=json.dumps(catalog_properties(self.folder)),
            )
        )

    def order(self, *orders: dict[str, Any]) -> None:
        self.topics.send(self.orders, [json.dumps(order) for order in orders])

    def run(self) -> dict[str, int]:
        return Runner(pipeline=read_pipeline(self.file), spark=self.spark, is_once=True).run()

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        catalog = load_catalog("lake", **catalog_properties(self.folder))
        return {
            "delta": delta_rows(self.folder / "tables" / "orders"),
            "iceberg": iceberg_rows(catalog, "shop.orders"),
        }

    def ids(self) -> dict[str, list[int]]:
        return {name: [row["id"] for row in rows] for name, rows in self.tables().items()}

    def run_to_be_killed(self, sink: str, moment: str) -> None:
        """Run it in a process that kills itself, with all that it has started, at a moment."""
        command = [sys.executable, "-m", "tests.spark.killed_pipeline"]
        done = subprocess.run(
            [*command, str(self.file), sink, moment],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
            check=False,
            start_new_session=True,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr[-4000:]


@pytest.fixture
def shop(spark: SparkSession, topics: Topics, tmp_path: Path) -> Shop:
    return Shop(spark, topics, tmp_path)


def test_rows_of_all_types_are_there_once_also_after_a_batch_that_failed(shop: Shop) -> None:
    shop.order(WHOLE)
    first = shop.run()
    shop.write(FILE, FAILING)
    shop.order({"id": 2}, {**WHOLE, "id": 3})
    with pytest.raises(PipelineError, match=r"(delta|iceberg) failed: .*DIVIDE_BY_ZERO"):
        shop.run()
    assert shop.ids() == {"delta": [1], "iceberg": [1]}

    shop.write(FILE)
    second = shop.run()

    rows = [READ, {**dict.fromkeys(READ), "id": 2}, {**READ, "id": 3}]
    assert shop.tables() == {"delta": rows, "iceberg": rows}
    assert (first["delta"], second["delta"]) == (1, 2)


@pytest.mark.parametrize(
    ("sink", "moment", "is_written"),
    [("delta", "files written", False), ("iceberg", "committed", True)],
)
def test_a_driver_that_is_killed_changes_nothing(
    shop: Shop, sink: str, moment: str, *, is_written: bool
) -> None:
    shop.order(*({"id": id_} for id_ in range(5)))

    shop.run_to_be_killed(sink, moment)
    checkpoint = shop.folder / "shop.state" / CHECKPOINTS / f"{OF_SINK}{sink}"
    assert (checkpoint / "offsets" / "0").exists()
    assert not (checkpoint / "commits" / "0").exists()
    if is_written:
        assert shop.ids()[sink] == [0, 1, 2, 3, 4]
    shop.order({"id": 5})
    shop.run()

    assert shop.ids() == {"delta": list(range(6)), "iceberg": list(range(6))}
