"""Strings parsed as Java parses them, and numbers compared as Java compares them.

Properties are strings; the other side of a comparison decides how one is parsed.
"""

from __future__ import annotations

import math
import re
from typing import Final

from orbitmq.errors import FilterEvaluationError
from orbitmq.filtering.expression import NumberKind

INTEGER_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

# What Java's `trim` removes at both ends: everything up to and including the space.
TRIMMED: Final = "".join(map(chr, range(0x21)))

# Longer text is no number. A filter may read a property thousands of times, and the property may
# have 32 KB.
NUMBER_CHARACTERS_MAX: Final = 256

_DECIMAL: Final = re.compile(
    r"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?(?P<suffix>[fFdD])?"
)
_NAMED: Final = re.compile(r"[+-]?(?:NaN|Infinity)")
_HEXADECIMAL: Final = re.compile(
    r"(?P<number>[+-]?0[xX](?:[0-9a-fA-F]++\.?|[0-9a-fA-F]*+\.[0-9a-fA-F]++)[pP][+-]?[0-9]++)[fFdD]?"
)
_DIGITS_MAX: Final = len(str(LONG_MAX))


def read_integer(text: str) -> int:
    """Read a whole number of 32 bits."""
    return _whole(text, INTEGER_MAX, NumberKind.INTEGER)


def read_long(text: str) -> int:
    """Read a whole number of 64 bits."""
    return _whole(text, LONG_MAX, NumberKind.LONG)


def read_double(text: str) -> float:
    """Read a number with or without a fraction, in any of Java's spellings."""
    if len(text) > NUMBER_CHARACTERS_MAX:
        raise _unreadable(text, NumberKind.DOUBLE)
    trimmed = text.strip(TRIMMED)
    if match := _DECIMAL.fullmatch(trimmed):
        return float(trimmed[:-1] if match["suffix"] else trimmed)
    if _NAMED.fullmatch(trimmed):
        return float(trimmed)
    if match := _HEXADECIMAL.fullmatch(trimmed):
        try:
            return float.fromhex(match["number"])
        except OverflowError:
            return -math.inf if trimmed.startswith("-") else math.inf
    raise _unreadable(text, NumberKind.DOUBLE)


def read_boolean(text: str) -> bool:
    """Read a truth value: anything but `true` is false."""
    return len(text) == len("true") and text.lower() == "true"


def compare_doubles(left: float, right: float) -> int:
    """Order two numbers: NaN equals itself and is above all others, -0.0 is below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right and left != 0.0:
        return 0
    return _rank(left) - _rank(right)


def _rank(number: float) -> int:
    """Order the remaining cases: zeros, and NaN against anything."""
    if math.isnan(number):
        return 2
    return 0 if math.copysign(1.0, number) < 0 and number == 0.0 else 1


def _whole(text: str, highest: int, kind: NumberKind) -> int:
    if len(text) > NUMBER_CHARACTERS_MAX:
        raise _unreadable(text, kind)
    digits = text[1:] if text[:1] in ("+", "-") else text
    # Compat: Java accepts decimal digits of all scripts, as long as each is one UTF-16 unit.
    if not digits.isdecimal() or not (digits.isascii() or max(digits) <= "\uffff"):
        raise _unreadable(text, kind)
    if len(digits) > _DIGITS_MAX:
        # A number of that length fits only with leading zeros; Python limits the digits it parses.
        digits = "".join(str(int(digit)) for digit in digits).lstrip("0") or "0"
        if len(digits) > _DIGITS_MAX:
            raise _unreadable(text, kind)
    number = -int(digits) if text[0] == "-" else int(digits)
    if -highest - 1 <= number <= highest:
        return number
    raise _unreadable(text, kind)


def _unreadable(text: str, kind: NumberKind) -> FilterEvaluationError:
    return FilterEvaluationError(f"the property value {text[:50]!r} is not {kind.value}")
