"""A first pipeline file for a topic, by what its newest messages look like."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from orbitmq.pipelines.file.sources import can_be_column

# More than enough to see which columns there are.
SAMPLE_MAX: Final = 1000
_FIELDS_MAX: Final = 200
_DEPTH_MAX: Final = 8
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_]+")
_LONG_MAX: Final = 2**63


def draft(namesrv: str, topic: str, bodies: Sequence[bytes]) -> str:
    """The text of a pipeline file that brings a topic into a table."""
    name = _NOT_IN_NAMES.sub("_", topic).strip("_") or "topic"
    if name[0].isdigit():
        name = f"t{name}"
    decoding, note = _decoding(bodies)
    return "\n".join(
        [
            f"# {note}",
            f"name: {name}",
            f"namesrv: {namesrv}",
            "",
            "sources:",
            f"  {name}:",
            f"    topic: {_quoted(topic)}",
            *(f"    {line}" for line in decoding),
            "",
            "sinks:",
            "  table:",
            f"    from: {name}",
            f"    parquet: tables/{name}",
            "",
        ]
    )


def _decoding(bodies: Sequence[bytes]) -> tuple[list[str], str]:
    objects, is_text = [], True
    for body in bodies:
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            objects.append(value)
        try:
            body.decode()
        except UnicodeDecodeError:
            is_text = False
    if not bodies:
        return [], "The topic has no messages yet: say here how bodies become columns."
    if len(objects) * 2 > len(bodies):
        kept, left_out = _usable(_fields(objects))
        columns = [f"  {_quoted(name)}: {_quoted(kind)}" for name, kind in kept]
        others = len(bodies) - len(objects)
        note = f"Made from {len(objects)} messages; look at the types before you rely on them."
        if others:
            note += f" {others} others are no JSON objects, and go into quarantine."
        if left_out:
            names = ", ".join(json.dumps(name) for name in left_out)
            note += f" Left out, for their names: {names}."
        return ["decode: json", "columns:", *columns], note
    if is_text:
        return [
            "decode: text"
        ], f"The bodies of {len(bodies)} messages are text, and no JSON objects."
    return (
        [],
        f"The bodies of {len(bodies)} messages are neither JSON nor text: they stay as they are.",
    )


def _usable(fields: list[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[str]]:
    """The fields that can be columns, and the names of the others."""
    kept: dict[str, tuple[str, str]] = {}
    left_out = []
    for name, kind in fields:
        lower = name.lower()
        if can_be_column(name) and lower not in kept:
            kept[lower] = (name, kind)
        else:
            left_out.append(name)
    return list(kept.values()), left_out


def _fields(objects: Iterable[dict[str, Any]], depth: int = 0) -> list[tuple[str, str]]:
    values: dict[str, list[Any]] = {}
    for one in objects:
        for name, value in one.items():
            if name in values or len(values) < _FIELDS_MAX:
                values.setdefault(name, []).append(value)
    return [(name, _type_of(found, depth)) for name, found in values.items()]


def _type_of(values: Sequence[Any], depth: int) -> str:
    """The narrowest type that has all values; what has none is a string, as JSON text."""
    known = [value for value in values if value is not None]
    if not known or depth > _DEPTH_MAX:
        return "string"
    for fits, name in _SIMPLE_TYPES:
        if all(map(fits, known)):
            return name
    if all(isinstance(value, list) for value in known):
        return f"array<{_type_of([item for value in known for item in value], depth + 1)}>"
    if all(isinstance(value, dict) for value in known):
        fields = _fields(known, depth + 1)
        if fields and all("`" not in name for name, _ in fields):
            return f"struct<{', '.join(f'`{name}`: {kind}' for name, kind in fields)}>"
    return "string"


def _matches(pattern: re.Pattern[str]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


# The first that fits all values counts. A bool is an int, too, in Python.
_SIMPLE_TYPES: Final[Sequence[tuple[Callable[[Any], bool], str]]] = (
    (lambda value: isinstance(value, bool), "boolean"),
    (lambda value: type(value) is int and -_LONG_MAX <= value < _LONG_MAX, "bigint"),
    (lambda value: type(value) is int, "decimal(38, 0)"),
    (lambda value: type(value) in {int, float}, "double"),
    (_matches(_TIMESTAMP), "timestamp"),
    (_matches(_DATE), "date"),
)


def _quoted(text: str) -> str:
    """As YAML takes it."""
    return text if _PLAIN_NAME.fullmatch(text) else json.dumps(text)
