"""The staging table of one attempt at a batch, which tasks copy rows into.

Each task tags its rows with its partition and the id of its attempt, and copies them in one
transaction. Rows of attempts that Spark did not count stay where they are, and go with the table.

Threads: the driver's, and those of Spark's Python workers.
Crash: the table is not logged; one of a driver that died is dropped by the next run of its sink.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, LiteralString

import psycopg
import pyarrow as pa
from psycopg import sql
from pyspark import TaskContext

from orbitmq.errors import DatabaseError, RowValueError
from orbitmq.pipelines.tables.postgres.copy_text import copy_lines
from orbitmq.pipelines.tables.postgres.database import (
    Connection,
    Database,
    TableName,
    execute,
    reason_of,
)
from orbitmq.pipelines.tables.postgres.target import TargetRules, WrittenColumn, identifiers

log = logging.getLogger(__name__)

PARTITION: Final = "orbitmq_partition"
ATTEMPT: Final = "orbitmq_attempt"
# What `copier` reports of each task.
REPORT: Final = "partition int, attempt bigint, rows bigint"
LEFTOVERS_MAX: Final = 20
_LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout = '2s'"
_COLUMN: Final = "orbitmq_c{}"
_COLUMN_IN_ERRORS: Final = re.compile(r"\borbitmq_c(\d+)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """One staging table; travels to Spark's tasks."""

    database: Database
    table: TableName
    # The columns of the rows, as people know them.
    columns: tuple[str, ...]

    def names(self) -> list[str]:
        """What the columns are called here, in the order of the rows."""
        return [staged(index) for index in range(len(self.columns))]

    def copier(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """What a task of Spark does with its rows; its result is a `REPORT`."""

        def copy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            assert context is not None
            partition, attempt = context.partitionId(), context.taskAttemptId()
            rows = self.copy(batches, partition=partition, attempt=attempt)
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([partition], pa.int32()),
                    pa.array([attempt], pa.int64()),
                    pa.array([rows], pa.int64()),
                ],
                ["partition", "attempt", "rows"],
            )

        return copy

    def copy(self, batches: Iterable[pa.RecordBatch], *, partition: int, attempt: int) -> int:
        """Copy rows in one transaction, tagged; returns how many."""
        rows = 0
        into = sql.SQL("COPY {} ({}) FROM STDIN").format(
            self.table.quoted, identifiers([PARTITION, ATTEMPT, *self.names()])
        )
        with self.database.connected() as connection:
            for batch in batches:
                lines = copy_lines(batch, (partition, attempt))
                # One statement each, as Spark may take long between two, and statements may not.
                with self._naming_columns(), connection.cursor().copy(into) as copying:
                    copying.write(lines)
                rows += len(batch)
        return rows

    @contextmanager
    def _naming_columns(self) -> Iterator[None]:
        """Say which column of the rows a server refuses."""
        try:
            yield
        except psycopg.errors.UndefinedTable:
            reason = "the staging table is gone: another run of this sink has begun"
            raise DatabaseError(self.database.target, reason) from None
        except psycopg.DataError as error:
            found = _COLUMN_IN_ERRORS.search(error.diag.context or "")
            if found is None:
                raise
            raise RowValueError(self.columns[int(found[1])], reason_of(error)) from None


def staged(index: int) -> str:
    """What a column of the rows is called in a staging table; no name of theirs can be it."""
    return _COLUMN.format(index)


def create(
    database: Database,
    rules: TargetRules,
    columns: Sequence[WrittenColumn],
    first: Mapping[str, LiteralString],
) -> Staging:
    """Create a staging table whose columns have the types of the target's, after some others."""
    name = f"{_prefix(rules)}{secrets.token_hex(8)}"
    staging = Staging(
        database=database,
        table=rules.table.beside(name),
        columns=(*first, *(column.name for column in columns)),
    )
    values = [*map(sql.SQL, first.values()), *(sql.Identifier(one.stored) for one in columns)]
    selected = [
        sql.SQL("{} AS {}").format(value, sql.Identifier(own))
        for value, own in zip(values, staging.names(), strict=True)
    ]
    with database.connected() as connection:
        execute(
            connection,
            "CREATE UNLOGGED TABLE {staging} AS SELECT 0 AS {partition}, 0::bigint AS {attempt}, "
            "{columns} FROM {target} WITH NO DATA",
            staging=staging.table.quoted,
            partition=sql.Identifier(PARTITION),
            attempt=sql.Identifier(ATTEMPT),
            columns=sql.SQL(", ").join(selected),
            target=rules.table.quoted,
        )
    return staging


def drop(connection: Connection, table: TableName) -> None:
    """Drop a staging table, unless a task holds it: then the next run of the sink does it."""
    try:
        with connection.transaction():
            connection.execute(_LOCK_TIMEOUT)
            execute(connection, "DROP TABLE IF EXISTS {table}", table=table.quoted)
    except psycopg.errors.LockNotAvailable:
        log.info("staging table is still in use table=%s", table)


def drop_leftovers(connection: Connection, rules: TargetRules) -> None:
    """Drop staging tables of earlier runs of a sink; if they are many, some of them."""
    found = execute(
        connection,
        "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace "
        "WHERE nspname = %s AND relkind = 'r' AND starts_with(relname, %s) LIMIT %s",
        rules.table.schema,
        _prefix(rules),
        LEFTOVERS_MAX,
    ).fetchall()
    for (name,) in found:
        drop(connection, rules.table.beside(name))


def _prefix(rules: TargetRules) -> str:
    """What the staging tables of a sink begin with, and those of no other."""
    owner = hashlib.sha256(f"{rules.sink}\n{rules.table}".encode()).hexdigest()[:16]
    return f"orbitmq_staging_{owner}_"
