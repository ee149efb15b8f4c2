"""Statements of SQL: where one ends, what it asks for, which columns it names.

Spark parses a statement when it runs. What is decided here comes from its words alone, so it is
careful: a statement that may write is refused, and a column that may be needed is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Final

from orbitmq.errors import QueryError
from orbitmq.pipelines.file.sql_names import TableName, Word, tables_in, words_in
from orbitmq.pipelines.suggestions import suggestion
from orbitmq.spark.options.column_names import COLUMN_NAMES, USUAL_COLUMNS

_BYTES_MAX: Final = 1 << 20
_QUERIES: Final = frozenset({"select", "with", "from", "values", "explain", "show", "describe"})
_DESCRIBE: Final = frozenset({"describe", "desc"})
_WRITES: Final = frozenset({"insert", "update", "delete", "merge"})
# A query with one of these may need columns that it does not name.
_ALL_COLUMNS: Final = frozenset({"natural", "table", "transform", "map", "reduce"})


class Kind(Enum):
    """What a statement asks for."""

    QUERY = "a query"
    SHOW_TABLES = "the names of all tables"
    DESCRIBE = "the columns of a table"


@dataclass(frozen=True)
class Statement:
    """One statement, without the semicolon after it."""

    sql: str
    kind: Kind

    @cached_property
    def words(self) -> list[Word]:
        """Its words."""
        return words_in(self.sql)

    @cached_property
    def tables(self) -> list[TableName]:
        """The tables that it reads and does not define itself."""
        if self.kind is Kind.DESCRIBE:
            return [_described(self.words)]
        return [table for table in tables_in(self.sql) if not table.is_local]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of messages that it may need: all that it names, with * the usual ones."""
        named = {name for name in COLUMN_NAMES if name.lower() in self._names}
        if self._takes_all:
            named |= set(USUAL_COLUMNS)
        # Rows can be counted without any column, and a table has at least one.
        return tuple(name for name in COLUMN_NAMES if name in named) or ("queueId",)

    def names(self, column: str) -> bool:
        """Whether it may need a column of this name, of any table."""
        return self._takes_all or column.lower() in self._names

    @cached_property
    def _names(self) -> set[str]:
        return {word.bare.lower() for word in self.words if word.is_name}

    @cached_property
    def _takes_all(self) -> bool:
        """Whether it may need columns that it does not name."""
        return (
            self.words[0].lower == "from"
            or not _ALL_COLUMNS.isdisjoint(self._names)
            or "|>" in self.sql
            or any(self._is_star(number) for number in range(len(self.words)))
        )

    def _is_star(self, number: int) -> bool:
        """Whether a word stands for all columns: not in `count(*)`, nor surely a product."""
        if self.words[number].text != "*":
            return False
        before = self.words[number - 1].lower if number else ""
        if before == "(":
            return number < 2 or self.words[number - 2].lower != "count"
        return before != ")" and not before[:1].isdigit()


def statement_of(sql: str) -> Statement:
    """Look at one statement; raises QueryError if it may not run."""
    if len(sql.encode()) > _BYTES_MAX:
        raise QueryError(f"a query of {len(sql)} characters is too long", hint="at most 1 MiB")
    found, rest = split(sql)
    statements = [*found, rest] if rest else found
    if not statements:
        raise QueryError("there is no query", hint="as in: SELECT * FROM orders LIMIT 10")
    if len(statements) > 1:
        raise QueryError(
            f"there are {len(statements)} statements", hint="give one, or write them to the shell"
        )
    (text,) = statements
    words = words_in(text)
    first = words[0].lower
    _check_reads_only(words)
    if first not in _QUERIES | _DESCRIBE and words[0].text != "(":
        raise QueryError(
            f"{words[0].text!r:.60} begins no query",
            hint=suggestion(first, sorted(_QUERIES)) if first else "begin with SELECT",
        )
    return Statement(text, _kind(words))


def _kind(words: list[Word]) -> Kind:
    first, second = words[0].lower, words[1].lower if len(words) > 1 else ""
    if first == "show" and second == "tables":
        return Kind.SHOW_TABLES
    is_other = second in {"function", "query", "database", "schema", "catalog", *_QUERIES}
    if first in _DESCRIBE and not is_other:
        return Kind.DESCRIBE
    return Kind.QUERY


def _check_reads_only(words: list[Word]) -> None:
    """Refuse what writes: its verb comes first, after the clauses of a WITH, or after FROM t."""
    depth = 0
    for number, word in enumerate(words):
        depth += (word.text == "(") - (word.text == ")")
        follows = words[number + 1].lower if number + 1 < len(words) else ""
        before = words[number - 1].text if number else ")"
        is_insert = word.lower == "insert" and follows in {"into", "overwrite"} and before != "."
        if depth == 0 and word.lower in _WRITES and (is_insert or before == ")"):
            hint = "orbitmq sql only reads"
            if word.lower == "insert":
                hint += "; to write to a topic, use orbitmq pipeline, or Spark as in docs/spark.md"
            raise QueryError(f"{word.text.upper()} is refused", hint=hint)


def _described(words: list[Word]) -> TableName:
    rest = [word for word in words[1:] if word.lower not in {"table", "extended", "formatted"}]
    if len(rest) == 1 and rest[0].is_name:
        return TableName(rest[0].bare, rest[0].line)
    if len(rest) == 3 and rest[1].text == "." and rest[0].is_name and rest[2].is_name:
        return TableName(rest[2].bare, rest[0].line, qualifier=rest[0].bare)
    raise QueryError("DESCRIBE takes the name of one table", hint="as in: DESCRIBE orders")


def split(text: str) -> tuple[list[str], str]:
    """The statements of a text that end in a semicolon, and what is left after them."""
    found: list[str] = []
    begin = 0
    words = words_in(text)
    for number, word in enumerate(words):
        if _opens(words, number):
            return found, text[begin:].strip()
        if word.text == ";":
            if any(begin <= one.start < word.start for one in words):
                found.append(text[begin : word.start].strip())
            begin = word.end
    is_rest = any(one.start >= begin for one in words)
    return found, text[begin:].strip() if is_rest else ""


def _opens(words: list[Word], number: int) -> bool:
    """Whether a text, a quoted name or a comment begins here, and nowhere ends."""
    word = words[number]
    if word.text == "/" and number + 1 < len(words):
        after = words[number + 1]
        return after.text == "*" and after.start == word.end
    return word.text in {"'", '"', "`"}
