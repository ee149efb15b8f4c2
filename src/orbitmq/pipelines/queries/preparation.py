"""What a query needs from the cluster before Spark runs it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from orbitmq.errors import QueryError
from orbitmq.model.names import is_group_topic, is_system_topic
from orbitmq.pipelines.queries.statements import Kind, Statement
from orbitmq.pipelines.queries.system_tables import SYSTEM_TABLES, Reading, SystemTable
from orbitmq.pipelines.queries.tables import TopicTable, in_sql, tables_named

if TYPE_CHECKING:
    from orbitmq.client.aio.admin import Admin

_ARROW_TYPES: Final = {
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "BINARY": pa.binary(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}
_SYSTEM_NAME: Final = re.compile(r"`?system`?\s*\.\s*`?(\w+)`?", re.IGNORECASE)


class SystemRows(NamedTuple):
    """The rows of a system table, and its columns as SQL declares them."""

    name: str
    columns: str
    rows: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedQuery:
    """A query that Spark can run, with the tables that it reads."""

    sql: str
    columns: tuple[str, ...]
    topics: tuple[TopicTable, ...]
    # Whether Spark may hand the conditions of the query to the source of each topic.
    pushes_filters: bool
    system_rows: tuple[SystemRows, ...]
    notes: tuple[str, ...]


async def prepare(statement: Statement, admin: Admin) -> PreparedQuery:
    """Find out what the names of a query stand for, and read the system tables among them."""
    names = statement.tables
    topics = await admin.topics.names() if any(not one.qualifier for one in names) else []
    tables = tables_named(names, topics)
    system_rows: list[SystemRows] = []
    notes: list[str] = []
    for table in tables:
        if isinstance(table, SystemTable):
            reading = await table.read(admin, statement.names)
            declared = ", ".join(f"`{one.name}` {one.type}" for one in table.columns)
            system_rows.append(SystemRows(table.name, declared, arrow_rows(table, reading)))
            notes += reading.notes
    return PreparedQuery(
        sql=_with_view_names(statement) if system_rows else statement.sql,
        columns=statement.columns,
        topics=tuple(table for table in tables if isinstance(table, TopicTable)),
        # Spark keeps what it read for one condition, and would use it for the other.
        pushes_filters=len(names) == len(tables) and "with" not in statement.sql.lower(),
        system_rows=tuple(system_rows),
        notes=tuple(notes),
    )


def arrow_rows(table: SystemTable, reading: Reading) -> pa.Table:
    """The rows of a system table, typed."""
    schema = pa.schema([(column.name, _ARROW_TYPES[column.type]) for column in table.columns])
    columns = list(zip(*reading.rows, strict=True)) or [()] * len(schema)
    arrays = [
        pa.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _with_view_names(statement: Statement) -> str:
    """The query with `system.lag` as one name, since a view of a session has no database."""
    sql, end, parts = statement.sql, 0, []
    for word in statement.words:
        found = _SYSTEM_NAME.match(sql, word.start) if word.start >= end else None
        if found is not None and found[1].lower() in SYSTEM_TABLES:
            parts += [sql[end : word.start], view_name(f"system.{found[1].lower()}")]
            end = found.end()
    return "".join([*parts, sql[end:]])


def view_name(name: str) -> str:
    """The name of a view, quoted."""
    return "`" + name.replace("`", "``") + "`"


async def describe(statement: Statement, admin: Admin) -> pa.Table:
    """The columns of a table, without Spark."""
    (name,) = statement.tables
    topics = [] if name.qualifier else await admin.topics.names()
    tables = tables_named([name], topics)
    if not tables:
        raise QueryError(
            f"{name.qualifier}.{name.name} is no table of the cluster",
            hint="DESCRIBE takes topics and system tables",
        )
    (table,) = tables
    if isinstance(table, SystemTable):
        columns = [tuple(column) for column in table.columns]
    else:
        columns = [*_topic_columns()]
    names = ("column", "type", "meaning")
    return pa.table({key: [row[at] for row in columns] for at, key in enumerate(names)})


def _topic_columns() -> list[tuple[str, str, str]]:
    from orbitmq.spark.options.column_names import COLUMN_NAMES, USUAL_COLUMNS
    from orbitmq.spark.rows.schema import table_projection

    return [
        (
            field.name,
            field.dataType.simpleString().upper(),
            "" if field.name in USUAL_COLUMNS else "if it is named: * leaves it out",
        )
        for field in table_projection(COLUMN_NAMES).spark_schema
    ]


async def show_tables(statement: Statement, admin: Admin) -> pa.Table:
    """The names of all tables, as queries have them; topics of the system are left out."""
    rest = [word.lower for word in statement.words[2:]]
    if rest not in ([], ["in", "system"], ["from", "system"]):
        raise QueryError(
            "SHOW TABLES takes no more words here", hint="SHOW TABLES, or SHOW TABLES IN system"
        )
    found: list[tuple[str, str]] = []
    if not rest:
        for name in await admin.topics.names():
            if not is_system_topic(name):
                kind = "topic of a group" if is_group_topic(name) else "topic"
                found.append((in_sql(name), kind))
    found += [(table.name, "system table") for table in SYSTEM_TABLES.values()]
    return pa.table({"table": [name for name, _ in found], "kind": [kind for _, kind in found]})


ANSWERED_HERE: Final = {Kind.SHOW_TABLES: show_tables, Kind.DESCRIBE: describe}
