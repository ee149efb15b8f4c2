"""The table `orbitmq_batches`: of each sink, the last batch that its table has.

It is in the schema of the sinks' tables. A batch is recorded in the transaction that adds its rows.
"""

from __future__ import annotations

from typing import Final

import msgspec

from orbitmq.pipelines.tables.batches import Commit
from orbitmq.pipelines.tables.postgres.database import Connection, TableName, execute
from orbitmq.protocol.requests.staged_writes import SourceRange

COMMITS: Final = "orbitmq_batches"
_COLUMNS: Final = """
    CREATE TABLE IF NOT EXISTS {commits} (
        table_name text, sink text, query text NOT NULL, batch bigint NOT NULL,
        source json NOT NULL, committed timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (table_name, sink)
    )
"""


def create_commits(connection: Connection, target: TableName) -> None:
    """Create the table unless it is there."""
    # Two that create it at once would fail.
    execute(connection, "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", COMMITS)
    execute(connection, _COLUMNS, commits=target.beside(COMMITS).quoted)


def last_commit(connection: Connection, target: TableName, sink: str) -> Commit | None:
    """The last batch of a sink that a table has; no other can follow it until the transaction ends."""
    found = execute(
        connection,
        "SELECT query, batch, source::text FROM {commits} "
        "WHERE table_name = %s AND sink = %s FOR UPDATE",
        target.name,
        sink,
        commits=target.beside(COMMITS).quoted,
    ).fetchone()
    if found is None:
        return None
    query, batch, source = found
    return Commit(
        sink=sink,
        query=query,
        batch=batch,
        source=msgspec.json.decode(source, type=SourceRange),
    )


def record(connection: Connection, target: TableName, commit: Commit) -> None:
    """Record a batch; of two that are the first of a sink, the second fails."""
    values = (
        commit.query,
        commit.batch,
        msgspec.json.encode(commit.source).decode(),
        target.name,
        commit.sink,
    )
    commits = target.beside(COMMITS).quoted
    done = execute(
        connection,
        "UPDATE {commits} SET query = %s, batch = %s, source = %s, committed = now() "
        "WHERE table_name = %s AND sink = %s",
        *values,
        commits=commits,
    )
    if not done.rowcount:
        execute(
            connection,
            "INSERT INTO {commits} (query, batch, source, table_name, sink) "
            "VALUES (%s, %s, %s, %s, %s)",
            *values,
            commits=commits,
        )


def forget(connection: Connection, target: TableName) -> None:
    """Forget the batches of a table that is not there any more."""
    execute(
        connection,
        "DELETE FROM {commits} WHERE table_name = %s",
        target.name,
        commits=target.beside(COMMITS).quoted,
    )
