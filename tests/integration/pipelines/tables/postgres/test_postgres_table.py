"""Batches go into a table of PostgreSQL each once, whatever attempts, drivers and servers do."""

from __future__ import annotations

import datetime as dt
import threading
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from orbitmq.errors import DatabaseError, OrbitError, RowValueError, SettingsError
from orbitmq.pipelines.tables.batches import Commit
from orbitmq.pipelines.tables.postgres.database import Database, TableName
from orbitmq.pipelines.tables.postgres.postgres_table import PostgresTable, open_table
from orbitmq.pipelines.tables.postgres.target import TargetRules
from orbitmq.protocol.requests.staged_writes import SourceRange
from tests.integration.pipelines.tables.postgres.conftest import Query
from tests.postgres import PASSWORD, Server
from tests.waiting import wait_until

SINK = "shop/table"
ORDERS = "id bigint, item string"
EVERYTHING = (
    "yes boolean, tiny tinyint, small smallint, whole int, big bigint, single float, twice double, "
    "price decimal(20,8), text string, bytes binary, day date, at timestamp, local timestamp_ntz"
)
# By their names in Spark's SQL, as reading those takes a JVM.
TYPES: dict[str, DataType] = {
    one.simpleString(): one
    for one in [
        BooleanType(), ByteType(), ShortType(), IntegerType(), LongType(), FloatType(), DoubleType(),
        DecimalType(20, 8), DecimalType(8, 2), StringType(), BinaryType(), DateType(),
        TimestampType(), TimestampNTZType(), DayTimeIntervalType(), ArrayType(StringType()),
        StructType().add("topic", StringType()),
    ]
}  # fmt: skip


def form(schema: str) -> StructType:
    made = StructType()
    for column in schema.split(", "):
        name, _, kind = column.partition(" ")
        made.add(name, TYPES[kind])
    return made


def rules(*, sink: str = SINK, table: str = "orders", adds_columns: bool = False) -> TargetRules:
    return TargetRules(
        sink=sink, table=TableName(schema="", name=table), key=(), adds_columns=adds_columns
    )


def opened(database: Database, schema: str = ORDERS, **named: Any) -> PostgresTable:
    return open_table(database, rules(**named), form(schema))


def commit(batch: int, *, query: str = "q", sink: str = SINK) -> Commit:
    source = SourceRange(start=f"end-{batch - 1}" if batch else "", end=f"end-{batch}")
    return Commit(sink=sink, query=query, batch=batch, source=source)


def rows(schema: str, *given: tuple[Any, ...]) -> pa.RecordBatch:
    arrow = to_arrow_type(form(schema), timezone="UTC")
    names = [field.name for field in arrow]
    made = [dict(zip(names, row, strict=True)) for row in given]
    return pa.RecordBatch.from_struct_array(pa.array(made, arrow))


def added(table: PostgresTable, batch: int, *given: tuple[Any, ...], schema: str = ORDERS) -> None:
    """One batch of one task."""
    into = table.staged()
    count = into.copy([rows(schema, *given)], partition=0, attempt=1)
    table.move(into, {1: count}, commit(batch), commit(batch - 1) if batch else None)


def staging_tables(query: Query) -> list[str]:
    return [
        name
        for (name,) in query("SELECT relname FROM pg_class WHERE relname LIKE 'orbitmq_staging%'")
    ]


def test_rows_of_all_types_arrive_as_they_were_sent(database: Database, query: Query) -> None:
    table = opened(database, EVERYTHING)
    at = dt.datetime(2026, 1, 31, 12, 30, 0, 123456, dt.UTC)
    local = at.replace(tzinfo=None)
    sent = [
        (True, -128, 32767, -(2**31), 2**63 - 1, 0.5, 0.1, Decimal("-0.00000001"), 'a\\N\t"\n\r\\.\n',
         b"\0\\x\xff", dt.date(1, 1, 1), at, local),
        (False, 127, -32768, 2**31 - 1, -(2**63), float("inf"), float("-inf"),
         Decimal("999999999999.99999999"), "", b"", dt.date(9999, 12, 31), at, local),
        (None,) * 13,
        (None, 0, 0, 0, 0, -0.0, 5e-324, Decimal(0), "\\N", None, None, None, None),
    ]  # fmt: skip

    added(table, 0, *sent, schema=EVERYTHING)

    assert sorted(query("SELECT * FROM orders"), key=repr) == sorted(sent, key=repr)
    assert staging_tables(query) == []
    ((count,),) = query(
        "SELECT count(*) FROM orbitmq_batches WHERE batch = 0 AND sink = 'shop/table'"
    )
    assert count == 1


def test_nested_columns_become_json(database: Database, query: Query) -> None:
    opened(database, "id bigint, tags array<string>, message struct<topic:string>")

    kinds: dict[str, str] = dict(
        query(
            "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'orders'"
        )
    )

    assert kinds == {"id": "bigint", "tags": "jsonb", "message": "jsonb"}


def test_only_the_attempts_that_count_are_moved(database: Database, query: Query) -> None:
    table = opened(database)
    into = table.staged()
    failed = into.copy([rows(ORDERS, (1, "tea"))], partition=0, attempt=1)
    repeated = into.copy(
        [rows(ORDERS, (1, "tea")), rows(ORDERS, (2, "cake"))], partition=0, attempt=3
    )
    other = into.copy([], partition=1, attempt=2)

    table.move(into, {3: repeated, 2: other}, commit(0), None)

    assert (failed, repeated, other) == (1, 2, 0)
    assert query("SELECT * FROM orders ORDER BY id") == [(1, "tea"), (2, "cake")]


def test_a_zombie_writes_into_nothing(database: Database, query: Query) -> None:
    table = opened(database)
    into = table.staged()
    copied = into.copy([rows(ORDERS, (1, "tea"))], partition=0, attempt=2)
    reading, resume = threading.Event(), threading.Event()

    def slowly() -> Any:
        yield rows(ORDERS, (1, "tea"))
        reading.set()
        assert resume.wait(60)

    zombie = threading.Thread(
        target=lambda: into.copy(slowly(), partition=0, attempt=1), daemon=True
    )
    zombie.start()
    assert reading.wait(60)

    table.move(into, {2: copied}, commit(0), None)
    resume.set()
    zombie.join(60)
    opened(database)  # drops what the zombie held
    with pytest.raises(DatabaseError, match="the staging table is gone") as later:
        into.copy([rows(ORDERS, (1, "tea"))], partition=0, attempt=5)

    assert later.value.retryable
    assert query("SELECT * FROM orders") == [(1, "tea")]
    assert staging_tables(query) == []


def test_a_task_that_fails_leaves_nothing_of_its_rows(database: Database, query: Query) -> None:
    table = opened(database)
    into = table.staged()

    def failing() -> Any:
        yield rows(ORDERS, (1, "tea"))
        raise RuntimeError("made to fail")

    with pytest.raises(RuntimeError):
        into.copy(failing(), partition=0, attempt=1)

    assert query(f"SELECT count(*) FROM {into.table}") == [(0,)]


def test_rows_that_vanished_from_staging_are_noticed(database: Database, query: Query) -> None:
    table = opened(database)
    into = table.staged()
    into.copy([rows(ORDERS, (1, "tea"), (2, "cake"))], partition=0, attempt=1)
    query(f"TRUNCATE {into.table}")  # as a crash of the server does

    with pytest.raises(DatabaseError, match="has 0 rows of the batch, and tasks copied 2"):
        table.move(into, {1: 2}, commit(0), None)

    assert query("SELECT * FROM orders") == []
    assert table.last_commit(SINK) is None


def test_of_two_drivers_one_commits(database: Database, query: Query) -> None:
    table = opened(database)
    added(table, 0, (1, "tea"))
    first, second = table.staged(), table.staged()
    for into in (first, second):
        into.copy([rows(ORDERS, (2, "cake"))], partition=0, attempt=1)

    table.move(first, {1: 1}, commit(1), commit(0))
    with pytest.raises(DatabaseError, match="another run of shop/table wrote a batch"):
        table.move(second, {1: 1}, commit(1), commit(0))

    assert query("SELECT id FROM orders ORDER BY id") == [(1,), (2,)]
    assert table.last_commit(SINK) == commit(1)


def test_of_two_first_commits_one_counts(
    database: Database, postgres: Server, query: Query
) -> None:
    table = opened(database)
    into = table.staged()
    into.copy([rows(ORDERS, (1, "tea"))], partition=0, attempt=1)
    failures: list[OrbitError] = []

    def second() -> None:
        try:
            table.move(into, {1: 1}, commit(0), None)
        except OrbitError as error:
            failures.append(error)

    with postgres.connected(database.name) as other:
        source = '{"start": "", "end": "another"}'
        other.execute(
            "INSERT INTO orbitmq_batches (table_name, sink, query, batch, source) "
            "VALUES ('orders', 'shop/table', 'other', 0, %s)",
            [source],
        )
        waiting = threading.Thread(target=second, daemon=True)
        waiting.start()
        blocked = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        wait_until(lambda: bool(query(blocked)), timeout_s=60, what="the second waits")
    waiting.join(60)

    assert len(failures) == 1
    assert query("SELECT * FROM orders") == []


def test_the_next_run_drops_staging_tables_of_its_own_sink_only(
    database: Database, query: Query
) -> None:
    own, other = opened(database), opened(database, sink="shop/other")
    own.staged()
    kept = other.staged()
    elsewhere = opened(database, table="orders2").staged()

    opened(database)

    assert sorted(staging_tables(query)) == sorted([kept.table.name, elsewhere.table.name])


def test_a_table_that_was_moved_away_begins_anew(database: Database, query: Query) -> None:
    added(opened(database), 0, (1, "tea"))
    query("ALTER TABLE orders RENAME TO old_orders")

    table = opened(database)

    assert table.last_commit(SINK) is None
    assert query("SELECT * FROM orders") == []


@pytest.mark.parametrize(
    ("schema", "row", "said"),
    [
        ("id bigint, item string", (1, "a\0b"), "column item: a text has a zero byte"),
        ("id bigint, short string", (1, "tool"), "column short: value too long for type"),
        ("id bigint, code string", (1, "x"), "column code: invalid input syntax for type uuid"),
        ("id bigint, needed string", (1, None), 'null value in column "needed"'),
        ("id bigint, positive int", (1, -1), "violates check constraint"),
    ],
)
def test_a_value_that_cannot_be_stored_is_named_and_nothing_moves(
    database: Database, query: Query, schema: str, row: tuple[Any, ...], said: str
) -> None:
    query(
        "CREATE TABLE orders (id bigint, item text, short varchar(3), code uuid, "
        "needed text NOT NULL DEFAULT 'x', positive int CHECK (positive > 0))"
    )
    table = opened(database, schema)
    good = (0, *(None for _ in row[1:])) if "needed" not in schema else (0, "x")

    with pytest.raises((RowValueError, DatabaseError), match=said):
        added(table, 0, good, row, schema=schema)

    assert query("SELECT * FROM orders") == []
    assert table.last_commit(SINK) is None


def test_times_before_the_year_1_are_refused(database: Database) -> None:
    table = opened(database, "day date")
    before = pa.record_batch({"day": pa.array([-800_000], pa.date32())})

    with pytest.raises(RowValueError, match="column day: a time is before the year 1"):
        table.staged().copy([before], partition=0, attempt=1)


@pytest.mark.parametrize(
    ("definition", "schema", "said"),
    [
        ("id bigint", ORDERS, "no column item"),
        ("id int, item text", ORDERS, "column id of public.orders is integer, which does not take"),
        ("id bigint, item int", ORDERS, "is integer, which does not take all of string"),
        ("id numeric(18,0), item text", ORDERS, r"numeric\(18,0\), which does not take all of big"),
        ("id bigint, item text, day date NOT NULL", ORDERS, "needs a value for column day"),
        ("id bigint GENERATED ALWAYS AS IDENTITY, item text", ORDERS, "makes column id itself"),
        ("price numeric(8,1)", "price decimal(8,2)", "does not take all of decimal"),
        ("at timestamp", "at timestamp", "does not take all of timestamp"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_before_any_row(
    database: Database, query: Query, definition: str, schema: str, said: str
) -> None:
    query(f"CREATE TABLE orders ({definition})")

    with pytest.raises(SettingsError, match=said):
        opened(database, schema)


def test_a_table_that_fits_is_used_as_it_is(database: Database, query: Query) -> None:
    query(
        "CREATE TABLE orders (n serial, id numeric(19,0), storetime timestamptz, "
        "item varchar(20), price numeric, made timestamptz DEFAULT now())"
    )
    schema = "id bigint, storeTime timestamp, item string, price decimal(8,2)"
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    added(opened(database, schema), 0, (1, at, "tea", Decimal("1.50")), schema=schema)

    assert query("SELECT n, id, storetime, item, price, made IS NOT NULL FROM orders") == [
        (1, 1, at, "tea", Decimal("1.50"), True)
    ]


def test_columns_are_added_if_the_sink_says_so(database: Database, query: Query) -> None:
    query("CREATE TABLE orders (id bigint)")

    added(opened(database, adds_columns=True), 0, (1, "tea"))

    assert query("SELECT id, item FROM orders") == [(1, "tea")]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (f"{'x' * 64} int", "longer than 63 bytes"),
        ("gap interval day to second", "column gap is interval day to second"),
    ],
)
def test_columns_that_no_table_can_have_are_refused(
    database: Database, schema: str, said: str
) -> None:
    with pytest.raises(SettingsError, match=said):
        opened(database, schema)


def test_what_goes_wrong_with_a_connection_is_said_without_the_password(
    database: Database, query: Query
) -> None:
    table = opened(database)
    into = table.staged()
    said = []
    for other in (
        replace(database, password="another-secret"),
        replace(database, name="nowhere"),
        replace(database, port=1),
        replace(database, host="nowhere.invalid"),
    ):
        with pytest.raises(DatabaseError) as refused, other.connected():
            raise AssertionError("it took the connection")
        said.append(str(refused.value))

    def losing() -> Any:
        yield rows(ORDERS, (1, "tea"))
        query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE datname = '{database.name}' AND pid <> pg_backend_pid()"
        )
        yield rows(ORDERS, (2, "cake"))

    with pytest.raises(DatabaseError) as lost:
        into.copy(losing(), partition=0, attempt=1)
    with (
        pytest.raises(DatabaseError) as late,
        replace(database, statement_ms=50).connected() as one,
    ):
        one.execute("SELECT pg_sleep(60)")

    assert "password authentication failed" in said[0]
    assert 'database "nowhere" does not exist' in said[1]
    assert "127.0.0.1:1/" in said[2]
    assert "refused" in said[2]
    assert "terminating" in str(lost.value) or "closed" in str(lost.value)
    assert "statement timeout" in str(late.value)
    for text in [*said, str(lost.value), repr(database), repr(table), repr(into)]:
        assert PASSWORD not in text
        assert "another-secret" not in text
