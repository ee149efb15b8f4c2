"""The binary header of a command (RocketMQ's own serialization).

Layout, big-endian:
    2  code, signed      1  language      2  version      4  opaque      4  flag
    4  remark bytes      n  remark
    4  fields bytes      n  repeated: 2 key bytes, key, 4 value bytes, value
"""

from __future__ import annotations

import struct
from typing import Final

from orbitmq.errors import ProtocolError
from orbitmq.protocol.frame import check_field_count
from orbitmq.protocol.header_json import HeaderParts
from orbitmq.protocol.languages import Language, language_numbered

_FIXED: Final = struct.Struct(">hBhiii")
_WITHOUT_FIELDS: Final = struct.Struct(">hBhiiii")
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
_SHORT_MAX: Final = 2**15 - 1


def can_encode(code: int, version: int) -> bool:
    """Whether code and version fit the 16 bits that the header has for each."""
    return -_SHORT_MAX - 1 <= code <= _SHORT_MAX and -_SHORT_MAX - 1 <= version <= _SHORT_MAX


def encode_header(
    *,
    code: int,
    language: Language,
    version: int,
    opaque: int,
    flag: int,
    remark: str,
    fields: dict[str, str],
) -> bytes:
    """Write a header."""
    if not fields and not remark:
        # Perf: most replies are like this; 1.5 µs less than the general way.
        return _WITHOUT_FIELDS.pack(code, language, version, opaque, flag, 0, 0)
    remark_bytes = remark.encode()
    parts = [_FIXED.pack(code, language, version, opaque, flag, len(remark_bytes)), remark_bytes]
    entries: list[bytes] = []
    for key, value in fields.items():
        key_bytes = key.encode()
        value_bytes = value.encode()
        if len(key_bytes) > _SHORT_MAX:
            raise ProtocolError(f"field name {key[:40]!r}… of {len(key_bytes)} bytes is too long")
        entries += (
            _SHORT.pack(len(key_bytes)),
            key_bytes,
            _INT.pack(len(value_bytes)),
            value_bytes,
        )
    encoded = b"".join(entries)
    parts += (_INT.pack(len(encoded)), encoded)
    return b"".join(parts)


def decode_header(header: bytes) -> HeaderParts:
    """Read a header."""
    try:
        code, language, version, opaque, flag, remark_bytes = _FIXED.unpack_from(header)
        position = _FIXED.size
        remark, position = _text(header, position, remark_bytes)
        (fields_bytes,) = _INT.unpack_from(header, position)
    except struct.error as error:
        raise ProtocolError(f"a binary header of {len(header)} bytes is cut off") from error
    position += _INT.size
    fields_end = position + fields_bytes
    if fields_bytes < 0 or fields_end > len(header):
        raise ProtocolError(f"fields claim {fields_bytes} of {len(header) - position} bytes left")
    fields = _decode_fields(header, position, fields_end)
    return code, language_numbered(language), version, opaque, flag, remark, fields


def _decode_fields(header: bytes, position: int, end: int) -> dict[str, str]:
    fields: dict[str, str] = {}
    count = 0
    try:
        while position < end:
            count += 1
            check_field_count(count)
            (key_bytes,) = _SHORT.unpack_from(header, position)
            key, position = _text(header, position + _SHORT.size, key_bytes)
            (value_bytes,) = _INT.unpack_from(header, position)
            value, position = _text(header, position + _INT.size, value_bytes)
            # Compat: an empty value is Java's null, so the field is absent.
            if value:
                fields[key] = value
    except struct.error as error:
        raise ProtocolError(f"fields of a binary header are cut off at byte {position}") from error
    if position != end:
        raise ProtocolError(f"fields of a binary header overrun their end by {position - end}")
    return fields


def _text(header: bytes, start: int, text_bytes: int) -> tuple[str, int]:
    end = start + text_bytes
    if text_bytes < 0 or end > len(header):
        raise ProtocolError(f"text of {text_bytes} bytes at byte {start} overruns the header")
    try:
        return header[start:end].decode(), end
    except UnicodeDecodeError:
        # Compat: Java replaces invalid UTF-8.
        return header[start:end].decode(errors="replace"), end
