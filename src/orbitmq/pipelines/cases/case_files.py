"""The folder of a case: messages and rows as JSON, one a line.

    shop.cases/                     beside shop.yaml
        expensive orders/           a case
            sources/orders.jsonl    messages of a topic, or rows of a table
            expected/alerts.jsonl   rows of a sink
            expected/orders.quarantine.jsonl

A body that is an object, a list or a number is JSON; a text is the body itself, and `body_base64` is
for bytes that are no text.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from orbitmq.errors import SettingsError
from orbitmq.pipelines.plan import Pipeline, TableSource, TopicSource
from orbitmq.pipelines.suggestions import suggestion

Row = Mapping[str, Any]

LINES_MAX: Final = 100_000
FILE_BYTES_MAX: Final = 64 * 1024 * 1024
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ .-]{0,99}")
_SUFFIX: Final = ".jsonl"
_QUARANTINE: Final = ".quarantine"
_FIELDS: Final = ("body", "body_base64", "keys", "tags", "properties")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedMessage:
    """A message that a case sends to a topic."""

    body: bytes
    keys: tuple[str, ...] = ()
    tags: str = ""
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What goes in, and what shall come out."""

    name: str
    # By source: messages of topics, and files with rows instead of tables.
    messages: Mapping[str, Sequence[RecordedMessage]]
    tables: Mapping[str, Path]
    # By sink, and by source for what goes into quarantine.
    rows: Mapping[str, Sequence[Row]]
    rejected: Mapping[str, Sequence[Row]]


def folder_of(pipeline: Pipeline) -> Path:
    """Where the cases of a pipeline are."""
    return pipeline.file.with_suffix(".cases")


def check_name(name: str) -> None:
    """Raise SettingsError if a case cannot have this name: it is that of a folder."""
    if not _NAME.fullmatch(name):
        raise SettingsError(
            f"a case cannot be named {name!r}",
            hint="letters, digits, blanks, _, - and ., at most 100",
        )


def case_names(pipeline: Pipeline) -> list[str]:
    """The names of all cases of a pipeline."""
    folder = folder_of(pipeline)
    return sorted(one.name for one in folder.iterdir() if one.is_dir()) if folder.is_dir() else []


def read_case(pipeline: Pipeline, name: str) -> Case:
    """Read a case; raises SettingsError with file and line if something is wrong with it."""
    folder = folder_of(pipeline) / name
    topics = {one.name for one in pipeline.sources if isinstance(one, TopicSource)}
    tables = {one.name for one in pipeline.sources if isinstance(one, TableSource)}
    given = dict(_files(folder / "sources", topics | tables))
    if not given.keys() & topics:
        raise SettingsError(
            f"{folder / 'sources'} has no messages",
            hint=f"record some: orbitmq pipeline record {pipeline.file} '{name}'",
        )
    sinks = {sink.name for sink in pipeline.sinks}
    quarantines = {f"{one.name}{_QUARANTINE}" for one in pipeline.sources if one.name in topics}
    expected = dict(_files(folder / "expected", sinks | quarantines))
    return Case(
        name=name,
        messages={
            source: [_message(one, place) for one, place in _lines(file)]
            for source, file in given.items()
            if source in topics
        },
        tables={source: file for source, file in given.items() if source in tables},
        rows={sink: _rows(file) for sink, file in expected.items() if sink in sinks},
        rejected={
            one.removesuffix(_QUARANTINE): _rows(file)
            for one, file in expected.items()
            if one in quarantines
        },
    )


def write_messages(
    pipeline: Pipeline, name: str, source: str, messages: Iterable[RecordedMessage]
) -> Path:
    """Write the messages of a source; returns the file."""
    return _write(
        folder_of(pipeline) / name / "sources" / f"{source}{_SUFFIX}", map(_as_fields, messages)
    )


def write_expected(
    pipeline: Pipeline,
    name: str,
    rows: Mapping[str, Iterable[Row]],
    rejected: Mapping[str, Iterable[Row]],
) -> None:
    """Replace what a case expects."""
    folder = folder_of(pipeline) / name / "expected"
    for sink, its in rows.items():
        _write(folder / f"{sink}{_SUFFIX}", its)
    for source, its in rejected.items():
        _write(folder / f"{source}{_QUARANTINE}{_SUFFIX}", its)


def _files(folder: Path, names: set[str]) -> Iterator[tuple[str, Path]]:
    for file in sorted(folder.glob("*")) if folder.is_dir() else ():
        name = file.name.removesuffix(_SUFFIX)
        if file.name == name or name not in names:
            raise SettingsError(
                f"{file} belongs to nothing in the pipeline",
                hint=f"it is named NAME{_SUFFIX}; {suggestion(name, sorted(names))}",
            )
        yield name, file


def _lines(file: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """The objects of a file, each with its place for errors."""
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise SettingsError(f"{file} has more than {FILE_BYTES_MAX:,} bytes")
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} cannot be read: {error}") from error
    if len(lines) > LINES_MAX:
        raise SettingsError(f"{file} has more than {LINES_MAX:,} lines")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"{file}:{number}"
        try:
            # Exact: a price of 1.10 is no binary fraction.
            found = json.loads(line, parse_float=Decimal)
        except (ValueError, RecursionError) as error:
            raise SettingsError(f"{place}: this is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise SettingsError(f"{place}: a line is an object", hint='as in {"id": 1}')
        yield found, place


def _rows(file: Path) -> list[Row]:
    rows: list[Row] = []
    for row, place in _lines(file):
        if rows and row.keys() != rows[0].keys():
            raise SettingsError(
                f"{place}: this row has other columns than the first: {', '.join(row)}",
                hint="a file names the columns that are compared, the same in each row",
            )
        rows.append(row)
    return rows


def _message(fields: dict[str, Any], place: str) -> RecordedMessage:
    for name in fields:
        if name not in _FIELDS:
            raise SettingsError(
                f"{place}: a message has no {name!r}", hint=suggestion(name, _FIELDS)
            )
    if ("body" in fields) == ("body_base64" in fields):
        raise SettingsError(f"{place}: a message has one of body and body_base64")
    keys, tags = fields.get("keys", []), fields.get("tags", "")
    properties = fields.get("properties", {})
    keys = [keys] if isinstance(keys, str) else keys
    if (
        not isinstance(tags, str)
        or not _are_texts(keys, list)
        or not _are_texts(properties, dict)
        or not _are_texts(list(properties.values()), list)
    ):
        raise SettingsError(f"{place}: keys, tags and values of properties are texts")
    return RecordedMessage(
        body=_body(fields, place), keys=tuple(keys), tags=tags, properties=properties
    )


def _are_texts(found: Any, kind: type[list[Any]] | type[dict[str, Any]]) -> bool:
    return isinstance(found, kind) and all(isinstance(one, str) for one in found)


def _body(fields: dict[str, Any], place: str) -> bytes:
    if "body" in fields:
        body = fields["body"]
        return (body if isinstance(body, str) else as_json(body)).encode()
    try:
        return base64.b64decode(fields["body_base64"], validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise SettingsError(f"{place}: body_base64 cannot be decoded: {error}") from error


def _as_fields(message: RecordedMessage) -> dict[str, Any]:
    body = readable(message.body)
    fields: dict[str, Any] = (
        {"body_base64": in_base64(message.body)} if body is None else {"body": body}
    )
    if message.keys:
        fields["keys"] = list(message.keys)
    if message.tags:
        fields["tags"] = message.tags
    if message.properties:
        fields["properties"] = dict(message.properties)
    return fields


def in_base64(body: bytes) -> str:
    """Bytes that are no text."""
    return base64.b64encode(body).decode()


def readable(body: bytes) -> Any:
    """A body as people read it best, JSON or text; None if it is neither."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    try:
        found = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError):
        return text
    # A text if anything but white space would change: fields that are there twice, say.
    is_same = isinstance(found, dict | list) and text in {as_json(found), as_json(found, gap=" ")}
    return found if is_same else text


def as_json(value: Any, *, gap: str = "") -> str:
    """JSON on one line, with numbers as they were read."""
    if isinstance(value, Mapping):
        fields = (f"{json.dumps(name, ensure_ascii=False)}:{gap}{as_json(one, gap=gap)}"
                  for name, one in value.items())  # fmt: skip
        return f"{{{f',{gap}'.join(fields)}}}"
    if isinstance(value, list | tuple):
        return f"[{f',{gap}'.join(as_json(one, gap=gap) for one in value)}]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def _write(file: Path, rows: Iterable[Row]) -> Path:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{as_json(row, gap=' ')}\n" for row in rows), encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{file} is not written: {error}") from error
    return file
