"""Rows replace and delete others of their key in a table of PostgreSQL, in the order of messages."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from orbitmq.errors import DatabaseError, SettingsError, TableError
from orbitmq.pipelines.tables.batches import Commit
from orbitmq.pipelines.tables.postgres.database import Database, TableName
from orbitmq.pipelines.tables.postgres.keyed_rows import PLACE
from orbitmq.pipelines.tables.postgres.postgres_table import PostgresTable, open_table
from orbitmq.pipelines.tables.postgres.target import TargetRules
from orbitmq.protocol.requests.staged_writes import SourceRange
from tests.integration.pipelines.tables.postgres.conftest import Query

MESSAGE = (
    StructType()
    .add("topic", StringType())
    .add("brokerName", StringType())
    .add("queueId", IntegerType())
    .add("queueOffset", LongType())
)
ORDER = StructType().add("id", LongType()).add("item", StringType()).add("note", StringType())
PLAIN = StructType([*ORDER, *StructType().add("message", MESSAGE)])
CHANGES = (
    StructType()
    .add("op", StringType())
    .add("before", ORDER)
    .add("after", ORDER)
    .add("message", MESSAGE)
)


class Row(NamedTuple):
    """A row and where it is."""

    id: int | None
    item: str | None = None
    note: str | None = None
    offset: int | None = 0
    place: int = 0
    queue: str = "orders a 0"
    deletes: bool = False


def opened(
    database: Database, schema: StructType = PLAIN, *, key: tuple[str, ...] = ("id",), **named: Any
) -> PostgresTable:
    rules = TargetRules(
        sink="shop/table",
        table=TableName(schema="", name="orders"),
        adds_columns=False,
        key=key,
        **named,
    )
    return open_table(database, rules, schema)


def applied(table: PostgresTable, batch: int, *rows: Row) -> None:
    """One batch; a task copied it twice."""
    staged = table.staged()
    made = pa.RecordBatch.from_arrays(
        [
            pa.array([row.deletes for row in rows], pa.bool_()),
            pa.array([row.queue for row in rows], pa.string()),
            pa.array([row.offset for row in rows], pa.int64()),
            pa.array([row.place for row in rows], pa.int32()),
            pa.array([row.id for row in rows], pa.int64()),
            pa.array([row.item for row in rows], pa.string()),
            pa.array([row.note for row in rows], pa.string()),
        ],
        [*PLACE, "id", "item", "note"],
    )
    for attempt in (1, 2):
        staged.copy([made], partition=0, attempt=attempt)
    table.move(staged, {2: len(rows)}, commit(batch), commit(batch - 1) if batch else None)


def commit(batch: int) -> Commit:
    source = SourceRange(start=f"end-{batch - 1}" if batch else "", end=f"end-{batch}")
    return Commit(sink="shop/table", query="q", batch=batch, source=source)


def test_of_each_key_the_last_row_counts(database: Database, query: Query) -> None:
    table = opened(database)

    applied(
        table, 0,
        Row(1, "second", offset=10), Row(1, "first", offset=9), Row(2, "only", "kept", offset=3),
        Row(3, "upserted", offset=4, place=1), Row(3, offset=4, place=0, deletes=True),
        Row(4, "inserted", offset=5), Row(4, offset=6, deletes=True),
        Row(5, offset=7, deletes=True),
    )  # fmt: skip
    after_one = query("SELECT * FROM orders ORDER BY id")
    applied(
        table, 1, Row(2, "new", offset=20), Row(1, offset=21, deletes=True), Row(6, "x", offset=22)
    )

    assert after_one == [(1, "second", None), (2, "only", "kept"), (3, "upserted", None)]
    assert query("SELECT * FROM orders ORDER BY id") == [
        (2, "new", None), (3, "upserted", None), (6, "x", None),
    ]  # fmt: skip
    assert table.last_commit("shop/table") == commit(1)


def test_a_key_may_have_several_columns_and_be_the_whole_row(
    database: Database, query: Query
) -> None:
    table = opened(database, key=("item", "ID", "note"))

    applied(table, 0, Row(1, "a", "x"), Row(1, "b", "x", offset=1), Row(1, "a", "x", offset=2))
    applied(table, 1, Row(1, "a", "x", offset=3), Row(1, "b", "x", offset=4, deletes=True))

    assert query("SELECT * FROM orders") == [(1, "a", "x")]


def test_a_deletion_needs_the_key_only(database: Database, query: Query) -> None:
    query("CREATE TABLE orders (id bigint UNIQUE, item text NOT NULL, note text)")
    table = opened(database)
    applied(table, 0, Row(1, "tea"), Row(2, "cake"))

    applied(table, 1, Row(1, None, deletes=True))

    assert query("SELECT id FROM orders") == [(2,)]


def test_what_is_unique_may_move_to_another_row(database: Database, query: Query) -> None:
    query("CREATE TABLE orders (id bigint PRIMARY KEY, item text UNIQUE, note text)")
    table = opened(database)
    applied(table, 0, Row(1, "tea"))

    applied(table, 1, Row(1, deletes=True), Row(2, "tea", offset=1))

    assert query("SELECT id, item FROM orders") == [(2, "tea")]


def test_rows_of_one_key_in_two_queues_are_refused(database: Database, query: Query) -> None:
    table = opened(database)

    with pytest.raises(TableError, match="in the queues orders a 0 and orders a 1") as refused:
        applied(table, 0, Row(1, "tea"), Row(2, "x"), Row(1, "cake", queue="orders a 1", offset=7))

    assert "sharding key" in refused.value.hint
    assert query("SELECT * FROM orders") == []
    assert table.last_commit("shop/table") is None


def test_rows_of_one_key_from_one_message_are_refused(database: Database, query: Query) -> None:
    table = opened(database)

    with pytest.raises(TableError, match=r"several rows of one key \(id\) are of one message"):
        applied(table, 0, Row(1, "tea", offset=7), Row(1, "cake", offset=7))

    assert query("SELECT * FROM orders") == []


@pytest.mark.parametrize("row", [Row(None, "cake"), Row(2, "cake", offset=None)])
def test_a_row_without_a_key_or_place_is_refused(
    database: Database, query: Query, row: Row
) -> None:
    table = opened(database)

    with pytest.raises(TableError, match=r"a row has no key \(id\), or no message"):
        applied(table, 0, Row(1, "tea"), row)

    assert query("SELECT * FROM orders") == []


def test_a_row_that_breaks_a_rule_of_the_table_moves_nothing(
    database: Database, query: Query
) -> None:
    query("CREATE TABLE orders (id bigint PRIMARY KEY, item text CHECK (item <> ''), note text)")
    table = opened(database)
    applied(table, 0, Row(1, "tea"))

    with pytest.raises(DatabaseError, match="violates check constraint"):
        applied(table, 1, Row(1, deletes=True), Row(2, "", offset=1))

    assert query("SELECT id FROM orders") == [(1,)]


def test_a_new_table_has_its_key_and_the_columns_of_rows(database: Database, query: Query) -> None:
    opened(database, CHANGES, applies_changes=True)

    columns = query(
        "SELECT column_name, is_nullable FROM information_schema.columns "
        "WHERE table_name = 'orders' ORDER BY ordinal_position"
    )

    assert columns == [("id", "NO"), ("item", "YES"), ("note", "YES")]


@pytest.mark.parametrize(
    "definition",
    [
        "id bigint, item text, note text",
        "id bigint, item text, note text, UNIQUE (id, item)",
        "id bigint, item text UNIQUE, note text",
        "id bigint UNIQUE DEFERRABLE, item text, note text",
    ],
)
def test_a_table_that_does_not_keep_the_key_unique_is_refused(
    database: Database, query: Query, definition: str
) -> None:
    query(f"CREATE TABLE orders ({definition})")

    with pytest.raises(SettingsError, match="no primary key or unique index on id"):
        opened(database)


@pytest.mark.parametrize(
    ("schema", "key", "said"),
    [
        (PLAIN, ("idd",), r"there is no column idd to be the key \(did you mean id\?\)"),
        (ORDER, ("id",), "has a key, and what it reads has no column message"),
        (StructType([*ORDER]).add("message", ORDER), ("id",), "column message has no topic"),
    ],
)
def test_rows_that_have_no_key_or_order_are_refused(
    database: Database, schema: StructType, key: tuple[str, ...], said: str
) -> None:
    with pytest.raises(SettingsError, match=said):
        opened(database, schema, key=key)


@pytest.mark.parametrize(
    ("left_out", "said"), [("op", "no column op"), ("before", "no column before")]
)
def test_rows_that_are_no_changes_are_refused(database: Database, left_out: str, said: str) -> None:
    schema = StructType([one for one in CHANGES if one.name != left_out])

    with pytest.raises(SettingsError, match=f"applies changes, and what it reads has {said}"):
        opened(database, schema, applies_changes=True)
