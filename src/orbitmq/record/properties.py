"""The properties of a message as one text: name, 0x01, value, 0x02, repeated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orbitmq.errors import MessageError
from orbitmq.record.layout import PROPERTIES_BYTES_MAX

NAME_END: Final = "\x01"
VALUE_END: Final = "\x02"
_NAME_END: Final = b"\x01"
_VALUE_END: Final = b"\x02"


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Encode properties; raises MessageError if a name or value has a separator."""
    for name, value in properties.items():
        if NAME_END in name or VALUE_END in name or NAME_END in value or VALUE_END in value:
            raise MessageError(
                f"property {name!r} contains one of the separators 0x01 and 0x02",
                hint="encode the value, for example as base64",
            )
    text = "".join(f"{name}{NAME_END}{value}{VALUE_END}" for name, value in properties.items())
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise MessageError(
            f"properties contain {text[error.start]!r}, half of a character",
            hint="encode the value, for example as base64",
        ) from error
    if len(encoded) > PROPERTIES_BYTES_MAX:
        raise MessageError(
            f"properties of {len(encoded)} bytes are above {PROPERTIES_BYTES_MAX}",
            hint="move large values into the body",
        )
    return encoded


def property_value(text: str) -> str:
    """Return a text that can be a value: what cannot be printed becomes a space."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    return shown.encode(errors="replace").decode()


def decode_properties(encoded: bytes) -> dict[str, str]:
    """Decode properties as Java does, without those that lack a name or a value."""
    properties: dict[str, str] = {}
    for entry in encoded.decode(errors="replace").split(VALUE_END):
        name, _, value = entry.partition(NAME_END)
        if name and value:
            properties[name] = value
    return properties


def find_property(encoded: bytes, name: bytes) -> bytes | None:
    """Find one property without decoding the others; of several, the last with a value."""
    wanted = name + _NAME_END
    end = len(encoded)
    while (at := encoded.rfind(wanted, 0, end)) >= 0:
        if at == 0 or encoded[at - 1] == _VALUE_END[0]:
            start = at + len(wanted)
            value_end = encoded.find(_VALUE_END, start)
            value = encoded[start:] if value_end < 0 else encoded[start:value_end]
            if value:
                return value
        end = at + len(wanted) - 1
    return None
