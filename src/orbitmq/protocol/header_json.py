"""The JSON header of a command.

Members: code, language (name), version, opaque, flag, remark?, extFields? (string to string). Java
peers read and write it with fastjson, so the fields may also be numbers and booleans; they count as
their text. A header that no known client writes is read as fastjson reads it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from orbitmq import java_json
from orbitmq.errors import ProtocolError
from orbitmq.java_json import JavaInt
from orbitmq.protocol.frame import check_field_count
from orbitmq.protocol.languages import Language, language_named, language_numbered

# An unusual header takes slower code, at worst 1 µs a byte. It may be as large as one with properties
# of 32 KB, whose separators are escaped.
LOOSE_BYTES_MAX: Final = 200_000

# Below this, reading a header takes no time that counts, however many fields it has.
_COUNTED_BYTES_MIN: Final = 32 * 1024
# Members of a header besides its fields, with room to spare.
_MEMBERS_MAX: Final = 100

HeaderParts = tuple[int, Language, int, int, int, str, dict[str, str]]


class _StrictHeader(msgspec.Struct, gc=False):
    """A header as every known client writes it."""

    # Compat: in alphabetical order, as fastjson writes them.
    code: JavaInt
    fields: dict[str, str] | None = msgspec.field(default=None, name="extFields")
    flag: JavaInt = 0
    language: str = "JAVA"
    opaque: JavaInt = 0
    remark: str | None = None
    encoding: str = msgspec.field(default="JSON", name="serializeTypeCurrentRPC")
    version: JavaInt = 0


# Perf: most replies are like this; the template takes 0.4 µs, the encoder 1.2
# (benchmarks/rpc_round_trip.py).
_WITHOUT_FIELDS: Final = (
    b'{"code":%d,"extFields":{},"flag":%d,"language":"%b","opaque":%d,'
    b'"serializeTypeCurrentRPC":"JSON","version":%d}'
)


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

    code: JavaInt = 0
    fields: dict[str, msgspec.Raw] | None = msgspec.field(default=None, name="extFields")
    flag: JavaInt = 0
    language: str | int | None = "JAVA"
    opaque: JavaInt = 0
    remark: msgspec.Raw = msgspec.Raw(b"null")
    version: JavaInt = 0


_strict_decoder = msgspec.json.Decoder(_StrictHeader)
_encoder = msgspec.json.Encoder()
_LANGUAGE_NAMES = {language: language.name for language in Language}


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
    if not fields and not remark:
        return _WITHOUT_FIELDS % (code, flag, name.encode(), opaque, version)
    if remark:
        return _encoder.encode(
            _StrictHeader(code, fields, flag, name, opaque, remark, "JSON", version)
        )
    return _encoder.encode(_HeaderWithoutRemark(code, fields, flag, name, opaque, "JSON", version))


def decode_header(text: bytes) -> HeaderParts:
    """Read a header, strictly first and as fastjson would if that fails."""
    if len(text) > _COUNTED_BYTES_MIN:
        # Perf: counting takes a hundredth of the time of reading that many fields. Quotes inside
        # values are escaped.
        check_field_count(text.count(b'":') - text.count(b'\\":') - _MEMBERS_MAX)
    try:
        header = _strict_decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _decode_loosely(text)
    if header.fields is not None:
        check_field_count(len(header.fields))
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
    if len(text) > LOOSE_BYTES_MAX:
        raise ProtocolError(
            f"a header of {len(text)} bytes is not as clients write it; it starts {text[:60]!r}",
            hint=f"such a header is read up to {LOOSE_BYTES_MAX} bytes",
        )
    header = java_json.decode(text, _LooseHeader)
    check_field_count(len(header.fields or ()))
    language = header.language
    return (
        header.code,
        language_numbered(language)
        if isinstance(language, int)
        else language_named(language or ""),
        header.version,
        header.opaque,
        header.flag,
        _as_text(header.remark) or "",
        {
            name: value
            for name, raw in (header.fields or {}).items()
            if (value := _as_text(raw)) is not None
        },
    )


def _as_text(value: msgspec.Raw) -> str | None:
    json = bytes(value)
    if json == b"null":
        return None
    # A number keeps its digits as received, so that no precision is lost in a float.
    return java_json.decode(json, str) if json.startswith(b'"') else json.decode(errors="replace")
