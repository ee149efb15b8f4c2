"""SQL92 text split into tokens, the longest one at each position, as in RocketMQ."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from orbitmq.errors import FilterSyntaxError


class TokenKind(Enum):
    """What a token is; the values appear in error messages."""

    AND = "AND"
    OR = "OR"
    NOT = "NOT"
    BETWEEN = "BETWEEN"
    IN = "IN"
    IS = "IS"
    NULL = "NULL"
    TRUE = "TRUE"
    FALSE = "FALSE"
    CONTAINS = "CONTAINS"
    STARTSWITH = "STARTSWITH"
    ENDSWITH = "ENDSWITH"
    EQUAL = "="
    NOT_EQUAL = "<>"
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    OPEN = "("
    CLOSE = ")"
    COMMA = ","
    PLUS = "+"
    MINUS = "-"
    NAME = "a property"
    TEXT = "a string in single quotes"
    WHOLE = "a whole number"
    DECIMAL = "a decimal number"
    END = "the end"


class Token(NamedTuple):
    """One token, as written, and the column of its first character, counted from 1."""

    kind: TokenKind
    text: str
    column: int


_BY_TEXT: Final = {kind.value: kind for kind in TokenKind}

# Perf: no repetition backtracks (`++`, `*+`), so that a token takes time linear in its length.
_COMMENT: Final = r"--[^\n\r]*+(?:\r\n|\n|\r) |"
_TOKENS: Final = r"""
      (?P<blank> [ \t\n\r\f]++ | {comment} /\*.*?\*/ )
    | (?P<decimal> (?:[0-9]++\.[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)? | [0-9]++[eE][+-]?[0-9]++ )
    | (?P<whole> 0 | [1-9][0-9]*+[lL]? )
    | (?P<text> '[^']*+(?:''[^']*+)*' )
    | (?P<word> [A-Za-z_$][A-Za-z0-9_$]*+ )
    | (?P<symbol> <> | <= | >= | [=<>(),+-] )
"""
_TOKEN: Final = re.compile(_TOKENS.format(comment=_COMMENT), re.VERBOSE | re.DOTALL)
# For the last line. There `--` opens no comment, and the other pattern would search a line end to
# the end of the expression each time.
_LAST_LINE_TOKEN: Final = re.compile(_TOKENS.format(comment=""), re.VERBOSE | re.DOTALL)

_KINDS: Final = {
    "decimal": TokenKind.DECIMAL,
    "whole": TokenKind.WHOLE,
    "text": TokenKind.TEXT,
}


def tokens(expression: str) -> Iterator[Token]:
    """Yield the tokens, the last being END; the lexer stops at the first mistake.

    Compat: `--` opens a comment only if a line end follows it; else it is two minus signs.
    """
    last_line_at = max(expression.rfind("\n"), expression.rfind("\r")) + 1
    at = 0
    while at < len(expression):
        pattern = _TOKEN if at < last_line_at else _LAST_LINE_TOKEN
        match = pattern.match(expression, at)
        if match is None:
            raise FilterSyntaxError(expression, at + 1, _explain(expression[at:]))
        group, text = match.lastgroup, match[0]
        if group != "blank":
            yield Token(_kind(str(group), text), text, at + 1)
        at = match.end()
    yield Token(TokenKind.END, "", len(expression) + 1)


def _kind(group: str, text: str) -> TokenKind:
    if group == "word":
        return _BY_TEXT.get(text.upper(), TokenKind.NAME)
    if group == "symbol":
        return _BY_TEXT[text]
    return _KINDS[group]


def _explain(rest: str) -> str:
    if rest.startswith("'"):
        return "the string that begins here has no closing single quote"
    if rest.startswith("/*"):
        return "the comment that begins here has no closing */"
    if rest.startswith("!="):
        return "there is no !=; write <>"
    if rest.startswith('"'):
        return "unexpected double quote; write strings in single quotes"
    return f"unexpected character {rest[0]!r}"
