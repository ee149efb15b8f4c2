"""What the name of a table in a query stands for: decided here, and nowhere else."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from orbitmq.errors import QueryError, TopicMissingError
from orbitmq.model.names import is_system_topic
from orbitmq.pipelines.file.sql_names import TableName
from orbitmq.pipelines.queries.system_tables import SYSTEM_TABLES, SystemTable
from orbitmq.pipelines.suggestions import suggestion

SYSTEM: Final = "system"


@dataclass(frozen=True, slots=True)
class TopicTable:
    """A topic, under the name that the query has for it."""

    name: str
    topic: str


Table = TopicTable | SystemTable


def tables_named(names: Iterable[TableName], topics: Collection[str]) -> list[Table]:
    """What each name stands for, once; what Spark itself has, as parquet.`folder`, is left out.

    Raises:
        TopicMissingError: there is no such topic.
        QueryError: there is no such system table.
    """
    found: dict[str, Table] = {}
    for one in names:
        table = _table(one, topics)
        if table is None:
            continue
        known = found.setdefault(_key(table), table)
        if known != table:
            raise QueryError(
                f"{one.name!r} and {known.name!r} are one name to SQL, and two topics here",
                hint="query one of them at a time",
            )
    return list(found.values())


def _table(name: TableName, topics: Collection[str]) -> Table | None:
    if name.qualifier.lower() == SYSTEM:
        return _system_table(name.name)
    if name.qualifier:
        return None
    return TopicTable(name.name, _topic(name.name, topics))


def _system_table(name: str) -> SystemTable:
    found = SYSTEM_TABLES.get(name.lower())
    if found is None:
        raise QueryError(f"there is no table {SYSTEM}.{name}", hint=suggestion(name, SYSTEM_TABLES))
    return found


def _topic(name: str, topics: Collection[str]) -> str:
    if name in topics:
        return name
    # SQL does not tell upper from lower case; topics do.
    alike = [topic for topic in topics if topic.lower() == name.lower()]
    if len(alike) == 1:
        return alike[0]
    if name.lower() in SYSTEM_TABLES:
        raise TopicMissingError(
            f"there is no topic {name!r}", hint=f"did you mean {SYSTEM}.{name.lower()}?"
        )
    # SQL reads shop-orders as shop minus orders.
    longer = [topic for topic in sorted(topics) if topic.startswith(f"{name}-")]
    if longer:
        hint = f"did you mean {in_sql(longer[0])}? Such a name is written in backticks"
    else:
        users = [topic for topic in sorted(topics) if not is_system_topic(topic)]
        hint = suggestion(name, map(in_sql, users))
    raise TopicMissingError(f"there is no topic {name!r}", hint=hint)


def _key(table: Table) -> str:
    return table.name.lower()


def in_sql(name: str) -> str:
    """A name as a query has it: in backticks, if SQL needs them."""
    is_plain = name.isascii() and name.isidentifier()
    return name if is_plain else "`" + name.replace("`", "``") + "`"
