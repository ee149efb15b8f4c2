"""The benchmark of Spark measures what it says, with few rows and without Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.spark_kafka import SMOKE, Bench, Processes, children, running_sides, summary, table


@pytest.mark.campaign
def test_every_side_is_read_and_written(spark: SparkSession, tmp_path: Path) -> None:
    of_spark = children()
    with running_sides(tmp_path, with_kafka=False) as sides:
        bench = Bench(spark, sides, tmp_path, SMOKE, Processes(children() - of_spark))
        bench.prepare()

        rows = summary(bench.measure())

    ours, files = {"OrbitMQ, ASYNC_FLUSH", "OrbitMQ, SYNC_FLUSH"}, {"OrbitMQ, store scan"}
    assert _sides_of(rows, "batch read, 128 B") == ours | files | {"Parquet"}
    assert _sides_of(rows, "streaming read, 1 KiB") == ours
    assert _sides_of(rows, "streaming read, steady, 1 KiB") == ours
    assert _sides_of(rows, "write, 1 KiB") == ours | {"Parquet"}
    assert _sides_of(rows, "micro-batches of 4 rows") == ours
    assert all(row["figures"].get("cpu_us", [1])[0] > 0 for row in rows)
    assert len(table(rows).splitlines()) == 2 + len(rows)


def _sides_of(rows: list[dict[str, str]], workload: str) -> set[str]:
    return {row["side"] for row in rows if row["workload"] == workload}
