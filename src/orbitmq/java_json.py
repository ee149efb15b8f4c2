"""JSON as Java peers write and read it: the fastjson dialect.

RocketMQ's bodies and config files are fastjson output, which standard parsers refuse:

    {0:"10.0.0.1:10911"}                        integer keys stand unquoted
    {{"brokerName":"a","queueId":0}:5}          maps keyed by an object hold it as the key

`decode` reads both forms and standard JSON; an object key arrives as its own JSON text, the form
that fastjson takes as a quoted key too. `encode` writes either dialect.
"""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import Any, Final, TypeVar

import msgspec

from orbitmq.errors import ProtocolError

T = TypeVar("T")

DEPTH_MAX: Final = 64


class Dialect(Enum):
    """How map keys are written."""

    FASTJSON = "integer keys unquoted, object keys as objects, as every Java version reads"
    STANDARD = "all keys quoted, ASCII only, as any JSON parser reads"


def decode(text: bytes, shape: type[T]) -> T:
    """Read one JSON document of either dialect into `shape`; unknown members are ignored."""
    try:
        return msgspec.json.decode(text, type=shape)
    except (msgspec.ValidationError, RecursionError) as error:
        raise _misshapen(text, error) from error
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Strict parsing failed; it may still be the dialect.
        standard = to_standard(text)
    try:
        return msgspec.json.decode(standard, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _misshapen(text, error) from error


def encode(value: object, dialect: Dialect = Dialect.FASTJSON) -> bytes:
    """Write `value` (structs, maps, lists, scalars) without spaces; None members are left out."""
    out: list[str] = []
    _write(value, out, dialect)
    return "".join(out).encode()


def to_standard(text: bytes) -> bytes:
    """Turn a document of the fastjson dialect into standard JSON."""
    try:
        source = text.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"JSON is not UTF-8 at byte {error.start}") from error
    return _Translation(source).run().encode()


def _misshapen(text: bytes, error: Exception) -> ProtocolError:
    return ProtocolError(f"JSON does not have the expected shape: {error}; it starts {text[:60]!r}")


def _write(value: object, out: list[str], dialect: Dialect) -> None:
    match value:
        case None | bool() | int() | float() if not isinstance(value, Enum):
            out.append(json.dumps(value))
        case Enum():
            out.append(json.dumps(value.value))
        case str():
            out.append(_quoted(value, dialect))
        case dict():
            _write_members(value.items(), out, dialect)
        case msgspec.Struct():
            kind = type(value)
            names = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
            _write_members(((name, getattr(value, field)) for name, field in names), out, dialect)
        case list() | tuple() | set() | frozenset():
            out.append("[")
            for index, item in enumerate(value):
                if index:
                    out.append(",")
                _write(item, out, dialect)
            out.append("]")
        case _:
            raise TypeError(f"no JSON form for {type(value).__name__}")


def _write_members(members: Any, out: list[str], dialect: Dialect) -> None:
    out.append("{")
    separator = ""
    for key, value in members:
        if value is None:
            continue
        out.append(separator)
        out.append(_key(key, dialect))
        out.append(":")
        _write(value, out, dialect)
        separator = ","
    out.append("}")


def _key(key: object, dialect: Dialect) -> str:
    if isinstance(key, str):
        return _quoted(key, dialect)
    bare = encode(key, dialect).decode()
    return bare if dialect is Dialect.FASTJSON else _quoted(bare, dialect)


def _quoted(text: str, dialect: Dialect) -> str:
    return json.dumps(text, ensure_ascii=dialect is Dialect.STANDARD)


_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<mark>[{}\[\]:,])
      | (?P<double>"(?:[^"\\]|\\.)*")
      | (?P<single>'(?:[^'\\]|\\.)*')
      | (?P<bare>[^\s{}\[\]:,"']+)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORDS: Final = frozenset({"true", "false", "null"})


class _Translation:
    """One pass over a document of the dialect, writing standard JSON."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._position = 0
        self._kind = ""
        self._text = ""

    def run(self) -> str:
        """Return the whole document as standard JSON."""
        self._advance()
        document = self._value(0)
        if self._kind:
            raise self._unexpected("the end of the document")
        return document

    def _advance(self) -> None:
        match = _TOKEN.match(self._source, self._position)
        if match is None or match.lastgroup is None:
            if self._source[self._position :].strip():
                raise self._broken(f"cannot read {self._source[self._position :][:20]!r}")
            self._kind, self._text = "", ""
            return
        self._position = match.end()
        self._kind = match.lastgroup
        self._text = match[self._kind]

    def _value(self, depth: int) -> str:
        if depth > DEPTH_MAX:
            raise self._broken(f"nested deeper than {DEPTH_MAX}")
        kind, text = self._kind, self._text
        if text == "{" and kind == "mark":
            return self._object(depth)
        if text == "[" and kind == "mark":
            return self._array(depth)
        if kind in {"double", "single"}:
            self._advance()
            return _standard_string(text)
        if kind == "bare" and (text in _WORDS or _NUMBER.fullmatch(text)):
            self._advance()
            return text
        raise self._unexpected("a value")

    def _object(self, depth: int) -> str:
        members: list[str] = []
        self._advance()
        while self._text != "}" or self._kind != "mark":
            key = self._object_key(depth)
            self._expect(":")
            members.append(f"{key}:{self._value(depth + 1)}")
            if not self._comma_before("}"):
                break
        self._expect("}")
        return "{" + ",".join(members) + "}"

    def _object_key(self, depth: int) -> str:
        kind, text = self._kind, self._text
        if kind == "mark":
            return json.dumps(self._value(depth + 1))
        if not kind:
            raise self._unexpected("a key")
        self._advance()
        return json.dumps(text) if kind == "bare" else _standard_string(text)

    def _array(self, depth: int) -> str:
        items: list[str] = []
        self._advance()
        while self._text != "]" or self._kind != "mark":
            items.append(self._value(depth + 1))
            if not self._comma_before("]"):
                break
        self._expect("]")
        return "[" + ",".join(items) + "]"

    def _comma_before(self, end: str) -> bool:
        if self._kind == "mark" and self._text == end:
            return False
        self._expect(",")
        return True

    def _expect(self, mark: str) -> None:
        if self._kind != "mark" or self._text != mark:
            raise self._unexpected(repr(mark))
        self._advance()

    def _unexpected(self, wanted: str) -> ProtocolError:
        seen = repr(self._text[:20]) if self._kind else "the end"
        return self._broken(f"expected {wanted}, found {seen}")

    def _broken(self, what: str) -> ProtocolError:
        return ProtocolError(f"JSON breaks off at character {self._position}: {what}")


def _standard_string(token: str) -> str:
    content = _ESCAPE.sub(_unescaped, token[1:-1])
    return json.dumps(content)


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "ux" and len(code) > 1:
        return chr(int(code[1:], 16))
    return _ESCAPED.get(code, code)
