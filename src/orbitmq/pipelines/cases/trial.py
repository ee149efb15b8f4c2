"""Runs a pipeline on the messages of a case, in clusters that have nothing else.

What is tested is the pipeline itself: sources read topics, steps run as streams. Only its sinks are
others: tables become files in a folder of the trial, topics are those of the empty clusters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, functions

from orbitmq.client import Admin, Message, Producer
from orbitmq.errors import SettingsError
from orbitmq.pipelines.cases.case_files import Case, Row, in_base64, readable
from orbitmq.pipelines.file.sources import MESSAGE_COLUMN
from orbitmq.pipelines.plan import (
    ParquetSink,
    Pipeline,
    Sink,
    Source,
    TopicSink,
    TopicSource,
)
from orbitmq.pipelines.running.runner import Runner
from orbitmq.pipelines.running.source_rows import REASON_COLUMN
from orbitmq.pipelines.running.table_log import TABLE_LOG
from orbitmq.spark.options.column_names import USUAL_COLUMNS

ROWS_MAX: Final = 100_000
_GROUP: Final = "orbitmq-pipeline-test"
_OF_A_TOPIC: Final = ("body", "keys", "tags")
_OF_QUARANTINE: Final = (REASON_COLUMN, "body", "keys", "tags")
# Other in each run.
_CHANGING: Final = {MESSAGE_COLUMN, *USUAL_COLUMNS} - {
    "body",
    "keys",
    "tags",
    "properties",
    "topic",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a case became, by sink and, for what went into quarantine, by source."""

    rows: Mapping[str, list[Row]]
    rejected: Mapping[str, list[Row]]


def name_servers_of(pipeline: Pipeline) -> list[str]:
    """The clusters that a pipeline uses; a trial needs another for each."""
    used = [one for one in (*pipeline.sources, *pipeline.sinks)
            if isinstance(one, TopicSource | TopicSink)]  # fmt: skip
    return list(dict.fromkeys(one.namesrv for one in used))


def run_case(
    pipeline: Pipeline,
    case: Case,
    *,
    spark: SparkSession,
    name_servers: Mapping[str, str],
    folder: Path,
) -> Outcome:
    """Run a case; `name_servers` are the empty clusters, by those that stand in the file."""
    tried = replace(
        pipeline,
        state=str(folder / "state"),
        quarantine=str(folder / "quarantine"),
        sources=tuple(_source(one, case, name_servers) for one in pipeline.sources),
        sinks=tuple(_sink(one, folder, name_servers) for one in pipeline.sinks),
    )
    for source in tried.sources:
        if isinstance(source, TopicSource):
            _fill(source, case)
    for sink in tried.sinks:
        if isinstance(sink, TopicSink):
            _create(sink.namesrv, sink.topic)
    Runner(pipeline=tried, spark=spark, is_once=True).run()
    return Outcome(
        rows={sink.name: _rows(sink, spark) for sink in tried.sinks},
        rejected={
            source.name: _messages(files, _OF_QUARANTINE)
            for source in tried.sources
            if isinstance(source, TopicSource) and source.may_reject
            for files in [_files(spark, f"{tried.quarantine}/{source.name}")]
        },
    )


def _source(source: Source, case: Case, name_servers: Mapping[str, str]) -> Source:
    if isinstance(source, TopicSource):
        return replace(source, namesrv=name_servers[source.namesrv], start="earliest")
    file = case.tables.get(source.name)
    if file is None:
        return source
    return replace(source, path=str(file), format="json", options={})


def _sink(sink: Sink, folder: Path, name_servers: Mapping[str, str]) -> Sink:
    if isinstance(sink, TopicSink):
        return replace(sink, namesrv=name_servers[sink.namesrv])
    return ParquetSink(
        name=sink.name, reads=sink.reads, path=str(folder / "sinks" / sink.name), partition_by=()
    )


def _create(namesrv: str, topic: str) -> None:
    with Admin(namesrv=namesrv) as admin:
        # One, so that messages stay in their order.
        admin.topics.create(topic, queues=1)


def _fill(source: TopicSource, case: Case) -> None:
    _create(source.namesrv, source.topic)
    with Producer(_GROUP, namesrv=source.namesrv) as producer:
        for message in case.messages.get(source.name, ()):
            producer.send(
                Message(
                    source.topic,
                    message.body,
                    keys=message.keys,
                    tags=message.tags,
                    properties=message.properties,
                )
            )


def _rows(sink: Sink, spark: SparkSession) -> list[Row]:
    if isinstance(sink, TopicSink):
        messages = (
            spark.read.format("rocketmq")
            .options(namesrvAddr=sink.namesrv, subscribe=sink.topic)
            .load()
        )
        return _messages(messages, _OF_A_TOPIC)
    assert isinstance(sink, ParquetSink)
    files = _files(spark, sink.path)
    if files is None:
        return []
    kept = files.drop(*_CHANGING)
    whole = functions.to_json(functions.struct("*"), {"ignoreNullFields": "false"})
    return [
        json.loads(row[0], parse_float=Decimal) for row in _bounded(kept.select(whole)).collect()
    ]


def _files(spark: SparkSession, path: str) -> DataFrame | None:
    """The rows of a table that a query wrote; None if it has not written any."""
    has_rows = any(one.suffix == ".parquet" for one in Path(path).glob("*"))
    return spark.read.parquet(path) if has_rows and Path(path, TABLE_LOG).is_dir() else None


def _messages(messages: DataFrame | None, columns: tuple[str, ...]) -> list[Row]:
    if messages is None:
        return []
    return [
        {name: _value(row[name]) for name in columns}
        for row in _bounded(messages.select(*columns)).collect()
    ]


def _value(value: Any) -> Any:
    if not isinstance(value, bytes | bytearray):
        return value
    body = readable(bytes(value))
    return in_base64(bytes(value)) if body is None else body


def _bounded(rows: DataFrame) -> DataFrame:
    """The rows of a case, which shall be few."""
    if rows.limit(ROWS_MAX + 1).count() > ROWS_MAX:
        raise SettingsError(
            f"a case became more than {ROWS_MAX:,} rows", hint="test with fewer messages"
        )
    return rows
