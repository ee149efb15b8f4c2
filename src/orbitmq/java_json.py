"""JSON as Java peers write and read it: the fastjson dialect.

RocketMQ's bodies and config files are fastjson output, which standard parsers refuse:

    {0:"10.0.0.1:10911"}                        integer keys are unquoted
    {{"brokerName":"a","queueId":0}:5}          an object may be a key

`decode` reads both forms and standard JSON. An object key becomes its own JSON text, or in an
`ObjectKeyed` map the object; peers in Go write it as text. Reading is as tolerant as fastjson where
peers need it: a null member counts as absent, numbers and booleans may be quoted, names may be
unquoted, and invalid Unicode is replaced.

`encode` writes either dialect. Object keys must be written as objects: fastjson2, which came with
RocketMQ 5.5, refuses them as quoted text.

References (`{"$ref":"$.a"}`, how fastjson writes an object a second time) are not resolved: no body
or file of RocketMQ contains an object twice, and fastjson2 never writes them.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from enum import Enum
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, Final, Generic, TypeVar, Union, get_args, get_origin

import msgspec

from orbitmq.errors import ProtocolError

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

# Numbers within Java's range: a larger one, passed on, would make a body unreadable to Java peers.
JavaInt = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
JavaLong = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

DEPTH_MAX: Final = 64
# Text that strict parsing refuses takes slower code, at worst 0.2 and 1 µs a byte. No peer writes
# such text of these lengths; the bounds keep a hostile one from stalling everybody else.
TOLERATED_BYTES_MAX: Final = 4 * 1024 * 1024
TRANSLATED_BYTES_MAX: Final = 64 * 1024


class Dialect(Enum):
    """How map keys are written."""

    FASTJSON = "integer keys unquoted, object keys as objects, as every Java version reads"
    STANDARD = "all keys quoted, ASCII only, as any JSON parser reads"


class ObjectKeyed(dict[K, V], Generic[K, V]):
    """A map keyed by objects; as a field type, its keys are decoded to the key type."""


class EnumName(str):
    """The name of a Java enum value; C++ and Go peers write its position instead.

    Peers may be newer than the names listed here, so an unknown name is kept as it is.
    """

    __slots__ = ()
    NAMES: ClassVar[tuple[str, ...]]


def decode(text: bytes, shape: type[T], *, tolerated_bytes_max: int = TOLERATED_BYTES_MAX) -> T:
    """Read one JSON document of either dialect into `shape`; unknown members are ignored.

    A longer document than `tolerated_bytes_max` must be standard JSON that fits the shape.
    """
    # Perf: the fastest reader comes first, and nearly every document needs only that.
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        return _decode_standard(text, shape, tolerated_bytes_max)
    if len(text) <= tolerated_bytes_max:
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            return _decode_standard(_with_quoted_keys(text), shape, tolerated_bytes_max)
    return _decode_standard(to_standard(text), shape, tolerated_bytes_max)


def encode(value: object, dialect: Dialect = Dialect.FASTJSON) -> bytes:
    """Write `value` (structs, maps, lists, scalars) without spaces; None members are left out."""
    out: list[str] = []
    _write(value, out, dialect)
    return "".join(out).encode()


def to_standard(text: bytes) -> bytes:
    """Turn a document of the fastjson dialect into standard JSON."""
    if len(text) > TRANSLATED_BYTES_MAX:
        raise ProtocolError(
            f"JSON of {len(text)} bytes is not standard, or not UTF-8; it starts {text[:60]!r}",
            hint=f"such text is accepted up to {TRANSLATED_BYTES_MAX} bytes",
        )
    # Compat: Java replaces invalid UTF-8, and its older fastjson skips a byte order mark.
    return _Translation(text.decode("utf-8-sig", errors="replace")).run().encode()


def _decode_standard(text: bytes, shape: type[T], tolerated_bytes_max: int) -> T:
    """Read standard JSON; text that is not JSON raises other errors than ProtocolError."""
    try:
        return msgspec.json.decode(text, type=shape, dec_hook=_read_own_shape)
    except msgspec.ValidationError as error:
        if len(text) > tolerated_bytes_max:
            raise _misshapen(text, error) from error
        return _decode_tolerantly(text, shape, error)
    except RecursionError as error:
        raise _misshapen(text, error) from error


def _decode_tolerantly(text: bytes, shape: type[T], first_error: Exception) -> T:
    """Read a document whose nulls or quoted numbers do not fit the shape."""
    # Compat: fastjson leaves out null members, but Go and Rust peers write them; Go quotes numbers.
    try:
        pruned = msgspec.json.encode(_without_nulls(msgspec.json.decode(text)))
        return msgspec.json.decode(pruned, type=shape, strict=False, dec_hook=_read_own_shape)
    except (msgspec.ValidationError, RecursionError):
        # The first error is about the document as it was received.
        raise _misshapen(text, first_error) from first_error


def _read_own_shape(shape: Any, value: Any) -> Any:
    """Read the types that msgspec does not know: `ObjectKeyed` maps and `EnumName`s."""
    if get_origin(shape) is ObjectKeyed:
        return _read_object_keys(value, *get_args(shape))
    return _read_enum_name(value, shape)


def _read_object_keys(members: Any, key_shape: Any, value_shape: Any) -> ObjectKeyed[Any, Any]:
    if not isinstance(members, dict):
        raise TypeError(f"Expected `object`, got `{type(members).__name__}`")
    return ObjectKeyed(
        (decode(key.encode(), key_shape), msgspec.convert(value, value_shape, strict=False))
        for key, value in members.items()
    )


def _read_enum_name(value: Any, kind: type[EnumName]) -> EnumName:
    if isinstance(value, str):
        return kind(value)
    if not isinstance(value, int) or not 0 <= value < len(kind.NAMES):
        raise ValueError(f"{value!r} is not a {kind.__name__}; there are {', '.join(kind.NAMES)}")
    return kind(kind.NAMES[value])


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _without_nulls(member) for name, member in value.items() if member is not None
        }
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _misshapen(text: bytes, error: Exception) -> ProtocolError:
    return ProtocolError(f"JSON does not have the expected shape: {error}; it starts {text[:60]!r}")


# Perf: the functions that `json.dumps` uses for quoting, and dialects as module names: with them a
# list of 100,000 names takes 0.2 s instead of 1.
_STANDARD: Final = Dialect.STANDARD
_FASTJSON: Final = Dialect.FASTJSON
_quote: Final = json.encoder.encode_basestring
_quote_ascii: Final = json.encoder.encode_basestring_ascii


def _write(value: object, out: list[str], dialect: Dialect) -> None:
    if type(value) is str:
        # Perf: most values are strings; this comes before the patterns below.
        out.append(_quoted(value, dialect))
        return
    match value:
        case None | bool() | int() | float() if not isinstance(value, Enum):
            out.append(json.dumps(value))
        case Enum():
            out.append(json.dumps(value.value))
        case str():
            out.append(_quoted(value, dialect))
        case dict():
            _write_map(value, out, dialect)
        case msgspec.Struct():
            _write_struct(value, out, dialect)
        case list() | tuple() | set() | frozenset():
            out.append("[")
            for index, item in enumerate(value):
                if index:
                    out.append(",")
                _write(item, out, dialect)
            out.append("]")
        case _:
            raise TypeError(f"no JSON form for {type(value).__name__}")


def _write_struct(value: msgspec.Struct, out: list[str], dialect: Dialect) -> None:
    kind = type(value)
    if dialect is _FASTJSON and _is_plain(kind):
        # Perf: a table of 20,000 groups takes 0.04 s this way, and 3 s member by member.
        out.append(_without_null_members(msgspec.json.encode(value)).decode())
        return
    names = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
    _write_members(((name, getattr(value, field)) for name, field in names), out, dialect)


@cache
def _is_plain(kind: type[msgspec.Struct]) -> bool:
    """Whether msgspec writes such a struct as we do, but for members that are null."""
    return all(_is_plain_shape(field.type) for field in msgspec.structs.fields(kind))


def _is_plain_shape(shape: Any) -> bool:
    origin, arguments = get_origin(shape), get_args(shape)
    if origin is Annotated:
        return _is_plain_shape(arguments[0])
    if origin in {Union, UnionType, list}:
        return all(part is type(None) or _is_plain_shape(part) for part in arguments)
    if origin is dict:
        name, member = arguments
        # Names in a map may have any characters, so that null members would not be found.
        is_nullable = get_origin(member) in {Union, UnionType}
        return name is str and not is_nullable and _is_plain_shape(member)
    if isinstance(shape, type) and issubclass(shape, msgspec.Struct):
        return _is_plain(shape)
    return shape in (str, int, bool)


# Where a name follows an opening bracket or a comma at once, it is no text inside a string: there its
# quotes would have backslashes.
_FURTHER_NULL: Final = re.compile(rb',"[A-Za-z0-9]++":null')
_FIRST_NULL: Final = re.compile(rb'\{"[A-Za-z0-9]++":null,?')


def _without_null_members(text: bytes) -> bytes:
    """Leave out members that are null; `text` is as msgspec writes it."""
    if b":null" not in text:
        return text
    return _FIRST_NULL.sub(b"{", _FURTHER_NULL.sub(b"", text))


def _write_map(value: dict[Any, Any], out: list[str], dialect: Dialect) -> None:
    if dialect is _FASTJSON and set(map(type, value)) == {int} == set(map(type, value.values())):
        # Perf: tables of committed offsets are written every few seconds; 100,000 queues take
        # 0.07 to 0.1 s this way, and 0.7 s number by number.
        out.append(f"{{{','.join([f'{key}:{number}' for key, number in value.items()])}}}")
    else:
        _write_members(value.items(), out, dialect)


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
    return _quote_ascii(text) if dialect is _STANDARD else _quote(text)


# Perf: no pattern here backtracks (`++`, `*+`), so that none takes more than linear time, or memory
# for each character.
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_FLAT_OBJECT: Final = rb'\{(?:[^{}"]++|%b)*+\}' % _STRING
_KEY: Final = rb"(?:-?[0-9]++|%b)(?=\s*+:)" % _FLAT_OBJECT
_UP_TO_KEY: Final = re.compile(
    rb'((?:[^"{,]++|%b|[{,](?!\s*+%b))*+[{,]\s*+)(%b)' % (_STRING, _KEY, _KEY),
    re.DOTALL,
)


def _with_quoted_keys(text: bytes) -> bytes:
    """Quote integer and object keys; returns the same text if there are none.

    Perf: covers all that Java peers write, and is 7 to 9 times as fast as a full translation.
    """
    quoted = bytearray()
    position = 0
    while match := _UP_TO_KEY.match(text, position):
        before, key = match.groups()
        quoted += b'%b"%b"' % (before, key.replace(b"\\", b"\\\\").replace(b'"', b'\\"'))
        position = match.end()
    return bytes(quoted + text[position:]) if position else text


_TOKEN: Final = re.compile(
    r"""\s*+(?:
        (?P<mark>[{}\[\]:,])
      | (?P<double>"[^"\\]*+(?:\\.[^"\\]*+)*+")
      | (?P<single>'[^'\\]*+(?:\\.[^'\\]*+)*+')
      | (?P<bare>[^\s{}\[\]:,"']++)
    )""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED: Final = {letter: letter for letter in "\"'/\\"} | {
    "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "F": "\f",
    **{str(number): chr(number) for number in range(8)},
}  # fmt: skip
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
_WORDS: Final = frozenset({"true", "false", "null"})


class _Translation:
    """One pass over a document of the dialect, writing standard JSON."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._position = 0
        self._kind = ""
        self._text = ""
        self._in_key = False

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
            if self._in_key:
                # Each level would double the backslashes before a quote.
                raise self._broken("an object key inside an object key")
            self._in_key = True
            key = self._value(depth + 1)
            self._in_key = False
            return json.dumps(key)
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
        return ProtocolError(f"JSON is broken at character {self._position}: {what}")


def _standard_string(token: str) -> str:
    content = _ESCAPE.sub(_unescaped, token[1:-1])
    # Compat: Java and JavaScript strings may contain half a character, which is replaced.
    return json.dumps(content.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "ux" and len(code) > 1:
        return chr(int(code[1:], 16))
    try:
        return _ESCAPED[code]
    except KeyError:
        raise ProtocolError(f"JSON has an unknown escape: {match[0]!r}") from None
