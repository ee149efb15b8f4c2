"""The types an option can have: how each is parsed and written as text.

Files, the environment, flags and live updates carry text. Parsing is strict: a value that is not
fully understood is refused, where RocketMQ would silently keep the default.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Nineteen digits hold every Java long; a longer number is too large anyway.
WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionKind:
    """One type: its name and accepted values for display, and how to parse and write it."""

    name: str
    takes: str
    parse: Callable[[str], object]
    write: Callable[[object], str]
    holds: Callable[[object], bool]
    members: tuple[str, ...] = ()


def _parse_bool(text: str) -> bool:
    lowered = text.lower()
    if lowered not in {"true", "false"}:
        raise ValueError(text)
    return lowered == "true"


def _write_bool(value: object) -> str:
    return "true" if value else "false"


def _parse_int(text: str) -> int:
    # int() alone would also accept 1_000 and digits of other scripts, which no Java peer reads.
    if not WHOLE_NUMBER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _parse_float(text: str) -> float:
    number = float(text)
    if "_" in text or not math.isfinite(number):
        raise ValueError(text)
    return number


def _parse_path(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError(text)
    return Path(text).expanduser()


def _parse_optional_path(text: str) -> Path | None:
    return _parse_path(text) if text else None


def _parse_optional_int(text: str) -> int | None:
    return _parse_int(text) if text else None


def _write_optional(value: object) -> str:
    return "" if value is None else str(value)


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(item for piece in text.split(";") if (item := piece.strip()))


def _write_list(value: object) -> str:
    assert isinstance(value, tuple)
    return ";".join(value)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_list(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, str) for item in value)


KINDS: Final[dict[object, OptionKind]] = {
    bool: OptionKind(
        name="boolean",
        takes="true or false",
        parse=_parse_bool,
        write=_write_bool,
        holds=lambda value: isinstance(value, bool),
    ),
    int: OptionKind(
        name="whole number", takes="a whole number", parse=_parse_int, write=str, holds=_is_int
    ),
    int | None: OptionKind(
        name="whole number",
        takes="a whole number, or nothing",
        parse=_parse_optional_int,
        write=_write_optional,
        holds=lambda value: value is None or _is_int(value),
    ),
    float: OptionKind(
        name="number",
        takes="a number",
        parse=_parse_float,
        write=str,
        holds=lambda value: isinstance(value, float) or _is_int(value),
    ),
    str: OptionKind(
        name="text",
        takes="any text",
        parse=str,
        write=str,
        holds=lambda value: isinstance(value, str),
    ),
    Path: OptionKind(
        name="path",
        takes="a path",
        parse=_parse_path,
        write=str,
        holds=lambda value: isinstance(value, Path),
    ),
    Path | None: OptionKind(
        name="path",
        takes="a path, or nothing",
        parse=_parse_optional_path,
        write=_write_optional,
        holds=lambda value: value is None or isinstance(value, Path),
    ),
    tuple[str, ...]: OptionKind(
        name="list",
        takes="texts separated by ';'",
        parse=_parse_list,
        write=_write_list,
        holds=_is_list,
    ),
}


def kind_of(annotation: object) -> OptionKind:
    """Return the kind of a field with this annotation."""
    try:
        return KINDS[annotation]
    except (KeyError, TypeError):
        if isinstance(annotation, type) and issubclass(annotation, enum.StrEnum):
            return _kind_of_enum(annotation)
        raise TypeError(f"an option cannot have the type {annotation!r}") from None


def _kind_of_enum(members: type[enum.StrEnum]) -> OptionKind:
    """Build the kind of an enum; parsing ignores letter case."""
    by_lowered = {member.value.lower(): member for member in members}

    def parse(text: str) -> enum.StrEnum:
        try:
            return by_lowered[text.lower()]
        except KeyError:
            raise ValueError(text) from None

    return OptionKind(
        name="choice",
        takes="one of " + ", ".join(members),
        parse=parse,
        write=str,
        holds=lambda value: isinstance(value, members),
        members=tuple(members),
    )
