"""The JSON header of a command.

Members: code, language (name), version, opaque, flag, remark?, extFields? (text to text). Java
peers read and write it with fastjson, so numbers and booleans among the fields arrive as well;
they count as their text.
"""

from __future__ import annotations

from typing import Any

import msgspec

from orbitmq import java_json
from orbitmq.errors import ProtocolError
from orbitmq.protocol.languages import Language, language_named, language_numbered

HeaderParts = tuple[int, Language, int, int, int, str, dict[str, str]]


class _StrictHeader(msgspec.Struct, gc=False):
    """A header as every known client writes it."""

    # Compat: in alphabetical order, as fastjson writes them.
    code: int
    fields: dict[str, str] | None = msgspec.field(default=None, name="extFields")
    flag: int = 0
    language: str = "JAVA"
    opaque: int = 0
    remark: str | None = None
    encoding: str = msgspec.field(default="JSON", name="serializeTypeCurrentRPC")
    version: int = 0


class _HeaderWithoutRemark(msgspec.Struct, gc=False):
    """A header without a remark, which is nearly every header that we write."""

    code: int
    fields: dict[str, str] = msgspec.field(name="extFields")
    flag: int
    language: str
    opaque: int
    encoding: str = msgspec.field(default="JSON", name="serializeTypeCurrentRPC")
    version: int = 0


class _LooseHeader(msgspec.Struct):
    """A header as fastjson would still read it."""

    code: int = 0
    fields: dict[str, Any] | None = msgspec.field(default=None, name="extFields")
    flag: int = 0
    language: str | int | None = "JAVA"
    opaque: int = 0
    remark: Any = None
    version: int = 0


_strict_decoder = msgspec.json.Decoder(_StrictHeader)
_encoder = msgspec.json.Encoder()
_LANGUAGE_NAMES = {language: language.name for language in Language}
_INT_32_MAX = 2**31 - 1


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
    name = _LANGUAGE_NAMES[language]
    if remark:
        return _encoder.encode(
            _StrictHeader(code, fields, flag, name, opaque, remark, "JSON", version)
        )
    return _encoder.encode(_HeaderWithoutRemark(code, fields, flag, name, opaque, "JSON", version))


def decode_header(text: bytes) -> HeaderParts:
    """Read a header, strictly first and as fastjson would if that fails."""
    try:
        header = _strict_decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _decode_loosely(text)
    _check_numbers(header.code, header.version, header.opaque, header.flag)
    return (
        header.code,
        language_named(header.language),
        header.version,
        header.opaque,
        header.flag,
        header.remark or "",
        header.fields or {},
    )


def _decode_loosely(text: bytes) -> HeaderParts:
    header = java_json.decode(text, _LooseHeader)
    _check_numbers(header.code, header.version, header.opaque, header.flag)
    language = header.language
    return (
        header.code,
        language_numbered(language)
        if isinstance(language, int)
        else language_named(language or ""),
        header.version,
        header.opaque,
        header.flag,
        "" if header.remark is None else str(header.remark),
        {
            key: _as_text(key, value)
            for key, value in (header.fields or {}).items()
            if value is not None
        },
    )


def _as_text(key: str, value: object) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case _:
            raise ProtocolError(f"field {key!r} of a header must be text, not {value!r:.60}")


def _check_numbers(*numbers: int) -> None:
    for number in numbers:
        if not -_INT_32_MAX - 1 <= number <= _INT_32_MAX:
            raise ProtocolError(f"number {number} of a header does not fit 32 bits")
