"""Pipelines that write Delta and Iceberg tables, also when they fail or are killed."""

from __future__ import annotations

import base64
import datetime
import json
import random
import re
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from orbitmq.pipelines.file.pipeline_file import read_pipeline
from orbitmq.pipelines.running.runner import Runner
from orbitmq.pipelines.running.state import CHECKPOINTS, OF_SINK
from tests.spark.killed_driver import Query
from tests.spark.kills import ROOT, Checkpoint
from tests.spark.pipelines.written_tables import catalog_properties, delta_rows, iceberg_rows
from tests.spark.topics import Topics

# From the start of a JVM to its first batches, on a busy machine.
START_TIMEOUT_S = 400
STARTS_MAX = 3
SERIALIZED_WHILE_CHANGED = "Illegal size"
# Enough for all but one of them.
FILE_BYTES_MAX = 2 << 20
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

    def rows(self, sink: str) -> list[dict[str, Any]]:
        if sink == "delta":
            return delta_rows(self.folder / "tables" / "orders")
        catalog = load_catalog("lake", **catalog_properties(self.folder))
        return iceberg_rows(catalog, "shop.orders")

    def checkpoint(self, sink: str) -> Checkpoint:
        folder = self.folder / "shop.state" / CHECKPOINTS / f"{OF_SINK}{sink}"
        return Checkpoint(Query(source={}, checkpoint=str(folder)))

    def run_with_small_files(self) -> str:
        """Run it by the command, on a machine that has no large files; returns what is wrong."""
        program = Path(sys.executable).with_name("orbitmq")
        done = subprocess.run(
            ["bash", "-c", f'ulimit -f {FILE_BYTES_MAX // 1024}; exec "$0" "$@"',
             program, "pipeline", "run", self.file, "--once"],
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
            check=False,
        )  # fmt: skip
        assert done.returncode == 1, done.stderr
        return done.stderr

    def run_to_be_killed(self, sink: str, moment: str) -> None:
        """Run it in a process that kills itself, with all that it has started, at a moment."""
        command = [sys.executable, "-m", "tests.spark.pipelines.killed_pipeline"]
        for _ in range(STARTS_MAX):
            done = subprocess.run(
                [*command, str(self.file), sink, moment],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=START_TIMEOUT_S,
                check=False,
                start_new_session=True,
            )
            if done.returncode == -signal.SIGKILL:
                return
            # Spark's own, as queries start beside each other on a busy machine.
            assert SERIALIZED_WHILE_CHANGED in done.stderr, done.stderr[-4000:]
        pytest.fail(f"{SERIALIZED_WHILE_CHANGED}, {STARTS_MAX} times")


@pytest.fixture
def shop(spark: SparkSession, topics: Topics, tmp_path: Path) -> Shop:
    return Shop(spark, topics, tmp_path)


def test_what_kills_and_a_full_disk_interrupt_is_there_once_in_the_end(shop: Shop) -> None:
    nothing, large = dict.fromkeys(READ), random.Random(1).randbytes(FILE_BYTES_MAX)

    shop.order(WHOLE, {"id": 2})
    shop.run_to_be_killed("delta", "files written")
    assert shop.checkpoint("delta").unfinished == {0}
    assert shop.rows("delta") == []

    shop.order({**WHOLE, "id": 3})
    shop.run_to_be_killed("iceberg", "committed")
    assert len(shop.checkpoint("iceberg").unfinished) == 1
    # Of the first batch at least, which may have been written by the run before.
    assert shop.rows("iceberg")[:2] == [READ, {**nothing, "id": 2}]

    shop.order({"id": 4, "raw": base64.b64encode(large).decode()})
    failed = shop.run_with_small_files()
    assert re.search(r"(delta|iceberg) failed: .*File too large", failed), failed
    for sink in ("delta", "iceberg"):
        assert 4 not in [row["id"] for row in shop.rows(sink)]

    shop.run()
    for sink in ("delta", "iceberg"):
        assert shop.rows(sink) == [
            READ,
            {**nothing, "id": 2},
            {**READ, "id": 3},
            {**nothing, "id": 4, "raw": large},
        ]
