"""The part `sinks:` of a pipeline file."""

from __future__ import annotations

from typing import Final

from orbitmq.pipelines.file.delta import delta_folder
from orbitmq.pipelines.file.fields import FieldReader
from orbitmq.pipelines.file.iceberg import read_iceberg
from orbitmq.pipelines.file.jdbc import read_jdbc
from orbitmq.pipelines.file.sources import Defaults, namesrv_of, one_kind, topic_of
from orbitmq.pipelines.file.steps import KnownNames
from orbitmq.pipelines.file.values import location
from orbitmq.pipelines.plan import ConsoleSink, DeltaSink, ParquetSink, Sink, TopicSink

KINDS: Final = ("parquet", "delta", "iceberg", "jdbc", "topic", "console")
GUARANTEES: Final = ("exactly-once", "at-least-once")
# What a table does with columns that it lacks.
SCHEMA_RULES: Final = ("fixed", "add-columns")
_CONSOLE_ROWS: Final = 20
# Options of Spark's sink that other fields stand for.
_OURS: Final = {
    "namesrvAddr": "as in namesrv: 127.0.0.1:9876",
    "topic": "as in topic: alerts",
    "delivery": "as in guarantee: at-least-once",
    "writeId": "the checkpoint names the batches",
    "checkpointLocation": "state says where checkpoints are",
}


def read_sink(name: str, reader: FieldReader, defaults: Defaults, known: KnownNames) -> Sink | None:
    """Read one sink; None if it cannot be told what it is."""
    kind = one_kind(reader, KINDS)
    if kind is None:
        return None
    reads = _reads(reader, known)
    if kind != "jdbc":
        _refuse_keys(kind, reader)
    sink: Sink
    if kind == "parquet":
        sink = ParquetSink(
            name=name,
            reads=reads,
            path=location(reader.required("parquet", "tables/orders"), defaults.folder),
            partition_by=_partition_by(reader),
        )
    elif kind == "delta":
        sink = _delta(name, reads, reader, defaults)
    elif kind == "iceberg":
        sink = read_iceberg(name, reads, reader, adds_columns=_adds_columns(reader))
    elif kind == "jdbc":
        sink = read_jdbc(name, reads, reader, defaults, adds_columns=_adds_columns(reader))
    elif kind == "topic":
        sink = _topic(name, reads, reader, defaults)
    else:
        reader.text("console")
        sink = ConsoleSink(name=name, reads=reads, rows=reader.number("rows", _CONSOLE_ROWS))
    reader.end()
    return sink


def _partition_by(reader: FieldReader) -> tuple[str, ...]:
    names = reader.texts("partition_by")
    if len({name.lower() for name in names}) < len(names):
        reader.add("partition_by", f"{reader.what} is partitioned by a column twice")
    return names


def _delta(name: str, reads: str, reader: FieldReader, defaults: Defaults) -> DeltaSink:
    return DeltaSink(
        name=name,
        reads=reads,
        path=delta_folder(reader, "delta", defaults.folder),
        partition_by=_partition_by(reader),
        adds_columns=_adds_columns(reader),
    )


def _refuse_keys(kind: str, reader: FieldReader) -> None:
    """A topic has `keys`, which are another thing."""
    for name in ("apply",) if kind == "topic" else ("key", "apply"):
        if reader.node(name) is not None:
            reader.problems.add(
                reader.place_of(name),
                f"{reader.what} only adds rows, so it cannot have {name}",
                hint="of all sinks, jdbc alone replaces and deletes rows yet",
            )


def _adds_columns(reader: FieldReader) -> bool:
    return reader.choice("schema", SCHEMA_RULES, SCHEMA_RULES[0]) != SCHEMA_RULES[0]


def _topic(name: str, reads: str, reader: FieldReader, defaults: Defaults) -> TopicSink:
    guarantee = reader.choice("guarantee", GUARANTEES, GUARANTEES[0])
    return TopicSink(
        name=name,
        reads=reads,
        topic=topic_of(reader),
        namesrv=namesrv_of(reader, defaults),
        body=reader.text("body"),
        keys=reader.text("keys"),
        tags=reader.text("tags"),
        sharding_key=reader.text("sharding_key"),
        is_exactly_once=guarantee == GUARANTEES[0],
        options=reader.options("options", ours=_OURS),
    )


def _reads(reader: FieldReader, known: KnownNames) -> str:
    given = reader.places("from")
    if not given:
        reader.problems.add(reader.place, f"{reader.what} needs from", hint="as in from: orders")
        return ""
    if len(given) > 1:
        reader.add("from", f"{reader.what} reads one thing", hint="put the others into a step")
    return known.resolve(given[0].value, reader, given[0].place) or ""
