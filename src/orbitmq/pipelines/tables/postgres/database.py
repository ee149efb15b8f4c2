"""Connections to a database, and what goes wrong with them.

Every connect and statement has a deadline, and a server that has gone away is noticed. No error shows
the password.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql

from orbitmq.errors import DatabaseError

_CONNECT_S: Final = 10
# How long data may go unacknowledged, or a server be silent, before the connection counts as gone.
_SILENCE_S: Final = 30
# A task that hangs between two of its statements must not hold its locks for ever.
_IDLE_MS: Final = 60 * 60 * 1000

Row = tuple[Any, ...]
Connection = psycopg.Connection[Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """Where a database is, and who writes to it; travels to Spark's tasks."""

    host: str
    port: int
    name: str
    user: str
    password: str | None = field(repr=False)
    # As libpq names them.
    sslmode: str = "prefer"
    sslrootcert: str = ""
    # How long a statement may take.
    statement_ms: int

    @property
    def target(self) -> str:
        """Where it is, for people."""
        return f"postgresql://{self.host}:{self.port}/{self.name}"

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """One transaction; what the database refuses, and losing it, is a DatabaseError."""
        try:
            with self._connect() as connection:
                yield connection
        except psycopg.Error as error:
            raise DatabaseError(self.target, reason_of(error)) from None

    def _connect(self) -> Connection:
        settings = {
            "statement_timeout": self.statement_ms,
            "idle_in_transaction_session_timeout": _IDLE_MS,
        }
        return psycopg.connect(
            host=self.host,
            port=self.port,
            dbname=self.name,
            user=self.user,
            # Compat: None lets libpq use its own password file.
            password=self.password,
            client_encoding="utf8",
            application_name="orbitmq pipeline",
            connect_timeout=_CONNECT_S,
            tcp_user_timeout=_SILENCE_S * 1000,
            keepalives_idle=_SILENCE_S // 3,
            keepalives_interval=_SILENCE_S // 3,
            keepalives_count=2,
            options=" ".join(f"-c {name}={value}" for name, value in settings.items()),
            sslmode=self.sslmode,
            sslrootcert=self.sslrootcert or None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """The name of a table, exactly as it is: PostgreSQL's SQL would make it lower case."""

    # Empty for the first schema of the user's search path.
    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name

    @property
    def quoted(self) -> sql.Identifier:
        """As SQL takes it."""
        return sql.Identifier(self.schema, self.name)

    def beside(self, name: str) -> TableName:
        """Another table of the same schema."""
        return TableName(schema=self.schema, name=name)


def execute(
    connection: Connection, text: LiteralString, *values: object, **names: sql.Composable
) -> psycopg.Cursor[Row]:
    """Run a statement; `{name}` in it is an identifier, `%s` a value."""
    return connection.execute(sql.SQL(text).format(**names), values)


def reason_of(error: psycopg.Error) -> str:
    """What the server said, or why it could not be reached."""
    said = error.diag.message_primary
    if said is None:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = lines[0] if lines else type(error).__name__
    column = error.diag.column_name
    return f"column {column}: {said}" if column and column not in said else said
