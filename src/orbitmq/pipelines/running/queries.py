"""The streaming queries of a pipeline: one for each sink and each quarantine.

A query has a checkpoint of its own in the pipeline's state folder, so it resumes where it stopped,
whatever became of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from orbitmq.errors import SettingsError
from orbitmq.pipelines.plan import (
    ConsoleSink,
    DeltaSink,
    IcebergSink,
    JdbcSink,
    ParquetSink,
    Pipeline,
    Sink,
    TopicSink,
)
from orbitmq.pipelines.running.frames import Frames
from orbitmq.pipelines.running.spark_errors import check_can_append, named
from orbitmq.pipelines.running.state import CHECKPOINTS, OF_QUARANTINE, OF_SINK, QUARANTINE_OF
from orbitmq.pipelines.suggestions import suggestion
from orbitmq.pipelines.tables.batches import Table, batch_writer


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedQuery:
    """A query that can be started, again if need be."""

    name: str
    checkpoint: str
    # The table of Spark's own files that it writes, if it does.
    table: str | None
    start: Callable[[], StreamingQuery]


def queries_of(pipeline: Pipeline, frames: Frames, *, is_once: bool) -> list[PlannedQuery]:
    """Plan the queries of a pipeline; `is_once` for those that end when all there is is done."""
    planning = _Planning(pipeline, is_once=is_once)
    planned = []
    for sink in pipeline.sinks:
        with named(f"sink {sink.name}"):
            planned.append(planning.of_sink(sink, frames.by_name[sink.reads]))
    for source, rejected in frames.rejected.items():
        name, path = f"{QUARANTINE_OF}{source}", f"{pipeline.quarantine}/{source}"
        writer = rejected.writeStream.format("parquet").option("path", path)
        checkpoint = planning.checkpoint(f"{OF_QUARANTINE}{source}")
        planned.append(planning.planned(name, checkpoint, writer, table=path))
    return planned


@dataclass(frozen=True, slots=True)
class _Planning:
    pipeline: Pipeline
    _: KW_ONLY
    is_once: bool

    def of_sink(self, sink: Sink, rows: DataFrame) -> PlannedQuery:
        if not rows.isStreaming:
            raise SettingsError(
                f"sink {sink.name} reads {sink.reads}, which has no topic in it",
                hint="a pipeline carries what arrives in topics; copy tables with Spark itself",
            )
        check_can_append(rows, sink=sink.name)
        table = None
        checkpoint = self.checkpoint(f"{OF_SINK}{sink.name}")
        if isinstance(sink, ParquetSink):
            table = sink.path
            _check_unique(sink, [column.lower() for column in rows.columns], rows)
            writer = rows.writeStream.format("parquet").option("path", sink.path)
            if sink.partition_by:
                _check_columns(sink, rows)
                writer = writer.partitionBy(*sink.partition_by)
        elif isinstance(sink, DeltaSink | IcebergSink | JdbcSink):
            _check_unique(sink, [column.lower() for column in rows.columns], rows)
            if isinstance(sink, DeltaSink):
                _check_columns(sink, rows)
            writer = self._to_table(rows, sink, checkpoint)
        elif isinstance(sink, TopicSink):
            if not sink.body:
                _check_unique(sink, rows.columns, rows)
            writer = _to_topic(rows, sink)
        else:
            writer = _to_console(rows, sink)
        return self.planned(sink.name, checkpoint, writer, table=table)

    def checkpoint(self, folder: str) -> str:
        """Where the checkpoint of a query is."""
        return f"{self.pipeline.state}/{CHECKPOINTS}/{folder}"

    def _to_table(
        self, rows: DataFrame, sink: DeltaSink | IcebergSink | JdbcSink, checkpoint: str
    ) -> DataStreamWriter:
        """The rows into a table that records which batches it has."""
        name = f"{self.pipeline.name}/{sink.name}"
        table = _opened(sink, name, rows)
        write = batch_writer(table, sink=name, target=sink.target, checkpoint=checkpoint)
        return rows.writeStream.foreachBatch(write)

    def planned(
        self, name: str, checkpoint: str, writer: DataStreamWriter, *, table: str | None
    ) -> PlannedQuery:
        """A query with its checkpoint, and maybe a table that it writes."""
        writer = writer.queryName(name).option("checkpointLocation", checkpoint)
        if self.is_once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self.pipeline.interval_ms} milliseconds")
        return PlannedQuery(name=name, checkpoint=checkpoint, table=table, start=writer.start)


def _opened(sink: DeltaSink | IcebergSink | JdbcSink, name: str, rows: DataFrame) -> Table:
    """The table of a sink, once it is clear that rows fit it."""
    # Each needs an extra, which others need not have.
    if isinstance(sink, DeltaSink):
        from orbitmq.pipelines.tables.delta import DeltaLake

        delta = DeltaLake(sink)
        delta.check(rows.schema)
        return delta
    if isinstance(sink, IcebergSink):
        from orbitmq.pipelines.tables.iceberg import Iceberg

        iceberg = Iceberg(sink)
        iceberg.check(rows.schema)
        return iceberg
    from orbitmq.pipelines.tables.postgres.sink_table import sink_table

    return sink_table(sink, name, rows.schema)


def _check_columns(sink: ParquetSink | DeltaSink, rows: DataFrame) -> None:
    """Raise SettingsError if rows are parted by a column that is not there."""
    there = {column.lower() for column in rows.columns}
    for column in sink.partition_by:
        if column.lower() not in there:
            raise SettingsError(
                f"sink {sink.name}: {sink.reads} has no column {column} to partition by",
                hint=suggestion(column, rows.columns),
            )


def _check_unique(sink: Sink, names: list[str], rows: DataFrame) -> None:
    """Raise SettingsError if two columns have one name: nobody could read what is written."""
    seen: set[str] = set()
    for name, column in zip(names, rows.columns, strict=True):
        if name in seen:
            raise SettingsError(
                f"sink {sink.name}: {sink.reads} has two columns {column} "
                "or of names that differ in case",
                hint="name one of them anew, as in SELECT item AS other_item",
            )
        seen.add(name)


def _to_topic(rows: DataFrame, sink: TopicSink) -> DataStreamWriter:
    """The rows as messages: all columns as JSON, unless the sink says what the body is."""
    body = functions.expr(sink.body) if sink.body else functions.to_json(functions.struct("*"))
    columns: list[Column] = [body.alias("body")]
    for name, expression in (
        ("keys", sink.keys),
        ("tags", sink.tags),
        ("shardingKey", sink.sharding_key),
    ):
        if expression:
            columns.append(functions.expr(expression).cast("string").alias(name))
    return (
        rows.select(*columns)
        .writeStream.format("rocketmq")
        .options(
            namesrvAddr=sink.namesrv,
            topic=sink.topic,
            delivery="exactlyOnce" if sink.is_exactly_once else "atLeastOnce",
            **sink.options,
        )
    )


def _to_console(rows: DataFrame, sink: ConsoleSink) -> DataStreamWriter:
    return (
        rows.writeStream.format("console").option("truncate", "false").option("numRows", sink.rows)
    )
