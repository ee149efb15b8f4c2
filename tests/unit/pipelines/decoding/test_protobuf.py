"""Protobuf bodies become rows; what is no such message becomes null."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from orbitmq.errors import SettingsError
from orbitmq.pipelines.decoding.protobuf_bodies import ProtobufBodies
from orbitmq.pipelines.decoding.protobuf_types import columns_of, message_of
from orbitmq.pipelines.plan import ProtobufDecoding

ORDER = "shop.Order"
SCALARS = [
    ("int32", "int", -1),
    ("int64", "bigint", 2**62),
    ("sint64", "bigint", -5),
    ("uint32", "bigint", 2**32 - 1),
    ("uint64", "decimal(20, 0)", 2**64 - 1),
    ("double", "double", 0.5),
    ("bool", "boolean", True),
    ("string", "string", "ä"),
    ("bytes", "binary", b"\xff"),
]


def descriptors() -> bytes:
    """The set of a file that has a bit of everything."""
    files = descriptor_pb2.FileDescriptorSet()
    for module in (timestamp_pb2, wrappers_pb2):
        module.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(f.name for f in files.file[:2])
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NONE", number=0)
    kind.value.add(name="GIFT", number=1)
    item = file.message_type.add(name="Item")
    _add(item, "name", "string")
    order = file.message_type.add(name="Order")
    for name, _, _ in SCALARS:
        _add(order, f"a_{name}", name)
    _add(order, "items", "message", type_name=".shop.Item", repeated=True)
    _add(order, "first", "message", type_name=".shop.Item")
    _add(order, "kind", "enum", type_name=".shop.Kind")
    _add(order, "placed", "message", type_name=".google.protobuf.Timestamp")
    _add(order, "note", "message", type_name=".google.protobuf.StringValue")
    _add(order, "counts", "message", type_name=".shop.Order.CountsEntry", repeated=True)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    _add(entry, "key", "string")
    _add(entry, "value", "int32")
    endless = file.message_type.add(name="Endless")
    _add(endless, "again", "message", type_name=".shop.Endless")
    file.message_type.add(name="Empty")
    return files.SerializeToString()


def _add(
    message: descriptor_pb2.DescriptorProto,
    name: str,
    kind: str,
    *,
    type_name: str = "",
    repeated: bool = False,
) -> None:
    made: Any = message.field.add(name=name, number=len(message.field) + 1)
    made.type = getattr(FieldDescriptor, f"TYPE_{kind.upper()}")
    made.label = FieldDescriptor.LABEL_REPEATED if repeated else FieldDescriptor.LABEL_OPTIONAL
    if type_name:
        made.type_name = type_name


@pytest.fixture(scope="module")
def bodies() -> ProtobufBodies:
    message = message_of(descriptors(), ORDER)
    return ProtobufBodies(
        ProtobufDecoding(columns=columns_of(message), descriptors=descriptors(), message=ORDER)
    )


def an_order() -> Any:
    order: Any = GetMessageClass(message_of(descriptors(), ORDER))()
    for name, _, value in SCALARS:
        setattr(order, f"a_{name}", value)
    order.items.add(name="tea")
    order.kind = 1
    order.placed.FromSeconds(1_000_000_000)
    order.note.value = ""
    order.counts["tea"] = 2
    return order


def test_a_message_becomes_a_row_of_its_columns(bodies: ProtobufBodies) -> None:
    row = bodies.row(an_order().SerializeToString())

    assert {column.name: column.type for column in bodies.decoding.columns} == {
        **{f"a_{name}": kind for name, kind, _ in SCALARS},
        "items": "array<struct<`name`: string>>",
        "first": "struct<`name`: string>",
        "kind": "string",
        "placed": "timestamp",
        "note": "string",
        "counts": "map<string, int>",
    }
    assert row == {
        **{f"a_{name}": value for name, _, value in SCALARS},
        "a_uint64": Decimal(2**64 - 1),
        "items": [{"name": "tea"}],
        "first": None,
        "kind": "GIFT",
        "placed": datetime.datetime(2001, 9, 9, 1, 46, 40, tzinfo=datetime.UTC),
        "note": "",
        "counts": [("tea", 2)],
    }


def test_a_name_that_the_set_does_not_know_is_its_number(bodies: ProtobufBodies) -> None:
    order = an_order()
    order.kind = 77

    row = bodies.row(order.SerializeToString())

    assert row is not None
    assert row["kind"] == "77"


def test_a_body_that_is_no_message_is_null(bodies: ProtobufBodies) -> None:
    good = an_order().SerializeToString()
    random_bytes = random.Random(7)

    assert bodies.row(None) is None
    assert bodies.row(good[:-1]) is None
    assert bodies.row(b"\xff") is None
    for _ in range(500):
        bodies.row(random_bytes.randbytes(random_bytes.randrange(40)))


@pytest.mark.parametrize(
    ("content", "message", "said"),
    [
        (b"\xff", ORDER, "this is no descriptor set"),
        (descriptors(), "shop.Orderr", "no message 'shop.Orderr' .did you mean shop.Order"),
        (descriptors(), "shop.Endless", "again.again contains the message shop.Endless"),
        (descriptors(), "shop.Empty", "has no fields"),
    ],
)
def test_a_message_that_makes_no_columns_is_refused(
    content: bytes, message: str, said: str
) -> None:
    with pytest.raises(SettingsError, match=said):
        columns_of(message_of(content, message))


def test_an_endless_message_of_the_library_is_refused() -> None:
    files = descriptor_pb2.FileDescriptorSet()
    struct_pb2.DESCRIPTOR.CopyToProto(files.file.add())

    with pytest.raises(SettingsError, match="contains itself"):
        columns_of(message_of(files.SerializeToString(), "google.protobuf.Struct"))
