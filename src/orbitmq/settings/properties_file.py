r"""Java properties files: read with line numbers, and rewritten in place.

A logical line is `name`, then `=`, `:` or blanks, then the value. `#` and `!` start comment lines.
A backslash at the end of a line joins the next one without its indentation; elsewhere it starts
an escape: \t \n \r \f, \uXXXX (UTF-16), or the next character as it is. If a name is set twice, the
last one counts. All this is as in java.util.Properties, except for the encoding: we read UTF-8, or
Latin-1 if the bytes are not UTF-8.

Compat: Java reads properties files as Latin-1, so we write all other characters as \uXXXX.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from orbitmq.errors import PropertiesError

PROPERTIES_BYTES_MAX: Final = 1024 * 1024

_BLANKS: Final = " \t\f"
_NATURAL_LINE: Final = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
_NAME_AND_VALUE: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_TO_ESCAPE: Final = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyLine:
    """One name and its value, and the natural lines they are on."""

    name: str
    value: str
    line: int  # the first one, counted from 1
    line_end: int  # the one after the last


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertiesFile:
    """The text of a properties file, and its properties."""

    lines: tuple[tuple[str, str], ...]  # natural lines: text, line end
    properties: tuple[PropertyLine, ...]
    problems: tuple[PropertiesError, ...]

    @classmethod
    def parse(cls, content: bytes | str, *, name: str) -> PropertiesFile:
        """Parse a file; faulty lines become problems, which call the file `name`."""
        text = _decode(content, name)
        lines = tuple(
            (match[1], match[2]) for match in _NATURAL_LINE.finditer(text) if match.group()
        )
        properties: list[PropertyLine] = []
        problems: list[PropertiesError] = []
        index = 0
        while index < len(lines):
            first = index
            logical, index = _logical_line(lines, first)
            if not logical:
                continue
            match = _NAME_AND_VALUE.fullmatch(logical)
            assert match is not None, "every line has a name, if only an empty one"
            try:
                properties.append(
                    PropertyLine(
                        name=_unescape(match[1]),
                        value=_unescape(match[2]),
                        line=first + 1,
                        line_end=index + 1,
                    )
                )
            except ValueError as error:
                problems.append(PropertiesError(f"{name}:{first + 1}", str(error)))
        return cls(lines=lines, properties=tuple(properties), problems=tuple(problems))

    def with_values(self, values: Mapping[str, str]) -> str:
        """Return the text with new values: in place if the name is set, else at the end."""
        # If a name is set twice the last one counts, so that one is replaced.
        existing = {found.name: found for found in self.properties if found.name in values}
        starts = {found.line: found for found in existing.values()}
        line_end = self.lines[0][1] if self.lines and self.lines[0][1] else "\n"
        written: list[str] = []
        line = 1
        while line <= len(self.lines):
            replaced = starts.get(line)
            if replaced is None:
                text, end = self.lines[line - 1]
                written.append(text + (end or line_end))
                line += 1
            else:
                written.append(write_property(replaced.name, values[replaced.name]) + line_end)
                line = replaced.line_end
        added = [
            write_property(name, value) + line_end
            for name, value in values.items()
            if name not in existing
        ]
        if added and written and _is_continued(written[-1].rstrip("\r\n")):
            # A backslash at the end of the file would swallow the first new line; and after a
            # carriage return, a single line feed would not end another line.
            written.append(line_end * 2 if written[-1].endswith("\r") else line_end)
        written += added
        return "".join(written)


def encoding_of(content: bytes) -> str:
    """Return the encoding of a file: UTF-8, or else Latin-1."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def write_property(name: str, value: str) -> str:
    """Write one line, without its line end, with as few escapes as possible."""
    escaped_name = re.sub(r"([ =:])", r"\\\1", _escape(name))
    if escaped_name.startswith(("#", "!")):
        escaped_name = "\\" + escaped_name
    escaped_value = _escape(value)
    if escaped_value.startswith(" "):
        escaped_value = "\\" + escaped_value
    return f"{escaped_name}={escaped_value}"


def _decode(content: bytes | str, name: str) -> str:
    encoded = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    if len(encoded) > PROPERTIES_BYTES_MAX:
        raise PropertiesError(
            name,
            f"more than {PROPERTIES_BYTES_MAX} bytes",
            hint="check that this is the right file",
        )
    if isinstance(content, str):
        return content.removeprefix("\ufeff")
    return content.decode(encoding_of(content)).removeprefix("\ufeff")


def _logical_line(lines: tuple[tuple[str, str], ...], index: int) -> tuple[str, int]:
    """Join a line with its continuation lines; returns it and the index after it."""
    logical = lines[index][0].lstrip(_BLANKS)
    index += 1
    if logical.startswith(("#", "!")) or logical == "\\":
        # A lone backslash is an empty line; the line after it may be a comment.
        return "", index
    pieces = [logical]
    while _is_continued(pieces[-1]):
        pieces[-1] = pieces[-1][:-1]
        if index == len(lines):
            break
        pieces.append(lines[index][0].lstrip(_BLANKS))
        index += 1
    return "".join(pieces), index


def _is_continued(line: str) -> bool:
    """Whether the line ends in an unescaped backslash."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str) -> str:
    # Errors do not show the text: it may be a password.
    if "\\" not in text:
        return text

    def character(match: re.Match[str]) -> str:
        if match[1] is not None:
            return chr(int(match[1], 16))
        if match[2] == "u":
            raise ValueError("\\u without four hexadecimal digits")
        return _ESCAPED.get(match[2], match[2])

    plain = _ESCAPE.sub(character, text)
    try:
        # Two escapes may be the halves of one character above U+FFFF.
        return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise ValueError("half of a UTF-16 pair") from None


def _escape(text: str) -> str:
    return "".join(_TO_ESCAPE.get(character) or _escape_other(character) for character in text)


def _escape_other(character: str) -> str:
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
