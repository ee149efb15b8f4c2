"""The part `sources:` of a pipeline file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast, get_args

from orbitmq.errors import OrbitError
from orbitmq.model.names import check_topic
from orbitmq.pipelines.file.avro import AVRO_EXAMPLE, read_avro
from orbitmq.pipelines.file.delta import delta_folder
from orbitmq.pipelines.file.fields import FieldReader
from orbitmq.pipelines.file.nodes import Fields, Items, Text
from orbitmq.pipelines.file.protobuf import PROTOBUF_EXAMPLE, read_protobuf
from orbitmq.pipelines.file.values import SIMPLE_TYPES, location, wrong_word_in_type
from orbitmq.pipelines.plan import (
    ChangeDecoding,
    ChangeFormat,
    Column,
    Decoded,
    Decoding,
    Expectation,
    Format,
    Source,
    TableFormat,
    TableSource,
    TopicSource,
    Watermark,
)
from orbitmq.pipelines.suggestions import suggestion

KINDS: Final = ("topic", "table")
# Formats whose schema says what the columns are, with what they need besides.
_BY_SCHEMA: Final = {"avro": AVRO_EXAMPLE, "protobuf": PROTOBUF_EXAMPLE}
_OF_CHANGES: Final = get_args(ChangeFormat)
FORMATS: Final = (*get_args(Format), *_BY_SCHEMA, *_OF_CHANGES)
_TIMESTAMPS: Final = ("millis", "micros", "nanos")
TABLE_FORMATS: Final = get_args(TableFormat)
# What a row of a decoded topic has beside its columns.
MESSAGE_COLUMN: Final = "message"
TEXT_COLUMN: Final = Column(name="text", type="string")
_STARTS: Final = ("earliest", "latest")
_NUMBER: Final = re.compile(r"[+-]?\d")
# Options of Spark's source that other fields stand for.
_OURS: Final = {
    "namesrvAddr": "as in namesrv: 127.0.0.1:9876",
    "subscribe": "as in topic: orders",
    "subscribePattern": "as in topic: orders",
    "assign": "as in topic: orders",
}
_OURS_WITH_START: Final = dict.fromkeys(
    ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"), "start says it"
)
# Decoding and quarantine need whole messages.
_OURS_WHEN_CHECKED: Final = dict.fromkeys(
    ("columns", "includeBody", "properties"), "it reads whole messages"
)
_OURS_OF_DECODING: Final = dict.fromkeys(
    ("mode", "columnNameOfCorruptRecord"), "what cannot be decoded goes into quarantine"
)
_OURS_OF_TABLE: Final = {"path": "as in table: tables/customers"}
# Names of columns that a running pipeline adds.
_RESERVED: Final = "_orbitmq_"


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the top of the file says for all."""

    folder: Path
    namesrv: str


def read_source(name: str, reader: FieldReader, defaults: Defaults) -> Source | None:
    """Read one source; None if it cannot be told what it is."""
    kind = one_kind(reader, KINDS)
    if kind is None:
        return None
    source = (_topic if kind == "topic" else _table)(name, reader, defaults)
    reader.end()
    return source


def one_kind(reader: FieldReader, kinds: tuple[str, ...]) -> str | None:
    """Which of the fields is there that say what a thing is."""
    found = [kind for kind in kinds if kind in reader]
    if len(found) == 1:
        return found[0]
    if found:
        reader.problems.add(
            reader.place_of(found[1]), f"{reader.what} has {' and '.join(found)}: it is one of them"
        )
        return None
    for name in reader.names:
        hint = suggestion(name, kinds)
        if hint.startswith("did"):
            reader.problems.add(
                reader.place_of(name), f"{reader.what} has no field {name!r}", hint=hint
            )
            return None
    reader.problems.add(reader.place, f"{reader.what} needs one of {', '.join(kinds)}")
    return None


def topic_of(reader: FieldReader) -> str:
    """The name of a topic."""
    topic = reader.required("topic", "orders")
    if topic:
        try:
            check_topic(topic)
        except OrbitError as error:
            reader.add("topic", str(error.args[0]), hint=error.hint)
    return topic


def namesrv_of(reader: FieldReader, defaults: Defaults) -> str:
    """The name servers of a topic: its own, or those of the file."""
    namesrv = reader.text("namesrv", defaults.namesrv)
    if not namesrv:
        reader.problems.add(
            reader.place_of("topic"),
            f"{reader.what} needs namesrv, or the file one for all",
            hint="as in namesrv: 127.0.0.1:9876",
        )
    return namesrv


def read_watermark(reader: FieldReader) -> Watermark | None:
    """How late rows may come."""
    if "watermark" not in reader:
        reader.node("watermark")
        return None
    fields = reader.fields("watermark", f"watermark of {reader.what}")
    column = fields.required("column", "placed")
    delay_ms = fields.duration("delay")
    if "delay" not in fields:
        fields.required("delay", "10 minutes")
    fields.end()
    return Watermark(column=column, delay_ms=delay_ms)


def _topic(name: str, reader: FieldReader, defaults: Defaults) -> TopicSource:
    start = reader.text("start", "earliest")
    if start not in _STARTS and not _NUMBER.match(start):
        reader.add(
            "start",
            f"start cannot be {start!r}",
            hint=f"{suggestion(start, _STARTS)} Or a time: 2026-01-31T12:30:00Z",
        )
    ours = _OURS
    if "start" in reader:
        ours = ours | _OURS_WITH_START
    if "decode" in reader or "expect" in reader:
        ours = ours | _OURS_WHEN_CHECKED
    return TopicSource(
        name=name,
        topic=topic_of(reader),
        namesrv=namesrv_of(reader, defaults),
        start=start,
        options=reader.options("options", ours=ours),
        decoding=_decoding(reader, defaults),
        expectations=_expectations(reader),
        watermark=read_watermark(reader),
    )


def _table(name: str, reader: FieldReader, defaults: Defaults) -> TableSource:
    chosen = reader.choice("format", TABLE_FORMATS, "parquet")
    if chosen == "delta":
        for field in ("columns", "options"):
            if field in reader:
                problem = f"the log of a Delta table says what is in it, so it has no {field}"
                reader.problems.add(reader.place_of(field), problem)
        path = delta_folder(reader, "table", defaults.folder)
    else:
        path = location(reader.required("table", "tables/customers"), defaults.folder)
    return TableSource(
        name=name,
        path=path,
        format=cast("TableFormat", chosen),
        columns=_columns(reader),
        options=reader.options("options", ours=_OURS_OF_TABLE),
    )


def _decoding(reader: FieldReader, defaults: Defaults) -> Decoded | None:
    has_columns = "columns" in reader
    node = reader.node("decode")
    if node is None:
        if has_columns:
            reader.problems.add(
                reader.place_of("columns"),
                f"{reader.what} has columns, and does not say how bodies become columns",
                hint="as in decode: json",
            )
        reader.node("columns")
        return None
    if isinstance(node, Fields):
        fields = reader.fields("decode", f"decode of {reader.what}")
        chosen = fields.choice("format", FORMATS, "json")
    else:
        fields = None
        chosen = reader.choice("decode", FORMATS, "json")
    if chosen in _BY_SCHEMA:
        return _by_schema(chosen, reader, fields, defaults)
    decoding = (_of_changes if chosen in _OF_CHANGES else _plain)(chosen, reader, fields)
    if fields is not None:
        fields.end()
    return decoding


def _by_schema(
    chosen: str, reader: FieldReader, fields: FieldReader | None, defaults: Defaults
) -> Decoded | None:
    _refuse_columns(reader)
    if fields is None:
        reader.add("decode", f"{chosen} needs a schema", hint=_BY_SCHEMA[chosen])
        return None
    decoding = (read_avro if chosen == "avro" else read_protobuf)(fields, defaults.folder)
    _check_names(decoding.columns, reader)
    return decoding


def _plain(chosen: str, reader: FieldReader, fields: FieldReader | None) -> Decoding:
    options = fields.options("options", ours=_OURS_OF_DECODING) if fields is not None else {}
    if chosen == "text":
        _columns(reader)
        if "columns" in reader:
            reader.add("columns", "a text has one column, text", hint="leave columns out")
    columns = (TEXT_COLUMN,) if chosen == "text" else _needed_columns(reader)
    return Decoding(format=cast("Format", chosen), columns=columns, options=options)


def _of_changes(chosen: str, reader: FieldReader, fields: FieldReader | None) -> ChangeDecoding:
    timestamps = ""
    if fields is not None and chosen == "debezium" and "timestamps" in fields:
        timestamps = fields.choice("timestamps", _TIMESTAMPS, "millis")
    return ChangeDecoding(
        format=cast("ChangeFormat", chosen),
        row=_needed_columns(reader, are_inside=True),
        timestamps=timestamps,
    )


def _needed_columns(reader: FieldReader, *, are_inside: bool = False) -> tuple[Column, ...]:
    columns = _columns(reader, are_inside=are_inside)
    if not columns and "columns" not in reader:
        reader.problems.add(
            reader.place_of("decode"),
            f"{reader.what} needs columns",
            hint="as in columns: {id: bigint, item: string}",
        )
    return columns


def _refuse_columns(reader: FieldReader) -> None:
    if reader.node("columns") is not None:
        problem = "the fields of the schema are the columns"
        reader.problems.add(reader.place_of("columns"), problem, hint="leave columns out")


def _check_names(columns: tuple[Column, ...], reader: FieldReader) -> None:
    """Report fields of a schema that cannot be columns: their names differ in more than case."""
    names = [column.name.lower() for column in columns]
    for column in columns:
        if not can_be_column(column.name) or names.count(column.name.lower()) > 1:
            reader.add(
                "decode", f"the schema has a field {column.name!r}, which no column can be named"
            )


def can_be_column(name: str) -> bool:
    """Whether a field of a body may become a column of that name."""
    lower = name.lower()
    return bool(name) and lower != MESSAGE_COLUMN and not lower.startswith(_RESERVED)


def _columns(reader: FieldReader, *, are_inside: bool = False) -> tuple[Column, ...]:
    """The columns that a file pins; `are_inside` for those of a struct, beside which no other is."""
    found: dict[str, Column] = {}
    for name, text in reader.mapping("columns").items():
        wrong = wrong_word_in_type(text.value)
        if wrong is not None:
            kinds = (*SIMPLE_TYPES, "array", "map", "struct")
            reader.problems.add(
                text.place,
                f"column {name} of {reader.what} cannot be {text.value!r}: "
                f"{wrong!r} is not expected",
                hint=suggestion(wrong, kinds),
            )
        if name.lower() in found or (name.lower() == MESSAGE_COLUMN and not are_inside):
            other = found[name.lower()].name if name.lower() in found else "what the message has"
            reader.problems.add(text.place, f"column {name} has the name of {other}")
        elif not can_be_column(name) and not are_inside:
            reader.problems.add(
                text.place, f"a column cannot be named {name!r}", hint="take another name"
            )
        found[name.lower()] = Column(name=name, type=text.value)
    return tuple(found.values())


def _expectations(reader: FieldReader) -> tuple[Expectation, ...]:
    node = reader.node("expect")
    if isinstance(node, Items | Text):
        reader.add(
            "expect", "expect has a name for each condition", hint="as in positive: amount > 0"
        )
        return ()
    return tuple(
        Expectation(name=name, condition=text.value)
        for name, text in reader.mapping("expect").items()
    )
