"""The table of a sink, opened with the password that its file or variable has."""

from __future__ import annotations

import os

from pyspark.sql.types import StructType

from orbitmq.errors import SettingsError
from orbitmq.pipelines.plan import JdbcSink
from orbitmq.pipelines.tables.postgres.database import Database, TableName
from orbitmq.pipelines.tables.postgres.postgres_table import PostgresTable, open_table
from orbitmq.pipelines.tables.postgres.target import TargetRules


def sink_table(sink: JdbcSink, name: str, rows: StructType) -> PostgresTable:
    """Open the table of a sink, which errors and records call `name`."""
    database = Database(
        host=sink.host,
        port=sink.port,
        name=sink.database,
        user=sink.user,
        password=_password(sink),
        sslmode=sink.sslmode,
        sslrootcert=sink.sslrootcert,
        statement_ms=sink.statement_ms,
    )
    rules = TargetRules(
        sink=name,
        table=TableName(schema=sink.schema, name=sink.table),
        adds_columns=sink.adds_columns,
        key=sink.key,
        applies_changes=sink.applies_changes,
    )
    return open_table(database, rules, rows)


def _password(sink: JdbcSink) -> str | None:
    if sink.password_variable:
        found = os.environ.get(sink.password_variable)
        if found is None:
            raise SettingsError(
                f"sink {sink.name}: the environment has no variable {sink.password_variable}, "
                "which its password is in"
            )
        return found
    if sink.password_file is None:
        return None
    try:
        return sink.password_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        # What was read is in the text of the latter.
        said = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SettingsError(
            f"sink {sink.name}: {sink.password_file} cannot be read: {said}"
        ) from None
