"""Protobuf bodies become rows; a body that is no such message gives null.

Protobuf's bytes do not say what they are: those of another message may look like one of this.

Threads: those of Spark's Python workers.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, cast

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from orbitmq.pipelines.decoding.fitting import fitting_array
from orbitmq.pipelines.decoding.protobuf_types import (
    TIMESTAMP,
    WRAPPERS,
    inner_of,
    is_map,
    message_of,
)
from orbitmq.pipelines.plan import ProtobufDecoding

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def rows_of(decoding: ProtobufDecoding, form: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    """A function that decodes bodies into rows of an Arrow type."""

    def decode(batch: pa.Array) -> pa.Array:
        bodies = _in_this_process(decoding)
        return fitting_array([bodies.row(body) for body in batch.to_pylist()], form)

    return decode


@dataclass(slots=True)
class ProtobufBodies:
    """Decodes bodies of one source."""

    decoding: ProtobufDecoding
    _message: type[Message] = field(init=False)

    def __post_init__(self) -> None:
        found = message_of(self.decoding.descriptors, self.decoding.message)
        self._message = GetMessageClass(found)

    def row(self, body: bytes | None) -> dict[str, Any] | None:
        """The fields of a body; None if it is no such message."""
        if body is None:
            return None
        message = self._message()
        try:
            message.ParseFromString(body)
            return _fields(message)
        except (DecodeError, OverflowError, ValueError):
            return None


# Messages have classes that do not travel between processes.
_bodies: dict[tuple[bytes, str], ProtobufBodies] = {}


def _in_this_process(decoding: ProtobufDecoding) -> ProtobufBodies:
    key = decoding.descriptors, decoding.message
    if key not in _bodies:
        _bodies[key] = ProtobufBodies(decoding)
    return _bodies[key]


def _fields(message: Message) -> dict[str, Any]:
    # In C or in Python, they are the same to us.
    described = cast("Iterable[FieldDescriptor]", message.DESCRIPTOR.fields)
    return {one.name: _value(message, one) for one in described}


def _value(message: Message, one: FieldDescriptor) -> Any:
    if not one.is_repeated and one.has_presence and not message.HasField(one.name):
        return None
    value = getattr(message, one.name)
    if is_map(one):
        kind = inner_of(one).fields_by_name["value"]
        return [(key, _plain(item, kind)) for key, item in value.items()]
    return [_plain(item, one) for item in value] if one.is_repeated else _plain(value, one)


def _plain(value: Any, one: FieldDescriptor) -> Any:
    """A value as Arrow takes it."""
    if one.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        assert one.enum_type is not None
        name = one.enum_type.values_by_number.get(value)
        return str(value) if name is None else name.name
    if one.cpp_type == FieldDescriptor.CPPTYPE_UINT64:
        return Decimal(value)
    if one.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
        return value
    kind = inner_of(one).full_name
    if kind == TIMESTAMP:
        return _EPOCH + datetime.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if kind in WRAPPERS:
        return _plain(value.value, inner_of(one).fields_by_name["value"])
    return _fields(value)
