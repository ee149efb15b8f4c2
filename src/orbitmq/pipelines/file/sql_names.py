"""Which tables a SQL query reads, by its words.

Only what is surely the name of a table counts, so that no valid query is refused: Spark parses
the query when it runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_WORD: Final = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<text>[rR]?'(?:[^'\\]|\\.|'')*'|[rR]?"(?:[^"\\]|\\.|"")*")
    |(?P<name>`(?:[^`]|``)+`|[^\W\d]\w*)
    |(?P<other>\d[\w.]*|.)""",
    re.VERBOSE | re.DOTALL,
)
# A comma after one of these does not begin another table.
_ENDS_TABLES: Final = frozenset(
    [
        "where",
        "group",
        "having",
        "order",
        "sort",
        "cluster",
        "distribute",
        "limit",
        "window",
        "select",
        "union",
        "intersect",
        "except",
        "minus",
        "on",
        "using",
        "lateral",
        "pivot",
        "unpivot",
        "tablesample",
    ]
)


class TableName(NamedTuple):
    """A table in a query; the line counts from 0."""

    name: str
    line: int
    # Whether the query also defines it, in a WITH clause: it may read both.
    is_local: bool = False
    # What is before its dot, as `system`; empty if it has none.
    qualifier: str = ""


class Word(NamedTuple):
    """A name, a number or a sign of a query, or a text, as ''; the line counts from 0."""

    text: str
    line: int
    is_name: bool
    # Where it begins and ends in the query.
    start: int
    end: int

    @property
    def lower(self) -> str:
        """A keyword, or a name without quotes, in lowercase; empty if it is quoted."""
        return "" if self.text.startswith("`") else self.text.lower()

    @property
    def bare(self) -> str:
        """A name without its quotes."""
        if self.text.startswith("`"):
            return self.text[1:-1].replace("``", "`")
        return self.text


@dataclass(slots=True)
class _Level:
    """What is known between one pair of parentheses."""

    has_select: bool = False
    # Whether a comma or JOIN is followed by another table.
    in_tables: bool = False


@dataclass(slots=True)
class _Search:
    words: list[Word]
    found: list[TableName] = field(default_factory=list)
    local: set[str] = field(default_factory=set)
    levels: list[_Level] = field(default_factory=lambda: [_Level()])

    def run(self) -> list[TableName]:
        for number, word in enumerate(self.words):
            self._take(number, word)
        return [
            one._replace(is_local=not one.qualifier and one.name.lower() in self.local)
            for one in self.found
        ]

    def _take(self, number: int, word: Word) -> None:
        level = self.levels[-1]
        if word.text == "(":
            self.levels.append(_Level())
        elif word.text == ")":
            if len(self.levels) > 1:
                self.levels.pop()
        elif self._text(number - 1) == ".":
            pass  # The column of a table, whatever its name.
        elif word.lower == "select":
            level.has_select, level.in_tables = True, False
        elif word.lower == "as" and self._text(number + 1) == "(":
            self._note_local(number)
        elif word.lower == "from" and self._begins_tables(number, level):
            level.in_tables = True
            self._note_table(number + 1)
        elif word.lower == "join" or (word.text == "," and level.in_tables):
            self._note_table(number + 1)
        elif word.lower in _ENDS_TABLES:
            level.in_tables = word.lower in {"on", "using", "tablesample"} and level.in_tables

    def _begins_tables(self, number: int, level: _Level) -> bool:
        # Not `EXTRACT(day FROM t)`, `TRIM(FROM t)`, nor `a IS DISTINCT FROM b`.
        before = self._text(number - 1)
        is_first = len(self.levels) == 1 or (before == "(" and self._text(number - 2) != "trim")
        return (level.has_select or is_first) and before != "distinct"

    def _note_local(self, number: int) -> None:
        """Note a name of a WITH clause, which may be followed by its columns."""
        at = number - 1
        if self._text(at) == ")":
            while at >= 0 and self._text(at) != "(":
                at -= 1
            at -= 1
        if at >= 0 and self.words[at].is_name:
            self.local.add(self.words[at].bare.lower())

    def _note_table(self, number: int) -> None:
        if number >= len(self.words):
            return
        word = self.words[number]
        if not word.is_name or word.lower in {"from", "lateral", "values"}:
            return
        qualifier = ""
        if self._text(number + 1) == "." and number + 2 < len(self.words):
            qualifier, number = word.bare, number + 2
            word = self.words[number]
        # Spark knows what the others are: functions, parts of a catalog, subqueries.
        if word.is_name and self._text(number + 1) not in {"(", "."}:
            self.found.append(TableName(word.bare, word.line, qualifier=qualifier))

    def _text(self, number: int) -> str:
        return self.words[number].text.lower() if 0 <= number < len(self.words) else ""


def words_in(sql: str) -> list[Word]:
    """The words of a query, without comments."""
    words, line = [], 0
    for found in _WORD.finditer(sql):
        kind = found.lastgroup
        if kind in {"name", "other"}:
            words.append(Word(found[0], line, kind == "name", *found.span()))
        elif kind == "text":
            words.append(Word("''", line, kind == "name", *found.span()))
        line += found[0].count("\n")
    return words


def tables_in(sql: str) -> list[TableName]:
    """The tables that a query reads; those that it defines itself are marked."""
    return _Search(words_in(sql)).run()
