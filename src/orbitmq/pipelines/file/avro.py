"""The part `decode: {format: avro, …}` of a source."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

from orbitmq.errors import PackageMissingError, SettingsError
from orbitmq.pipelines.file.fields import FieldReader
from orbitmq.pipelines.plan import AvroDecoding, Column

AVRO_EXAMPLE: Final = "as in decode: {format: avro, schema: order.avsc}"
_FRAMINGS: Final = ("none", "confluent")
_URLS: Final = ("http://", "https://")
_ID_DIGITS: Final = 10


def read_avro(fields: FieldReader, folder: Path) -> AvroDecoding:
    """Read the fields of a decoding; the schema's file is read, too."""
    if importlib.util.find_spec("fastavro") is None:
        raise PackageMissingError("fastavro", needed_by="decode: avro", extra="avro")
    from orbitmq.pipelines.decoding.avro_types import columns_of, read_schema

    schema, columns = "", tuple[Column, ...]()
    name = fields.required("schema", "order.avsc")
    try:
        if name:
            schema = read_schema(folder / name)
            columns = columns_of(schema)
    except SettingsError as error:
        fields.add("schema", str(error.args[0]), hint=error.hint)
    is_confluent = fields.choice("framing", _FRAMINGS, "none") == "confluent"
    decoding = AvroDecoding(
        columns=columns,
        schema=schema,
        is_confluent=is_confluent,
        schemas=_schemas(fields, folder),
        registry=fields.text("registry"),
    )
    _check_schemas(decoding, fields)
    fields.end()
    return decoding


def _schemas(fields: FieldReader, folder: Path) -> dict[int, str]:
    """Writers' schemas in files, by their ids."""
    from orbitmq.pipelines.decoding.avro_types import read_schema

    found: dict[int, str] = {}
    for number, text in fields.mapping("schemas").items():
        if not (number.isascii() and number.isdigit() and len(number) <= _ID_DIGITS):
            problem = f"{number!r} is no id of a schema"
            fields.problems.add(text.place, problem, hint="as in schemas: {1: order-v1.avsc}")
            continue
        try:
            found[int(number)] = read_schema(folder / text.value)
        except SettingsError as error:
            fields.problems.add(text.place, str(error.args[0]), hint=error.hint)
    return found


def _check_schemas(decoding: AvroDecoding, fields: FieldReader) -> None:
    registry, has_schemas = decoding.registry, bool(decoding.registry or "schemas" in fields)
    if registry and not registry.startswith(_URLS):
        hint = "as in http://127.0.0.1:8081"
        fields.add("registry", f"registry cannot be {registry!r}", hint=hint)
    if decoding.is_confluent and not has_schemas:
        fields.add(
            "framing",
            "bodies with Confluent's header name their schemas by ids",
            hint="say where these are: registry: http://127.0.0.1:8081, or schemas: {1: v1.avsc}",
        )
    if has_schemas and not decoding.is_confluent:
        fields.problems.add(
            fields.place_of("registry" if registry else "schemas"),
            "registry and schemas are for bodies that name their schema",
            hint="framing: confluent",
        )
