"""Values of a pipeline file that are more than a word: durations, types, places."""

from __future__ import annotations

import re
from collections import deque
from pathlib import Path
from typing import Final

_UNITS_MS: Final = {
    "ms": 1,
    "millisecond": 1,
    "s": 1000,
    "second": 1000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
}
_DURATION: Final = re.compile(r"(\d{1,9})\s*([a-z]+)")
_DURATION_MS_MAX: Final = 366 * 86_400_000

# As Spark's SQL names them.
SIMPLE_TYPES: Final = (
    "boolean",
    "byte",
    "tinyint",
    "short",
    "smallint",
    "int",
    "integer",
    "long",
    "bigint",
    "float",
    "double",
    "decimal",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
)
_TOKEN: Final = re.compile(r"\s*([A-Za-z_][A-Za-z_0-9]*|`[^`]+`|\d+|[<>,():])")
_DECIMAL_DIGITS_MAX: Final = 38
_DEPTH_MAX: Final = 32


def location(text: str, folder: Path) -> str:
    """Where something is: a URI as it is given, or a path from the folder of the file on."""
    return text if "://" in text else str(folder / text)


def duration_ms(text: str) -> int | None:
    """Parse a length of time, such as `10 seconds`; None if it is none."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        return None
    number, unit = int(found[1]), found[2]
    factor = _UNITS_MS.get(unit) or _UNITS_MS.get(unit.removesuffix("s"))
    if factor is None or not 0 < number * factor <= _DURATION_MS_MAX:
        return None
    return number * factor


def wrong_word_in_type(text: str) -> str | None:
    """The first word of a column's type that Spark does not know; None if all is well."""
    words, at = [], 0
    text = text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            return text[at:].split()[0]
        words.append(found[1])
        at = found.end()
    parser = _TypeParser(words)
    try:
        parser.type_()
    except _WrongWordError as wrong:
        return wrong.word
    return parser.next_word or None


class _WrongWordError(Exception):
    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word


class _TypeParser:
    """Recognizes types: `map<string, array<decimal(12, 2)>>`."""

    def __init__(self, words: list[str]) -> None:
        self._words = deque(words)
        self._depth = 0

    @property
    def next_word(self) -> str:
        return self._words[0] if self._words else ""

    def type_(self) -> None:
        self._depth += 1
        name = self._take().lower()
        if self._depth > _DEPTH_MAX:
            raise _WrongWordError(name)
        if name in {"array", "map", "struct"}:
            self._expect("<")
            if name == "struct":
                self._field()
                while self._accept(","):
                    self._field()
            else:
                self.type_()
            if name == "map":
                self._expect(",")
                self.type_()
            self._expect(">")
        elif name not in SIMPLE_TYPES:
            raise _WrongWordError(name)
        elif name == "decimal" and self._accept("("):
            self._digits(1)
            if self._accept(","):
                self._digits(0)
            self._expect(")")
        self._depth -= 1

    def _field(self) -> None:
        self._take()
        self._accept(":")
        self.type_()

    def _digits(self, low: int) -> None:
        word = self._take()
        if not word.isdigit() or not low <= int(word[:9]) <= _DECIMAL_DIGITS_MAX:
            raise _WrongWordError(word)

    def _take(self) -> str:
        if not self._words:
            raise _WrongWordError("the end")
        return self._words.popleft()

    def _accept(self, word: str) -> bool:
        if self.next_word != word:
            return False
        self._words.popleft()
        return True

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise _WrongWordError(self.next_word or "the end")
