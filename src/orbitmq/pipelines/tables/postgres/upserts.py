"""Rows that replace or delete those of their keys, in one transaction.

Of each key the last row of the batch counts. Rows of one queue are in order; if those of a key come
from several queues, or several from one message, nobody knows which is the last, and the batch is
refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from psycopg import sql

from orbitmq.errors import TableError
from orbitmq.pipelines.tables.postgres.database import Connection, execute
from orbitmq.pipelines.tables.postgres.keyed_rows import OFFSET, PLACE
from orbitmq.pipelines.tables.postgres.staging import ATTEMPT, Staging
from orbitmq.pipelines.tables.postgres.target import TargetRules, WrittenColumn, identifiers

_OFFSET: Final = list(PLACE).index(OFFSET)
# The last row of each key.
_LAST: Final = (
    "SELECT DISTINCT ON ({keys}) {deletes} AS is_deleted, {values} FROM {staging} "
    "WHERE {attempt} = ANY(%s) ORDER BY {keys}, {offset} DESC, {place} DESC"
)


def apply_rows(
    connection: Connection,
    rules: TargetRules,
    columns: Sequence[WrittenColumn],
    staged: Staging,
    attempts: list[int],
) -> None:
    """Apply the rows of some attempts; raises TableError if their keys or order are not known."""
    deletes, queue, offset, place = (sql.Identifier(name) for name in staged.names()[: len(PLACE)])
    values = staged.names()[len(PLACE) :]
    own = {column.name.lower(): name for column, name in zip(columns, values, strict=True)}
    keys = [own[name.lower()] for name in rules.key]
    names = {
        "staging": staged.table.quoted,
        "target": rules.table.quoted,
        "attempt": sql.Identifier(ATTEMPT),
        "keys": identifiers(keys),
    }
    _check_present(connection, rules, [*keys, staged.names()[_OFFSET]], attempts, names)
    _check_order(
        connection, rules, attempts, {**names, "queue": queue, "offset": offset, "place": place}
    )
    last = sql.SQL(_LAST).format(
        **names, deletes=deletes, values=identifiers(values), offset=offset, place=place
    )
    stored = {name: column.stored for column, name in zip(columns, values, strict=True)}
    same_key = [
        sql.SQL("target.{} = last.{}").format(sql.Identifier(stored[key]), sql.Identifier(key))
        for key in keys
    ]
    # First, so that what is unique beside the key may move to another row.
    execute(
        connection,
        "DELETE FROM {target} AS target USING ({last}) AS last WHERE is_deleted AND {same_key}",
        attempts,
        **names,
        last=last,
        same_key=sql.SQL(" AND ").join(same_key),
    )
    execute(
        connection,
        "INSERT INTO {target} ({stored}) SELECT {values} FROM ({last}) AS last "
        "WHERE NOT is_deleted ON CONFLICT ({stored_keys}) DO {action}",
        attempts,
        **names,
        last=last,
        stored=identifiers(stored[name] for name in values),
        values=identifiers(values),
        stored_keys=identifiers(stored[key] for key in keys),
        action=_action([stored[name] for name in values if name not in keys]),
    )


def _action(others: Sequence[str]) -> sql.Composable:
    """What happens to a row whose key is there."""
    if not others:
        return sql.SQL("NOTHING")
    changes = [sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others]
    return sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(changes))


def _check_present(
    connection: Connection,
    rules: TargetRules,
    needed: Sequence[str],
    attempts: list[int],
    names: dict[str, sql.Composable],
) -> None:
    is_null = [sql.SQL("{} IS NULL").format(sql.Identifier(name)) for name in needed]
    found = execute(
        connection,
        "SELECT 1 FROM {staging} WHERE {attempt} = ANY(%s) AND ({is_null}) LIMIT 1",
        attempts,
        **names,
        is_null=sql.SQL(" OR ").join(is_null),
    ).fetchone()
    if found is not None:
        raise TableError(
            rules.sink,
            str(rules.table),
            f"a row has no key ({', '.join(rules.key)}), or no message",
            hint="an expectation of the source sends such rows into quarantine",
        )


def _check_order(
    connection: Connection,
    rules: TargetRules,
    attempts: list[int],
    names: dict[str, sql.Composable],
) -> None:
    found = execute(
        connection,
        "SELECT min({queue}), max({queue}) FROM {staging} WHERE {attempt} = ANY(%s) GROUP BY {keys} "
        "HAVING min({queue}) <> max({queue}) OR count(*) > count(DISTINCT ({offset}, {place})) "
        "LIMIT 1",
        attempts,
        **names,
    ).fetchone()
    if found is None:
        return
    first, other = found
    where = f"of one message in {first}" if first == other else f"in the queues {first} and {other}"
    raise TableError(
        rules.sink,
        str(rules.table),
        f"several rows of one key ({', '.join(rules.key)}) are {where}, so it is not known which is "
        "the last",
        hint="send all rows of a key to one queue, as its sharding key"
        if first != other
        else "have the steps make one row of a message and key",
    )
