"""Streaming queries for tests, with their rows kept by batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.waiting import wait_until

# Far more than a query takes, even on a busy machine.
QUERY_TIMEOUT_S = 240

# Spark gives the process of a source ten seconds to start, even on a busy machine.
CAME_UP_TOO_SLOWLY = "failed to connect back"
STARTS_MAX = 4


def started(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query, again if the machine was too busy; returns once it runs, or has ended."""
    query = start()
    for _ in range(STARTS_MAX - 1):
        _await_source(query)
        if CAME_UP_TOO_SLOWLY not in str(query.exception()):
            break
        query = start()
    return query


def _await_source(query: StreamingQuery) -> None:
    """Return when a query has its source, or has ended."""
    wait_until(
        lambda: not query.isActive or "Initializing" not in query.status["message"],
        timeout_s=QUERY_TIMEOUT_S,
        what="a source to come up",
    )


class Stream:
    """A query from topics into memory; runs again with the same checkpoint."""

    def __init__(
        self,
        spark: SparkSession,
        namesrv: str,
        checkpoint: Path,
        *,
        change: Callable[[DataFrame], DataFrame] = lambda rows: rows,
        in_batch: Callable[[int], None] = lambda _batch: None,
        **options: str | int,
    ) -> None:
        """Prepare it; `options` are those of the source, `in_batch` is called within each batch."""
        self._spark = spark
        self._checkpoint = checkpoint
        self._change = change
        self._in_batch = in_batch
        self.options: dict[str, str | int] = {"namesrvAddr": namesrv, **options}
        self.batches: dict[int, list[Row]] = {}

    @property
    def bodies(self) -> list[str]:
        """The rows read, by batch."""
        return [bytes(row["body"]).decode() for rows in self.batches.values() for row in rows]

    @property
    def sizes(self) -> list[int]:
        """How many rows each batch had."""
        return [len(rows) for rows in self.batches.values()]

    def start(self, **trigger: Any) -> StreamingQuery:
        """Start it; without a trigger it makes batches as fast as it can."""
        return started(lambda: self._start(trigger))

    def _start(self, trigger: dict[str, Any]) -> StreamingQuery:
        reader = self._spark.readStream.format("rocketmq").options(**self.options)
        writer = (
            self._change(reader.load())
            .writeStream.foreachBatch(self._keep)
            .option("checkpointLocation", str(self._checkpoint))
        )
        return (writer.trigger(**trigger) if trigger else writer).start()

    def run(self) -> None:
        """Read what is available, and end."""
        query = self.start(availableNow=True)
        try:
            assert query.awaitTermination(QUERY_TIMEOUT_S), "the query does not end"
        finally:
            query.stop()

    def _keep(self, rows: DataFrame, batch: int) -> None:
        self._in_batch(batch)
        # A repeated batch replaces its first attempt.
        self.batches[batch] = rows.collect()
