"""A Spark driver to be killed: `python -m tests.spark.killed_driver QUERIES`.

QUERIES is a list in JSON, a `Query` each. It runs until it is killed.
"""

from __future__ import annotations

import logging
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from orbitmq.spark import session
from tests.spark.conftest import SMALL_JVM
from tests.waiting import wait_until

log = logging.getLogger(__name__)

# If the test that should kill it is gone, it ends on its own.
LIFE_S = 1200
BEGINNINGS_MAX = 100
# One, so that a failing task has written all rows before.
ROWS_AT_ONCE = 1


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A query from topics to somewhere."""

    source: dict[str, str]
    checkpoint: str
    # Spark's name of the sink; without one, the first batch is never done. There can be
    # one such query, the last.
    sink: str = ""
    sink_options: dict[str, str] = {}
    columns: list[str] = []
    # Number of tasks that shuffle rows, in another order at each attempt; one of them fails in
    # its first attempt. 0 leaves rows unchanged.
    shuffle: int = 0

    def rows(self, spark: SparkSession) -> DataFrame:
        """The rows that go into the sink."""
        rows = spark.readStream.format("rocketmq").options(**self.source).load()
        rows = rows.select(*self.columns) if self.columns else rows
        if not self.shuffle:
            return rows
        unruly = _unruly(fails_in_sink=self.sink == "rocketmq")
        return rows.repartition(self.shuffle).mapInArrow(unruly, rows.schema)


def _unruly(
    *, fails_in_sink: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Changes the order of rows at every attempt, and fails one task of a batch in its first."""

    # Within another, since Spark's workers cannot import this module.
    def unruly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import random

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        schema = None
        for batch in batches:
            schema = batch.schema
            yield batch.take(pa.array(random.sample(range(len(batch)), len(batch))))
        if context.partitionId() or context.attemptNumber():
            return
        if not fails_in_sink or schema is None:
            raise RuntimeError("made to fail at the first try")
        # No broker accepts a row without a body; those before it are staged by then.
        yield pa.RecordBatch.from_pylist([{"keys": "refused", "body": b""}], schema=schema)

    return unruly


def start(spark: SparkSession, query: Query, **trigger: Any) -> StreamingQuery:
    """Start one of the queries; without a trigger it makes batches as fast as it can."""
    writer = query.rows(spark).writeStream.option("checkpointLocation", query.checkpoint)
    if query.sink:
        writer = writer.format(query.sink).options(**query.sink_options)
    else:
        writer = writer.foreachBatch(_never_done)
    return (writer.trigger(**trigger) if trigger else writer).start()


def _never_done(rows: DataFrame, batch: int) -> None:
    if rows.isEmpty():
        raise RuntimeError(f"batch {batch} has no rows: none came while it was planned")
    threading.Event().wait(LIFE_S)


def _begin_until_there_are_rows(spark: SparkSession, query: Query) -> None:
    """Start a query whose first batch is never done, from its beginning while that has no rows."""
    for _ in range(BEGINNINGS_MAX):
        try:
            start(spark, query).awaitTermination(LIFE_S)
        except StreamingQueryException as error:
            log.warning("restarted: %s", error)
        shutil.rmtree(query.checkpoint, ignore_errors=True)


def _await_first_batch(started: StreamingQuery) -> None:
    """Return when a query is up: Spark allows ten seconds, too few for two at a time."""
    wait_until(
        lambda: started.lastProgress is not None or not started.isActive,
        timeout_s=LIFE_S,
        what="a first batch",
    )


def main(queries: list[Query]) -> None:
    """Run queries until something ends this process."""
    warehouse = Path(queries[0].checkpoint) / "warehouse"
    spark = session(
        "killed driver",
        cores=2,
        settings={
            "spark.sql.warehouse.dir": str(warehouse),
            "spark.driver.extraJavaOptions": SMALL_JVM,
            "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_AT_ONCE),
        },
    )
    for query in queries:
        if not query.sink:
            _begin_until_there_are_rows(spark, query)
            return
        started = start(spark, query)
        if query is not queries[-1]:
            _await_first_batch(started)
    spark.streams.awaitAnyTermination(LIFE_S)


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=list[Query]))
