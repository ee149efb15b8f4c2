"""The table that rows go into: created if missing, checked before any row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from psycopg import sql
from pyspark.sql.types import DataType, StructField, StructType

from orbitmq.errors import SettingsError
from orbitmq.pipelines.suggestions import suggestion
from orbitmq.pipelines.tables.postgres.column_types import created_type, fits
from orbitmq.pipelines.tables.postgres.commits import forget
from orbitmq.pipelines.tables.postgres.database import Connection, TableName, execute

NAME_BYTES_MAX: Final = 63
# Ordinary tables, and those that are partitioned.
_KINDS: Final = ("r", "p")
_COLUMNS: Final = """
    SELECT attname, format_type(atttypid, atttypmod),
        attnotnull AND NOT atthasdef AND attidentity = '',
        attgenerated <> '' OR attidentity = 'a'
    FROM pg_attribute
    WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
    ORDER BY attnum
"""
_UNIQUE_KEYS: Final = """
    SELECT array_agg(attname::text ORDER BY attname::text)
    FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey[0:indnkeyatts - 1])
    WHERE indrelid = %s AND indisunique AND indisvalid AND indimmediate
        AND indpred IS NULL AND indexprs IS NULL
    GROUP BY indexrelid
"""


class WrittenColumn(NamedTuple):
    """A column of the rows, and its name in the table."""

    name: str
    stored: str
    type: DataType


class _Stored(NamedTuple):
    name: str
    type: str
    must_be_given: bool = False
    cannot_be_given: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRules:
    """What a sink says about its table."""

    # PIPELINE/SINK.
    sink: str
    table: TableName
    adds_columns: bool
    # Names of columns that tell rows apart; empty if rows are only added.
    key: tuple[str, ...] = ()
    # Whether rows are changes of rows.
    applies_changes: bool = False


def located(connection: Connection, table: TableName) -> TableName:
    """The table with its schema."""
    if table.schema:
        return table
    found = execute(connection, "SELECT current_schema()").fetchone()
    if found is None or found[0] is None:
        raise SettingsError(
            f"the user has no schema for table {table}", hint="name one, as in table: public.orders"
        )
    return TableName(schema=found[0], name=table.name)


def prepare(
    connection: Connection, rules: TargetRules, rows: StructType
) -> tuple[WrittenColumn, ...]:
    """Make the table fit the rows, or raise SettingsError; says which column goes where."""
    for field in rows.fields:
        if len(field.name.encode()) > NAME_BYTES_MAX:
            raise SettingsError(
                f"{rules.sink}: the name of column {field.name} is longer than {NAME_BYTES_MAX} "
                "bytes, PostgreSQL's limit",
                hint="name it anew in a step, as in SELECT … AS item",
            )
    keys = _key_fields(rules, rows)
    found = execute(
        connection,
        "SELECT c.oid, relkind FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
        "WHERE nspname = %s AND relname = %s",
        rules.table.schema,
        rules.table.name,
    ).fetchone()
    if found is None:
        # One that was moved away had batches that this one has not.
        forget(connection, rules.table)
        _create(connection, rules, rows, keys)
        return tuple(WrittenColumn(one.name, one.name, one.dataType) for one in rows.fields)
    oid, kind = found
    if kind not in _KINDS:
        raise SettingsError(f"{rules.sink}: {rules.table} is not a table")
    written = _matched(connection, rules, rows, oid)
    stored_of = {one.name: one.stored for one in written}
    if keys:
        _check_unique(connection, rules, [stored_of[one.name] for one in keys], oid)
    return written


def _key_fields(rules: TargetRules, rows: StructType) -> list[StructField]:
    by_lower = {field.name.lower(): field for field in rows.fields}
    for name in rules.key:
        if name.lower() not in by_lower:
            raise SettingsError(
                f"{rules.sink}: there is no column {name} to be the key",
                hint=suggestion(name, rows.names),
            )
    return [by_lower[name.lower()] for name in rules.key]


def _create(
    connection: Connection, rules: TargetRules, rows: StructType, keys: Sequence[StructField]
) -> None:
    parts: list[sql.Composable] = [_definition(field) for field in rows.fields]
    if keys:
        parts.append(sql.SQL("PRIMARY KEY ({})").format(identifiers(one.name for one in keys)))
    execute(
        connection,
        "CREATE TABLE {table} ({columns})",
        table=rules.table.quoted,
        columns=sql.SQL(", ").join(parts),
    )


def _definition(field: StructField) -> sql.Composed:
    # Its words are ours.
    kind = sql.SQL(created_type(field.dataType, field.name))
    return sql.SQL("{} {}").format(sql.Identifier(field.name), kind)


def _matched(
    connection: Connection, rules: TargetRules, rows: StructType, oid: int
) -> tuple[WrittenColumn, ...]:
    stored = [_Stored(*row) for row in execute(connection, _COLUMNS, oid)]
    written = []
    for field in rows.fields:
        found = _column(field.name, stored)
        if found is None:
            _add(connection, rules, field, [one.name for one in stored])
            found = _Stored(field.name, created_type(field.dataType, field.name))
        if found.cannot_be_given:
            raise SettingsError(f"{rules.sink}: {rules.table} makes column {found.name} itself")
        if not fits(field.dataType, found.type):
            raise SettingsError(
                f"{rules.sink}: column {found.name} of {rules.table} is {found.type}, which does "
                f"not take all of {field.dataType.simpleString()}",
                hint="cast it in a step, or change the table",
            )
        written.append(WrittenColumn(field.name, found.name, field.dataType))
    names = {one.stored for one in written}
    for one in stored:
        if one.must_be_given and one.name not in names:
            raise SettingsError(
                f"{rules.sink}: {rules.table} needs a value for column {one.name}, "
                "and the rows have none",
                hint="add it in a step, or give it a default in the table",
            )
    return tuple(written)


def _column(name: str, stored: Sequence[_Stored]) -> _Stored | None:
    """The column of a name; in another case only if there is one like that."""
    exact = [one for one in stored if one.name == name]
    alike = [one for one in stored if one.name.lower() == name.lower()]
    if exact:
        return exact[0]
    return alike[0] if len(alike) == 1 else None


def _add(
    connection: Connection, rules: TargetRules, field: StructField, known: Sequence[str]
) -> None:
    if not rules.adds_columns:
        raise SettingsError(
            f"{rules.sink}: {rules.table} has no column {field.name}",
            hint=f"{suggestion(field.name, known)} Or say schema: add-columns",
        )
    execute(
        connection,
        "ALTER TABLE {table} ADD COLUMN {column}",
        table=rules.table.quoted,
        column=_definition(field),
    )


def _check_unique(
    connection: Connection, rules: TargetRules, keys: Sequence[str], oid: int
) -> None:
    """Raise SettingsError if the table itself does not keep keys unique."""
    if [sorted(keys)] not in [list(row) for row in execute(connection, _UNIQUE_KEYS, oid)]:
        raise SettingsError(
            f"{rules.sink}: {rules.table} has no primary key or unique index on "
            f"{', '.join(keys)}, so rows could not be told apart",
            hint=f"ALTER TABLE {rules.table} ADD PRIMARY KEY ({', '.join(keys)})",
        )


def identifiers(names: Iterable[str]) -> sql.Composed:
    """Names as SQL takes them, with commas between."""
    return sql.SQL(", ").join(map(sql.Identifier, names))
