"""The columns of an Avro schema, as Spark's SQL has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import fastavro
from fastavro.types import Schema

from orbitmq.errors import SettingsError
from orbitmq.pipelines.plan import Column

SCHEMA_BYTES_MAX: Final = 4 * 1024 * 1024
_SIMPLE: Final = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "enum": "string",
    "bytes": "binary",
    "fixed": "binary",
}
_LOGICAL: Final = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
    "uuid": "string",
}


def read_schema(path: Path) -> str:
    """The text of a schema file; raises SettingsError if it is none."""
    try:
        if path.stat().st_size > SCHEMA_BYTES_MAX:
            raise SettingsError(f"{path} is longer than {SCHEMA_BYTES_MAX:,} bytes")
        text = path.read_text()
        parse_schema(text)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
    return text


def parse_schema(text: str) -> Schema:
    """Parse a schema; raises SettingsError if it is none."""
    try:
        return fastavro.parse_schema(json.loads(text))
    except (
        ValueError,
        TypeError,
        KeyError,
        RecursionError,
        fastavro.schema.SchemaParseException,
        fastavro.schema.UnknownType,
    ) as error:
        raise SettingsError(f"this is no Avro schema: {str(error)[:200]}") from error


def columns_of(text: str) -> tuple[Column, ...]:
    """The fields of a record as columns; raises SettingsError for what cannot be one."""
    parsed: Any = parse_schema(text)
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise SettingsError("the Avro schema is no record", hint="columns are the fields of one")
    types = _Types(parsed.get("__named_schemas", {}))
    return tuple(
        Column(name=field["name"], type=types.of(field["type"], field["name"]))
        for field in parsed["fields"]
    )


class _Types:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        # Records that contain what is looked at.
        self._outer: list[str] = []

    def of(self, schema: Any, where: str) -> str:
        if isinstance(schema, list):
            return self._of_union(schema, where)
        if isinstance(schema, str):
            if schema in self._named:
                return self.of(self._named[schema], where)
            if schema in _SIMPLE:
                return _SIMPLE[schema]
            raise SettingsError(f"{where} has the Avro type {schema}, which no column has")
        return self._of_complex(schema, where)

    def _of_union(self, schema: list[Any], where: str) -> str:
        others = [one for one in schema if one != "null"]
        if len(others) != 1:
            raise SettingsError(
                f"{where} is one of several Avro types, which no column has",
                hint="of unions, null and one type can be read",
            )
        return self.of(others[0], where)

    def _of_complex(self, schema: Mapping[str, Any], where: str) -> str:
        kind, logical = schema["type"], schema.get("logicalType")
        if logical in _LOGICAL:
            return _LOGICAL[logical]
        if logical == "decimal":
            return f"decimal({schema['precision']}, {schema.get('scale', 0)})"
        if kind == "array":
            return f"array<{self.of(schema['items'], where)}>"
        if kind == "map":
            return f"map<string, {self.of(schema['values'], where)}>"
        if kind != "record":
            return self.of(kind, where)
        record = schema["name"]
        if record in self._outer:
            raise SettingsError(f"{where} contains the record {record}, which contains itself")
        self._outer.append(record)
        inner = [(field["name"], field["type"]) for field in schema["fields"]]
        fields = [f"`{name}`: {self.of(kind, f'{where}.{name}')}" for name, kind in inner]
        self._outer.pop()
        return f"struct<{', '.join(fields)}>"
