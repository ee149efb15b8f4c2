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


class _Word(NamedTuple):
    text: str
    line: int
    is_name: bool

    @property
    def lower(self) -> str:
        return "" if self.text.startswith("`") else self.text.lower()


@dataclass(slots=True)
class _Level:
    """What is known between one pair of parentheses."""

    has_select: bool = False
    # Whether a comma or JOIN is followed by another table.
    in_tables: bool = False


@dataclass(slots=True)
class _Search:
    words: list[_Word]
    found: list[TableName] = field(default_factory=list)
    local: set[str] = field(default_factory=set)
    levels: list[_Level] = field(default_factory=lambda: [_Level()])

    def run(self) -> list[TableName]:
        for number, word in enumerate(self.words):
            self._take(number, word)
        return [one._replace(is_local=one.name.lower() in self.local) for one in self.found]

    def _take(self, number: int, word: _Word) -> None:
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
            self.local.add(_bare(self.words[at].text).lower())

    def _note_table(self, number: int) -> None:
        if number >= len(self.words):
            return
        word = self.words[number]
        # Spark knows what the others are: functions, parts of a catalog, subqueries.
        is_other = self._text(number + 1) in {"(", "."} or word.lower in {
            "from",
            "lateral",
            "values",
        }
        if word.is_name and not is_other:
            self.found.append(TableName(_bare(word.text), word.line))

    def _text(self, number: int) -> str:
        return self.words[number].text.lower() if 0 <= number < len(self.words) else ""


def tables_in(sql: str) -> list[TableName]:
    """The tables that a query reads; those that it defines itself are marked."""
    words, line = [], 0
    for found in _WORD.finditer(sql):
        if found.lastgroup in {"name", "other"}:
            words.append(_Word(found[0], line, found.lastgroup == "name"))
        elif found.lastgroup == "text":
            words.append(_Word("''", line, is_name=False))
        line += found[0].count("\n")
    return _Search(words).run()


def _bare(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
