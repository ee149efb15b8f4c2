"""Runs the items of an audit as tasks of Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from orbitmq.pipelines.auditing.tasks import ItemOptions, Outcome, examine
from orbitmq.pipelines.auditing.work import RANGE_BYTES, Cut, Item, shares

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Tasks for each processor at least, so that none waits long for the last.
_TASKS_PER_CORE: Final = 4
_COLUMN: Final = "outcome"


def examine_all(spark: SparkSession, items: Sequence[Item], options: ItemOptions) -> list[Outcome]:
    """Examine items in parallel; returns what was found for each."""
    if not items:
        return []
    dealt = deal(spark, items)

    def examine_shares(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                outcomes = [examine(item, options).encode() for item in dealt[number]]
                yield pa.RecordBatch.from_arrays([pa.array(outcomes, pa.string())], [_COLUMN])

    numbers = spark.range(0, len(dealt), 1, len(dealt))
    rows = numbers.mapInArrow(examine_shares, f"{_COLUMN} string").collect()
    return [Outcome.decode(row[_COLUMN]) for row in rows]


def deal(spark: SparkSession, items: Sequence[Cut]) -> list[list[Cut]]:
    """Deal items out to tasks: enough for all processors, and none too long."""
    cost = sum(item.cost for item in items)
    tasks_max = max(spark.sparkContext.defaultParallelism * _TASKS_PER_CORE, cost // RANGE_BYTES)
    return shares(items, tasks_max)
