"""The columns of a Protobuf message, as Spark's SQL has them.

Fields that tell whether they are set are null if they are not; others have their default then, as
everywhere in Protobuf.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from orbitmq.errors import SettingsError
from orbitmq.pipelines.plan import Column
from orbitmq.pipelines.suggestions import suggestion

DESCRIPTORS_BYTES_MAX: Final = 4 * 1024 * 1024
TIMESTAMP: Final = "google.protobuf.Timestamp"
# A message around one value, so that it can be null.
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ["Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes"]
)
_SIMPLE: Final = {
    FieldDescriptor.CPPTYPE_INT32: "int",
    FieldDescriptor.CPPTYPE_INT64: "bigint",
    FieldDescriptor.CPPTYPE_UINT32: "bigint",
    FieldDescriptor.CPPTYPE_UINT64: "decimal(20, 0)",
    FieldDescriptor.CPPTYPE_DOUBLE: "double",
    FieldDescriptor.CPPTYPE_FLOAT: "float",
    FieldDescriptor.CPPTYPE_BOOL: "boolean",
    FieldDescriptor.CPPTYPE_ENUM: "string",
}


def read_descriptors(path: Path) -> bytes:
    """The content of a descriptor set; raises SettingsError if it cannot be read."""
    try:
        if path.stat().st_size > DESCRIPTORS_BYTES_MAX:
            raise SettingsError(f"{path} is longer than {DESCRIPTORS_BYTES_MAX:,} bytes")
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error


def message_of(descriptors: bytes, name: str) -> Descriptor:
    """Find a message in a descriptor set; raises SettingsError with the nearest name."""
    files, pool = descriptor_pb2.FileDescriptorSet(), descriptor_pool.DescriptorPool()
    try:
        files.ParseFromString(descriptors)
        for file in files.file:
            pool.Add(file)
    except (DecodeError, TypeError, ValueError) as error:
        raise SettingsError(
            f"this is no descriptor set: {str(error)[:200]}",
            hint="make it by: protoc --include_imports --descriptor_set_out=shop.pb shop.proto",
        ) from error
    try:
        return pool.FindMessageTypeByName(name)
    except (KeyError, TypeError) as error:
        known = [
            f"{file.package}.{message.name}".lstrip(".")
            for file in files.file
            for message in file.message_type
        ]
        raise SettingsError(
            f"the descriptor set has no message {name!r}",
            hint="add --include_imports to protoc" if name in known else suggestion(name, known),
        ) from error


def columns_of(message: Descriptor) -> tuple[Column, ...]:
    """The fields of a message as columns; raises SettingsError for what cannot be one."""
    types = _Types()
    found = tuple(
        Column(name=field.name, type=types.of(field, field.name)) for field in message.fields
    )
    if not found:
        raise SettingsError(f"the message {message.full_name} has no fields")
    return found


def inner_of(field: FieldDescriptor) -> Descriptor:
    """The message that is the value of a field."""
    inner = field.message_type
    assert inner is not None
    return inner


def is_map(field: FieldDescriptor) -> bool:
    """Whether a field is a map, which Protobuf has as a list of pairs."""
    inner = field.message_type
    return inner is not None and bool(inner.GetOptions().map_entry)


class _Types:
    def __init__(self) -> None:
        # Messages that contain what is looked at.
        self._outer: list[str] = []

    def of(self, field: FieldDescriptor, where: str) -> str:
        if is_map(field):
            key, value = (inner_of(field).fields_by_name[name] for name in ("key", "value"))
            return f"map<{self._one(key, where)}, {self._one(value, where)}>"
        one = self._one(field, where)
        return f"array<{one}>" if field.is_repeated else one

    def _one(self, field: FieldDescriptor, where: str) -> str:
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            return "binary" if field.type == FieldDescriptor.TYPE_BYTES else "string"
        if field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
            return _SIMPLE[field.cpp_type]
        message = inner_of(field)
        if message.full_name == TIMESTAMP:
            return "timestamp"
        if message.full_name in WRAPPERS:
            return self._one(message.fields_by_name["value"], where)
        if message.full_name in self._outer:
            raise SettingsError(
                f"{where} contains the message {message.full_name}, which contains itself"
            )
        self._outer.append(message.full_name)
        fields = [
            f"`{inner.name}`: {self.of(inner, f'{where}.{inner.name}')}" for inner in message.fields
        ]
        self._outer.pop()
        if not fields:
            raise SettingsError(f"{where} is a message without fields, which no column has")
        return f"struct<{', '.join(fields)}>"
