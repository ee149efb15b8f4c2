"""Typed headers: a dataclass per request or response, mapped to string fields.

Every field is sent as a string under its lowerCamelCase name, or under the name given by `wire`.
A field without a default is required; None is not sent.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NewType, Self

import msgspec

from orbitmq.errors import ProtocolError
from orbitmq.java_json import JavaInt, JavaLong
from orbitmq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Callable

# A Java long; a plain int in a header is a Java int.
Long = NewType("Long", int)

_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The fields of a command, typed; subclasses declare them."""

    CODE: ClassVar[RequestCode]

    @classmethod
    def decode(cls, fields: dict[str, str]) -> Self:
        """Read this header from a command's fields; unknown fields are ignored."""
        values: dict[str, Any] = {}
        for name, wire_name, parse, required in _columns(cls):
            text = fields.get(wire_name)
            if text is not None:
                try:
                    values[name] = parse(text)
                except ValueError as error:
                    raise ProtocolError(
                        f"field {wire_name!r} of {cls.__name__} is {text[:60]!r}: {error}"
                    ) from error
            elif required:
                raise ProtocolError(
                    f"field {wire_name!r} of {cls.__name__} is missing",
                    hint=f"the request has {', '.join(sorted(fields)) or 'no fields'}",
                )
        return cls(**values)

    def encode(self) -> dict[str, str]:
        """Write this header as the fields of a command."""
        return {
            wire_name: _text(value)
            for name, wire_name, _, _ in _columns(type(self))
            if (value := getattr(self, name)) is not None
        }


def wire(name: str, default: Any = dataclasses.MISSING) -> Any:
    """Declare a field with a name on the wire that is not its own in camel case."""
    return dataclasses.field(default=default, metadata={"wire": name})


def fast_form(header: type[Header]) -> type[msgspec.Struct]:
    """Derive a struct that reads the same fields directly from a frame, in msgspec's lax mode.

    It has the header's attributes and defaults. The header may still read what the struct refuses.
    The struct also accepts whole numbers written as fractions ("1.0"), which no client sends.
    """
    hints = typing.get_type_hints(header)
    fields = []
    for field in dataclasses.fields(header):
        required = field.default is dataclasses.MISSING
        default = msgspec.NODEFAULT if required else field.default
        shape = _FAST_SHAPES[_plain(hints[field.name])]
        fields.append((field.name, shape, msgspec.field(name=_wire_name(field), default=default)))
    return msgspec.defstruct(header.__name__, fields, gc=False, kw_only=True)


Column = tuple[str, str, "Callable[[str], object]", bool]


_known_columns: dict[type[Header], list[Column]] = {}


def _columns(header: type[Header]) -> list[Column]:
    columns = _known_columns.get(header)
    if columns is None:
        columns = _known_columns[header] = _read_columns(header)
    return columns


def _read_columns(header: type[Header]) -> list[Column]:
    hints = typing.get_type_hints(header)
    return [
        (
            field.name,
            _wire_name(field),
            _PARSERS[_plain(hints[field.name])],
            field.default is dataclasses.MISSING,
        )
        for field in dataclasses.fields(header)
    ]


def _plain(hint: Any) -> Any:
    """Strip `| None` from a hint."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        (hint,) = (part for part in typing.get_args(hint) if part is not type(None))
    return hint


def _wire_name(field: dataclasses.Field[Any]) -> str:
    name: str = field.metadata.get("wire") or _camel(field.name)
    return name


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _whole_number(limit: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        digits = text[1:] if text[:1] in {"-", "+"} else text
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
            raise ValueError("not a whole number")
        number = int(text)
        if not -limit - 1 <= number <= limit:
            raise ValueError(f"outside {-limit - 1} … {limit}")
        return number

    return parse


def _boolean(text: str) -> bool:
    # Compat: to Java everything but "true", in any letter case, is false.
    return text.lower() == "true"


def _fraction(text: str) -> float:
    # Only Python allows underscores between digits.
    if "_" in text:
        raise ValueError("not a number")
    return float(text)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


# Without booleans, since msgspec refuses most of their spellings.
_FAST_SHAPES: Final[dict[Any, Any]] = {str: str, int: JavaInt, Long: JavaLong}
_PARSERS: Final[dict[Any, Callable[[str], object]]] = {
    str: str,
    int: _whole_number(_INT_MAX),
    Long: _whole_number(_LONG_MAX),
    bool: _boolean,
    float: _fraction,
}
