"""The values of an answer as texts that lose nothing.

| type | JSON | table and CSV |
|---|---|---|
| BIGINT, INT, … | a number | its digits |
| DOUBLE, FLOAT | a number; NaN and infinities as texts | as Python writes it |
| DECIMAL | a text, as programs read numbers inexactly | its digits |
| TIMESTAMP | a text, ISO 8601 in UTC, as `2026-01-31T12:30:00.123Z` | the same |
| TIMESTAMP_NTZ, DATE | a text, ISO 8601 without a zone | the same |
| BINARY | a text if it is UTF-8, else `{"base64": "…"}` | the text, else `base64:…` |
| ARRAY, MAP, STRUCT, VARIANT | a list, an object | JSON on one line |
| NULL | null | `NULL` in a table, nothing in CSV |
"""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import VariantVal

if TYPE_CHECKING:
    from collections.abc import Sequence

_BATCH_ROWS = 1_000


def column_names(rows: pa.Table) -> list[str]:
    """The names of the columns, each once: a name that is there twice gets a number."""
    names: list[str] = []
    for name in rows.schema.names:
        number, unique = 1, name
        while unique in names:
            number += 1
            unique = f"{name}_{number}"
        names.append(unique)
    return names


def json_rows(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Each row as JSON has it."""
    names = column_names(rows)
    types = rows.schema.types
    for values in _rows(rows):
        yield {
            name: _json(value, kind) for name, value, kind in zip(names, values, types, strict=True)
        }


def text_rows(rows: pa.Table) -> Iterator[list[str | None]]:
    """Each row as texts; None where it is NULL."""
    types = rows.schema.types
    for values in _rows(rows):
        yield [_text(value, kind) for value, kind in zip(values, types, strict=True)]


def csv_line(cells: Sequence[str | None]) -> str:
    """A line of CSV (RFC 4180): an empty text is in quotes, and NULL is nothing."""
    return ",".join("" if cell is None else _csv_cell(cell) for cell in cells)


def _csv_cell(cell: str) -> str:
    if cell and not any(sign in cell for sign in ',"\r\n'):
        return cell
    return '"' + cell.replace('"', '""') + '"'


def _rows(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    for batch in rows.to_batches(_BATCH_ROWS):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _text(value: Any, kind: pa.DataType) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    made = _json(value, kind)
    if isinstance(value, bytes):
        return made if isinstance(made, str) else f"base64:{made['base64']}"
    if isinstance(made, str):
        return made
    return json.dumps(made, ensure_ascii=False, separators=(",", ":"))


def _json(value: Any, kind: pa.DataType) -> Any:  # noqa: PLR0911  # a line per type
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Decimal():
            return f"{value:f}"
        case bytes():
            return _binary(value)
        case datetime.datetime():
            return moment_text(value)
        case datetime.date() | datetime.time():
            return value.isoformat()
        case list() | dict():
            return _nested(value, kind)
        case _:
            return str(value)


def _nested(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_map(kind):
        return _map(value, kind)
    if isinstance(value, list):
        return [_json(one, kind.value_type) for one in value]
    if _is_variant(kind):
        return json.loads(VariantVal(value["value"], value["metadata"]).toJson())
    return {field.name: _json(value[field.name], field.type) for field in kind}


def moment_text(value: datetime.datetime) -> str:
    """A time in ISO 8601, with a Z if it is one of a zone."""
    zone = ""
    if value.tzinfo is not None:
        value, zone = value.astimezone(datetime.UTC).replace(tzinfo=None), "Z"
    precision = "microseconds" if value.microsecond % 1000 else "milliseconds"
    return value.isoformat(timespec=precision) + zone


def _is_variant(kind: pa.StructType) -> bool:
    at = kind.get_field_index("metadata")
    return at >= 0 and (kind.field(at).metadata or {}).get(b"variant") == b"true"


def _map(pairs: list[tuple[Any, Any]], kind: pa.MapType) -> Mapping[str, Any] | list[Any]:
    made = [[_json(key, kind.key_type), _json(value, kind.item_type)] for key, value in pairs]
    if all(isinstance(key, str) for key, _ in made):
        return dict(made)
    return made


def _binary(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
