"""Avro bodies become rows, an Arrow batch at a time.

    bare       one record, encoded by the schema of the file
    confluent  0x00, the id of the writer's schema in 4 bytes, one record encoded by that schema

A body that is no such record gives null, never an error. A registry that cannot be reached is an
error: its schemas are needed for good bodies, too.

Threads: those of Spark's Python workers; each process keeps the schemas that it has seen.
"""

from __future__ import annotations

import io
import json
import struct
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import fastavro
import pyarrow as pa
from fastavro.types import Schema

from orbitmq.errors import SchemaRegistryError, SettingsError
from orbitmq.pipelines.decoding.avro_types import SCHEMA_BYTES_MAX, parse_schema
from orbitmq.pipelines.decoding.fitting import fitting_array
from orbitmq.pipelines.plan import AvroDecoding

_HEADER: Final = struct.Struct(">bI")
_TIMEOUT_S: Final = 10
_TRIES: Final = 3
# Ids come from messages: more than a registry has would be somebody's mischief.
_SCHEMAS_MAX: Final = 10_000
_NOT_FOUND: Final = 404


def rows_of(decoding: AvroDecoding, form: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    """A function that decodes bodies into rows of an Arrow type."""
    bodies = AvroBodies(decoding)

    def decode(batch: pa.Array) -> pa.Array:
        return fitting_array([bodies.row(body) for body in batch.to_pylist()], form)

    return decode


@dataclass(slots=True)
class AvroBodies:
    """Decodes bodies of one source."""

    decoding: AvroDecoding
    _reader: Schema = field(init=False)
    _writers: dict[int, Schema | None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._reader = parse_schema(self.decoding.schema)

    def row(self, body: bytes | None) -> dict[str, Any] | None:
        """The fields of a body; None if it is no such record."""
        if body is None:
            return None
        writer, content = self._reader, io.BytesIO(body)
        if self.decoding.is_confluent:
            if len(body) < _HEADER.size or body[0]:
                return None
            _, number = _HEADER.unpack(content.read(_HEADER.size))
            found = self._writer(number)
            if found is None:
                return None
            writer = found
        try:
            row = fastavro.schemaless_reader(content, writer, self._reader)
        except Exception:  # noqa: BLE001  # whatever bytes can do to its decoder
            return None
        # Bytes left over: it was another schema.
        if content.read(1) or not isinstance(row, dict):
            return None
        return {name: _plain(value) for name, value in row.items()}

    def _writer(self, number: int) -> Schema | None:
        """The schema of an id; None if there is none."""
        if number not in self._writers:
            if len(self._writers) >= _SCHEMAS_MAX:
                self._writers.clear()
            text = self.decoding.schemas.get(number)
            if text is None and self.decoding.registry:
                text = _from_registry(self.decoding.registry, number)
            try:
                self._writers[number] = None if text is None else parse_schema(text)
            except SettingsError:
                self._writers[number] = None
        return self._writers[number]


def _plain(value: Any) -> Any:
    """A value as Arrow takes it."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _from_registry(registry: str, number: int) -> str | None:
    url = f"{registry.rstrip('/')}/schemas/ids/{number}"
    problem: Exception | None = None
    for _ in range(_TRIES):
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as reply:  # noqa: S310  # checked
                answer = json.loads(reply.read(SCHEMA_BYTES_MAX))
                return str(answer["schema"])
        except urllib.error.HTTPError as error:
            if error.code == _NOT_FOUND:
                return None
            problem = error
        except (OSError, ValueError, KeyError, TypeError) as error:
            problem = error
    raise SchemaRegistryError(url, str(problem))
