"""The part `decode: {format: protobuf, …}` of a source."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

from orbitmq.errors import PackageMissingError, SettingsError
from orbitmq.pipelines.file.fields import FieldReader
from orbitmq.pipelines.plan import Column, ProtobufDecoding

PROTOBUF_EXAMPLE: Final = (
    "as in decode: {format: protobuf, descriptors: shop.pb, message: shop.Order}"
)


def read_protobuf(fields: FieldReader, folder: Path) -> ProtobufDecoding:
    """Read the fields of a decoding; the descriptor set is read, too."""
    if importlib.util.find_spec("google.protobuf") is None:
        raise PackageMissingError("protobuf", needed_by="decode: protobuf", extra="protobuf")
    from orbitmq.pipelines.decoding.protobuf_types import columns_of, message_of, read_descriptors

    file, message = (
        fields.required("descriptors", "shop.pb"),
        fields.required("message", "shop.Order"),
    )
    descriptors, columns = b"", tuple[Column, ...]()
    try:
        if file and message:
            descriptors = read_descriptors(folder / file)
            columns = columns_of(message_of(descriptors, message))
    except SettingsError as error:
        fields.add("message", str(error.args[0]), hint=error.hint)
    fields.end()
    return ProtobufDecoding(columns=columns, descriptors=descriptors, message=message)
