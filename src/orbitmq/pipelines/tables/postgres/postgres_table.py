"""A table of PostgreSQL that takes each batch of a stream in one transaction.

Tasks copy rows into a staging table of this attempt at the batch. One transaction of the driver then
checks which batch the table has, adds the rows of the attempts that Spark counted, or applies them
by their keys, records the batch, and drops the staging table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, LiteralString

from psycopg import sql
from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import StructType

from orbitmq.errors import DatabaseError
from orbitmq.pipelines.tables.batches import Commit
from orbitmq.pipelines.tables.columns import quoted
from orbitmq.pipelines.tables.postgres import commits, staging
from orbitmq.pipelines.tables.postgres.column_types import NESTED
from orbitmq.pipelines.tables.postgres.database import Connection, Database, execute
from orbitmq.pipelines.tables.postgres.keyed_rows import PLACE, placed, written_fields
from orbitmq.pipelines.tables.postgres.staging import ATTEMPT, REPORT, Staging
from orbitmq.pipelines.tables.postgres.target import (
    TargetRules,
    WrittenColumn,
    identifiers,
    located,
    prepare,
)
from orbitmq.pipelines.tables.postgres.upserts import apply_rows

# A commit that was confirmed must outlast a crash of the server, or its table would lack a batch.
_DURABLE: Final = (
    "SELECT set_config('synchronous_commit', 'on', true) "
    "WHERE current_setting('synchronous_commit') = 'off'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresTable:
    """A table that takes rows and records a commit in one transaction."""

    database: Database
    rules: TargetRules
    columns: tuple[WrittenColumn, ...]

    def last_commit(self, sink: str) -> Commit | None:
        """The last batch of a sink that the table has; None if it has none."""
        with self.database.connected() as connection:
            return commits.last_commit(connection, self.rules.table, sink)

    def write(self, rows: DataFrame, commit: Commit, after: Commit | None) -> None:
        """Write a batch; raises DatabaseError if the last commit is not `after` any more."""
        staged = self.staged()
        reports = self._copied_form(rows).mapInArrow(staged.copier(), REPORT).collect()
        copied = {report.attempt: report.rows for report in reports}
        self.move(staged, copied, commit, after)

    def staged(self) -> Staging:
        """A new staging table."""
        return staging.create(self.database, self.rules, self.columns, self._first)

    @property
    def _first(self) -> Mapping[str, LiteralString]:
        return PLACE if self.rules.key else {}

    def _copied_form(self, rows: DataFrame) -> DataFrame:
        """What tasks copy: the rows, what is nested as JSON."""
        if self.rules.key:
            rows = placed(rows, self.rules, [column.name for column in self.columns])
        return rows.select(*self._first, *map(_copied, self.columns))

    def move(
        self, staged: Staging, copied: Mapping[int, int], commit: Commit, after: Commit | None
    ) -> None:
        """Move the rows of some attempts, so many of each, and record the batch."""
        with self.database.connected() as connection:
            execute(connection, _DURABLE)
            if commits.last_commit(connection, self.rules.table, commit.sink) != after:
                raise DatabaseError(
                    self.database.target,
                    f"another run of {commit.sink} wrote a batch at the same time",
                )
            self._check_copied(connection, staged, copied)
            if self.rules.key:
                apply_rows(connection, self.rules, self.columns, staged, list(copied))
            else:
                self._add(connection, staged, copied)
            commits.record(connection, self.rules.table, commit)
            staging.drop(connection, staged.table)

    def _check_copied(
        self, connection: Connection, staged: Staging, copied: Mapping[int, int]
    ) -> None:
        """Raise DatabaseError unless the rows are there: a server that crashed empties the table."""
        found = execute(
            connection,
            "SELECT {attempt}, count(*) FROM {staging} WHERE {attempt} = ANY(%s) GROUP BY 1",
            list(copied),
            attempt=sql.Identifier(ATTEMPT),
            staging=staged.table.quoted,
        )
        there: dict[int, int] = dict(found.fetchall())
        if there != {attempt: rows for attempt, rows in copied.items() if rows}:
            raise DatabaseError(
                self.database.target,
                f"the staging table has {sum(there.values())} rows of the batch, and tasks copied "
                f"{sum(copied.values())}",
            )

    def _add(self, connection: Connection, staged: Staging, copied: Mapping[int, int]) -> None:
        added = execute(
            connection,
            "INSERT INTO {target} ({stored}) SELECT {staged} FROM {staging} "
            "WHERE {attempt} = ANY(%s)",
            list(copied),
            target=self.rules.table.quoted,
            stored=identifiers(column.stored for column in self.columns),
            staged=identifiers(staged.names()),
            staging=staged.table.quoted,
            attempt=sql.Identifier(ATTEMPT),
        )
        if added.rowcount != sum(copied.values()):
            raise DatabaseError(
                self.database.target,
                f"{self.rules.table} took {added.rowcount} of {sum(copied.values())} rows",
            )


def open_table(database: Database, rules: TargetRules, rows: StructType) -> PostgresTable:
    """Prepare a table for rows of some columns; raises SettingsError if they do not fit."""
    with database.connected() as connection:
        rules = replace(rules, table=located(connection, rules.table))
        commits.create_commits(connection, rules.table)
        columns = prepare(connection, rules, written_fields(rules, rows))
        staging.drop_leftovers(connection, rules)
    return PostgresTable(database=database, rules=rules, columns=columns)


def _copied(column: WrittenColumn) -> Column:
    value = functions.col(quoted(column.name))
    if isinstance(column.type, NESTED):
        value = functions.to_json(value, {"ignoreNullFields": "false"})
    return value.alias(column.name)
