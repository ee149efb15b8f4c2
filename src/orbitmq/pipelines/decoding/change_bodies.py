"""Bodies in JSON that say how rows of a database changed: Debezium's and Canal's.

A body becomes its changes, or the reason why it has none; never some of its changes.

Threads: those of Spark's Python workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa

from orbitmq.pipelines.decoding.change_values import (
    JSON,
    NOT_JSON,
    UnfitValueError,
    Values,
    moment,
)
from orbitmq.pipelines.decoding.fitting import fitting_array
from orbitmq.pipelines.plan import ChangeDecoding

TOMBSTONE: Final = "a tombstone"
TRUNCATE: Final = "a truncate"
DDL: Final = "DDL"
NO_CHANGE: Final = "not a change of a row"
_DEBEZIUM_OPS: Final = {"c": "insert", "r": "read", "u": "update", "d": "delete"}
_CANAL_OPS: Final = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete"}
_REASON_MAX: Final = 200


class _NoChangeError(Exception):
    """A body that is no change of a row; the text says what it is."""


class _Images(NamedTuple):
    """A row before and after a change, as its envelope has it."""

    op: str
    before: Any
    after: Any
    schemas: Mapping[str, Mapping[str, Any]]
    time: Any


def changes_of(decoding: ChangeDecoding, form: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    """A function that decodes bodies into structs of their changes and a reason."""
    bodies = ChangeBodies(decoding.format, decoding.timestamps, _row_form(form))

    def decode(batch: pa.Array) -> pa.Array:
        return fitting_array([bodies.decoded(body) for body in batch.to_pylist()], form)

    return decode


def _row_form(form: pa.DataType) -> pa.StructType:
    """The columns of a row that changes, in the type of what is decoded."""
    change = form.field("changes").type.value_type
    row: pa.StructType = change.field("after").type
    return row


@dataclass(frozen=True, slots=True)
class ChangeBodies:
    """Decodes the bodies of one source."""

    format: str
    timestamps: str
    form: pa.StructType

    def decoded(self, body: bytes | None) -> dict[str, Any]:
        """The changes of a body, or the reason why it has none."""
        try:
            is_canal = self.format == "canal"
            images = (_of_canal if is_canal else _of_debezium)(_envelope(body))
            values = Values(are_texts=is_canal, timestamps=self.timestamps)
            return {"changes": [self._change(one, values) for one in images], "reason": None}
        except (_NoChangeError, UnfitValueError) as error:
            return {"changes": None, "reason": str(error)[:_REASON_MAX]}

    def _change(self, images: _Images, values: Values) -> dict[str, Any]:
        found: dict[str, Any] = {"op": images.op, "source_time": images.time}
        for where, row in (("before", images.before), ("after", images.after)):
            if row is None:
                found[where] = None
                continue
            if not isinstance(row, dict) or not any(one.name in row for one in self.form):
                raise _NoChangeError(f"{where} has none of the columns")
            found[where] = values.row(row, self.form, images.schemas.get(where, {}), where)
        needed = "before" if images.op == "delete" else "after"
        if found[needed] is None:
            raise _NoChangeError(f"{images.op} without {needed}")
        return found


def _envelope(body: bytes | None) -> dict[str, Any]:
    if not body:
        raise _NoChangeError(TOMBSTONE)
    try:
        found = JSON.decode(body)
    except NOT_JSON:
        raise _NoChangeError("not JSON") from None
    if found is None:
        raise _NoChangeError(TOMBSTONE)
    if not isinstance(found, dict):
        raise _NoChangeError(NO_CHANGE)
    return found


def _of_debezium(envelope: dict[str, Any]) -> list[_Images]:
    schema: Any = None
    if "schema" in envelope and "payload" in envelope:
        schema = envelope["schema"]
        envelope = _payload(envelope["payload"])
    code = envelope.get("op")
    op = _DEBEZIUM_OPS.get(code) if isinstance(code, str) else None
    if op is None:
        is_ddl = "ddl" in envelope or "tableChanges" in envelope
        raise _NoChangeError(TRUNCATE if code == "t" else DDL if is_ddl else NO_CHANGE)
    source = envelope.get("source")
    source = source if isinstance(source, dict) else {}
    time = moment(source.get("ts_us"), "micros") or moment(source.get("ts_ms"), "millis")
    rows = {one: envelope.get(one) for one in ("before", "after")}
    if op == "delete":
        rows["after"] = None
    return [_Images(op, rows["before"], rows["after"], _schemas(schema), time)]


def _payload(payload: Any) -> dict[str, Any]:
    if payload is None:
        raise _NoChangeError(TOMBSTONE)
    if not isinstance(payload, dict):
        raise _NoChangeError(NO_CHANGE)
    return payload


def _schemas(schema: Any) -> dict[str, dict[str, Any]]:
    """Of the rows before and after, the schemas of their columns by names."""
    if not isinstance(schema, dict):
        return {}
    return {
        str(row.get("field")): {
            str(one.get("field")): one for one in row.get("fields") or () if isinstance(one, dict)
        }
        for row in schema.get("fields") or ()
        if isinstance(row, dict)
    }


def _of_canal(envelope: dict[str, Any]) -> list[_Images]:
    kind = str(envelope.get("type")).upper()
    if envelope.get("isDdl") is True:
        raise _NoChangeError(TRUNCATE if kind == "TRUNCATE" else DDL)
    op = _CANAL_OPS.get(kind)
    rows = envelope.get("data")
    if op is None or not isinstance(rows, list) or not rows:
        raise _NoChangeError(NO_CHANGE)
    old = envelope.get("old")
    if op != "update" or old is None:
        old = [None] * len(rows)
    if not isinstance(old, list) or len(old) != len(rows):
        raise _NoChangeError("as many rows in old as in data are needed")
    time = moment(envelope.get("es"), "millis")
    return [_canal_images(op, *pair, time) for pair in zip(rows, old, strict=True)]


def _canal_images(op: str, row: Any, changed: Any, time: Any) -> _Images:
    if op == "delete":
        return _Images(op, row, None, {}, time)
    # `old` has those columns only that changed.
    whole = isinstance(row, dict) and isinstance(changed, dict)
    before = {**row, **changed} if whole else None
    return _Images(op, before, row, {}, time)
