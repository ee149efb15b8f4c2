"""Avro bodies become rows; what is no such body becomes null."""

from __future__ import annotations

import datetime
import io
import json
import random
import struct
import uuid
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from orbitmq.errors import SchemaRegistryError, SettingsError
from orbitmq.pipelines.decoding.avro_bodies import AvroBodies, rows_of
from orbitmq.pipelines.decoding.avro_types import columns_of
from orbitmq.pipelines.plan import AvroDecoding
from tests.unit.pipelines.decoding.registry import running_registry


def record(*fields: tuple[str, Any], **defaults: Any) -> str:
    made = [
        {"name": name, "type": kind, **({"default": defaults[name]} if name in defaults else {})}
        for name, kind in fields
    ]
    return json.dumps({"type": "record", "name": "shop.Order", "fields": made})


def encoded(schema: str, value: dict[str, Any], header: bytes = b"") -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(json.loads(schema)), value)
    return header + body.getvalue()


def confluent(number: int) -> bytes:
    return struct.pack(">bI", 0, number)


def bodies(schema: str, *, schemas: dict[int, str] | None = None, registry: str = "") -> AvroBodies:
    return AvroBodies(
        AvroDecoding(
            columns=columns_of(schema),
            schema=schema,
            is_confluent=bool(schemas or registry),
            schemas=schemas or {},
            registry=registry,
        )
    )


ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}
KINDS: list[tuple[Any, str, Any]] = [
    ("boolean", "boolean", True),
    ("int", "int", -1),
    ("long", "bigint", 2**62),
    ("double", "double", 0.5),
    ("string", "string", "ä"),
    ("bytes", "binary", b"\x00"),
    (["null", "string"], "string", None),
    ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, "string", "b"),
    ({"type": "fixed", "name": "F", "size": 2}, "binary", b"ab"),
    ({"type": "array", "items": ADDRESS}, "array<struct<`city`: string>>", [{"city": "x"}]),
    ({"type": "map", "values": "long"}, "map<string, bigint>", {"a": 1}),
    ({"type": "int", "logicalType": "date"}, "date", datetime.date(2026, 1, 1)),
    (
        {"type": "long", "logicalType": "timestamp-millis"},
        "timestamp",
        datetime.datetime(2026, 1, 1, 10, tzinfo=datetime.UTC),
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2},
        "decimal(8, 2)",
        Decimal("1.25"),
    ),
]


@pytest.mark.parametrize(("kind", "column", "value"), KINDS)
def test_a_field_is_a_column_of_its_type(kind: Any, column: str, value: Any) -> None:
    schema = record(("x", kind))

    assert [one.type for one in columns_of(schema)] == [column]
    assert bodies(schema).row(encoded(schema, {"x": value})) == {"x": value}


def test_ids_are_texts() -> None:
    schema = record(("id", {"type": "string", "logicalType": "uuid"}))
    number = uuid.uuid4()

    assert bodies(schema).row(encoded(schema, {"id": number})) == {"id": str(number)}


def test_a_body_that_is_no_such_record_is_null() -> None:
    schema = record(("id", "long"), ("item", "string"))
    good = encoded(schema, {"id": 1, "item": "tea"})
    random_bytes = random.Random(7)
    reader = bodies(schema)

    assert reader.row(good) is not None
    assert [reader.row(wrong) for wrong in (None, b"", good[:-1], good + b"x")] == [None] * 4
    for _ in range(500):
        reader.row(random_bytes.randbytes(random_bytes.randrange(40)))


def test_bodies_of_several_schemas_become_rows_of_one() -> None:
    first, second = (
        record(("id", "long")),
        record(("item", "string"), ("id", "long"), ("old", "int")),
    )
    wanted = record(("id", "long"), ("item", "string"), item="none")
    reader = bodies(wanted, schemas={1: first, 2: second})

    rows = [
        reader.row(encoded(first, {"id": 1}, confluent(1))),
        reader.row(encoded(second, {"id": 2, "item": "tea", "old": 0}, confluent(2))),
        reader.row(encoded(first, {"id": 3}, confluent(9))),
        reader.row(encoded(first, {"id": 3})),
        reader.row(b"\x00\x00"),
    ]

    assert rows == [{"id": 1, "item": "none"}, {"id": 2, "item": "tea"}, None, None, None]


def test_schemas_come_from_a_registry() -> None:
    schema = record(("id", "long"))
    with running_registry({5: schema, 6: "no schema"}) as registry:
        reader = bodies(schema, registry=registry)

        rows = [reader.row(encoded(schema, {"id": 1}, confluent(number))) for number in (5, 6, 7)]

    # What is known needs no registry.
    assert reader.row(encoded(schema, {"id": 2}, confluent(5))) == {"id": 2}
    assert rows == [{"id": 1}, None, None]
    with pytest.raises(SchemaRegistryError, match=r"/schemas/ids/8"):
        reader.row(encoded(schema, {"id": 1}, confluent(8)))


def test_a_value_that_its_column_cannot_have_makes_only_its_row_null() -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    schema = record(("x", kind))
    # Encoded by hand: its precision is not in the bytes.
    encoded_bodies = [b"\x02\x7d", b"\x0a\x7f\xff\xff\xff\xff"]
    decoding = AvroDecoding(
        columns=columns_of(schema), schema=schema, is_confluent=False, schemas={}, registry=""
    )

    decode = rows_of(decoding, pa.struct({"x": pa.decimal128(4, 2)}))

    assert decode(pa.array(encoded_bodies)).to_pylist() == [{"x": Decimal("1.25")}, None]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "no Avro schema"),
        ('{"type": "recrd"}', "no Avro schema"),
        ('"string"', "no record"),
        (record(("x", ["int", "string"])), "x is one of several"),
        (record(("x", "null")), "x has the Avro type null"),
        (record(("x", ["null", "shop.Order"])), "x contains the record shop.Order"),
    ],
)
def test_a_schema_that_makes_no_columns_is_refused(schema: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        columns_of(schema)
