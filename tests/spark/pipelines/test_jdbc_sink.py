"""Pipelines into tables of PostgreSQL: each row once, whatever fails."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from orbitmq.errors import PipelineError
from orbitmq.pipelines.file.pipeline_file import read_pipeline
from orbitmq.pipelines.running.runner import Runner
from orbitmq.pipelines.tables.postgres.database import Database
from tests.postgres import PASSWORD, Server
from tests.spark.conftest import SMALL_JVM
from tests.spark.topics import Topics
from tests.waiting import wait_until

COLUMNS = "id bigint, item string, price decimal(8, 2), tags array<string>"
# Without a quarantine, which would be a query more.
FILE = """\
name: shop
namesrv: {namesrv}
sources:
  messages: {{topic: {orders}}}
steps:
  orders:
    sql: |
      SELECT order.*, struct(topic, queueId) AS message
      FROM (SELECT *, from_json(string(body), '{COLUMNS}') AS order FROM messages)
  unruly:
    python: steps.py:unruly
    from: orders
sinks:
  table:
    from: unruly
    jdbc: jdbc:postgresql://127.0.0.1:{port}/{database}
    table: orders
    user: postgres
    password_file: password
"""
TWO_SCHEMAS = """\
name: shop
namesrv: {namesrv}
sources:
  messages: {{topic: {orders}}}
steps:
  orders: {{sql: "SELECT inline(array(from_json(string(body), 'id bigint'))) FROM messages"}}
sinks:
  before:
    from: orders
    jdbc: jdbc:postgresql://127.0.0.1:{port}/{database}
    table: before.orders
    user: postgres
    password: ${{SHOP_PASSWORD}}
  after:
    from: orders
    jdbc: jdbc:postgresql://127.0.0.1:{port}/{database}
    table: after.orders
    user: postgres
    password: ${{SHOP_PASSWORD}}
"""
CHANGES = """\
name: shop
namesrv: {namesrv}
sources:
  changes:
    topic: {orders}
    decode: canal
    columns: {{id: bigint, item: string, message: string, tags: array<string>}}
sinks:
  orders:
    from: changes
    jdbc: jdbc:postgresql://127.0.0.1:{port}/{database}
    table: orders
    user: postgres
    password_file: password
    key: id
    apply: changes
  history:
    from: changes
    jdbc: jdbc:postgresql://127.0.0.1:{port}/{database}
    table: history
    user: postgres
    password_file: password
"""
# Each task fails at its first attempt, when it has handed over all of its rows.
STEPS = """\
def unruly(orders):
    def fail(batches):
        from pyspark import TaskContext

        yield from batches
        if not TaskContext.get().attemptNumber():
            raise RuntimeError("made to fail")

    return orders.mapInArrow(fail, orders.schema)
"""
START_TIMEOUT_S = 300
# As the server names programs.
DRIVER = "orbitmq pipeline"
PROBE = "probe"


class Shop:
    """A pipeline from a topic into a database."""

    def __init__(
        self, spark: SparkSession, topics: Topics, database: Database, server: Server, folder: Path
    ) -> None:
        self.spark = spark
        self.topics = topics
        self.database = database
        self.server = server
        self.folder = folder
        self.state = folder / "shop.state"
        self.orders = topics.create(queues=2)
        self.file = folder / "shop.yaml"
        (folder / "password").write_text(f"{PASSWORD}\n")
        (folder / "steps.py").write_text(STEPS)

    def write(self, text: str) -> None:
        self.file.write_text(
            text.format(
                namesrv=self.topics.cluster.namesrv,
                orders=self.orders,
                port=self.database.port,
                database=self.database.name,
                COLUMNS=COLUMNS,
            )
        )

    def order(self, *ids: int) -> None:
        self.topics.send(
            self.orders,
            [
                json.dumps(
                    {"id": id_, "item": f"tea {id_}", "price": id_ + 0.25, "tags": ["new", None]}
                )
                for id_ in ids
            ],
        )

    def run(self) -> dict[str, int]:
        runner = Runner(
            pipeline=read_pipeline(self.file),
            spark=self.spark,
            is_once=True,
        )
        return runner.run()

    def failure(self) -> str:
        with pytest.raises(PipelineError) as failed:
            self.run()
        assert PASSWORD not in str(failed.value)
        return str(failed.value)

    def query(self, text: str, *, database: str = "") -> list[tuple[Any, ...]]:
        with self.server.connected(database or self.database.name, autocommit=True) as connection:
            done = connection.execute(text)
            return done.fetchall() if done.description else []

    def ids(self, table: str = "orders") -> list[int]:
        return [id_ for (id_,) in self.query(f"SELECT id FROM {table} ORDER BY id")]


@pytest.fixture
def shop(
    spark: SparkSession, topics: Topics, database: Database, postgres: Server, tmp_path: Path
) -> Shop:
    return Shop(spark, topics, database, postgres, tmp_path)


def test_each_row_arrives_once_though_tasks_fail_and_states_are_copied(shop: Shop) -> None:
    shop.write(FILE)
    shop.order(*range(10))
    first = shop.run()
    shutil.copytree(shop.state, shop.folder / "copied")
    shop.order(10, 11)
    second = shop.run()
    # As a driver leaves it that dies between its commit and Spark's.
    (shop.state / "checkpoints" / "sink-table" / "commits" / "1").unlink()
    repeated = shop.run()
    assert (first, second, repeated) == ({"table": 10}, {"table": 2}, {"table": 0})

    shop.query(f"ALTER DATABASE {shop.database.name} ALLOW_CONNECTIONS false", database="postgres")
    shop.order(12)
    away = refused_at_the_start(shop)
    shop.query(f"ALTER DATABASE {shop.database.name} ALLOW_CONNECTIONS true", database="postgres")
    shop.run()

    assert "is not currently accepting connections" in away
    assert shop.ids() == list(range(13))
    assert shop.query(
        "SELECT item, price::text, tags, message->>'topic' FROM orders WHERE id = 1"
    ) == [("tea 1", "1.25", ["new", None], shop.orders)]
    assert shop.query("SELECT count(*) FROM pg_class WHERE relname LIKE 'orbitmq_staging%'") == [
        (0,)
    ]

    shop.state.rename(shop.folder / "newest")
    shop.order(13)
    new = shop.failure()
    shutil.rmtree(shop.state)
    (shop.folder / "copied").rename(shop.state)
    restored = shop.failure()

    assert "another checkpoint wrote the table" in new
    assert "the table has batch 2 already, of other messages: the checkpoint was copied" in restored
    assert shop.ids() == list(range(13))


def refused_at_the_start(shop: Shop) -> str:
    from orbitmq.errors import DatabaseError

    with pytest.raises(DatabaseError) as refused:
        shop.run()
    assert PASSWORD not in str(refused.value)
    return str(refused.value)


def test_a_driver_killed_right_before_or_after_its_commit_is_resumed(
    shop: Shop, java_home: Path
) -> None:
    assert java_home.is_dir()
    for schema in ("before", "after"):
        shop.query(f"CREATE SCHEMA {schema}")
    shop.write(TWO_SCHEMAS)
    shop.order(*range(10))

    with (
        running_pipeline(shop) as driver,
        shop.server.connected(shop.database.name) as before,
        shop.server.connected(shop.database.name) as after,
    ):
        wait_until(
            lambda: has_tables(shop, driver), timeout_s=START_TIMEOUT_S, what="tables are made"
        )
        # The driver reads it before its tasks run, and locks it when they are done.
        before.execute("LOCK before.orders IN SHARE MODE")
        after.execute("LOCK after.orders IN SHARE MODE")
        wait_until(
            lambda: waiting(shop, driver, "Lock") == 2,
            timeout_s=START_TIMEOUT_S,
            what="both commits wait",
        )
        with unconfirmed_commits(shop):
            after.rollback()
            wait_until(
                lambda: waiting(shop, driver, "IPC") == 1,
                timeout_s=START_TIMEOUT_S,
                what="a commit is done, and not confirmed",
            )
            driver.kill()
            driver.wait()
        before.rollback()
    at_the_kill = (shop.ids("before.orders"), shop.ids("after.orders"))

    os.environ["SHOP_PASSWORD"] = PASSWORD
    try:
        shop.run()
    finally:
        del os.environ["SHOP_PASSWORD"]

    assert at_the_kill == ([], list(range(10)))
    assert shop.ids("before.orders") == list(range(10))
    assert shop.ids("after.orders") == list(range(10))
    assert shop.query("SELECT count(*) FROM pg_class WHERE relname LIKE 'orbitmq_staging%'") == [
        (0,)
    ]


def test_changes_of_rows_are_applied_in_the_order_of_their_messages(shop: Shop) -> None:
    shop.orders = shop.topics.create(queues=1)
    shop.write(CHANGES)
    rows = [{"id": "1", "item": "tea"}, {"id": "2", "item": "cake", "tags": '["new", null]'}]
    change(shop, "INSERT", 1_000, rows)
    change(shop, "UPDATE", 2_500, rows, [{"item": "coffee"}, {"id": "3"}])
    change(
        shop,
        "INSERT",
        3_000,
        [{"id": "3", "item": "pie"}, {"id": "4", "item": "ice", "message": "cold"}],
    )
    change(shop, "DELETE", 3_500, rows[:1])
    change(shop, "ALTER", 4_000, None, isDdl=True)
    change(shop, "INSERT", 5_000, [*rows, {"id": "x"}])
    shop.run()
    first = shop.query("SELECT id, item, tags, message FROM orders ORDER BY id")

    change(shop, "DELETE", 6_000, rows[1:])
    change(shop, "UPDATE", 7_000, [{"id": "30", "item": "pie"}], [{"id": "3"}])
    change(shop, "INSERT", 8_000, rows[:1])
    shop.run()

    assert first == [
        (2, "cake", ["new", None], None), (3, "pie", None, None), (4, "ice", None, "cold"),
    ]  # fmt: skip
    assert shop.query("SELECT id, item FROM orders ORDER BY id") == [
        (1, "tea"), (4, "ice"), (30, "pie"),
    ]  # fmt: skip
    assert shop.query(
        "SELECT op, before->>'item', after->>'item', extract(epoch FROM source_time)::float, "
        "(message->>'changeIndex')::int FROM history ORDER BY source_time, 5 LIMIT 5"
    ) == [
        ("insert", None, "tea", 1.0, 0), ("insert", None, "cake", 1.0, 1),
        ("update", "coffee", "tea", 2.5, 0), ("update", "cake", "cake", 2.5, 1),
        ("insert", None, "pie", 3.0, 0),
    ]  # fmt: skip
    rejected = shop.spark.read.parquet(str(shop.state / "quarantine" / "changes"))
    assert sorted(row.reason for row in rejected.select("reason").collect()) == [
        "cannot be decoded: DDL",
        "cannot be decoded: after.id is not int64",
    ]


def change(shop: Shop, kind: str, time_ms: int, rows: Any, old: Any = None, **more: Any) -> None:
    """A message of Canal."""
    envelope = {"type": kind, "es": time_ms, "data": rows, "old": old, "isDdl": False, **more}
    shop.topics.send(shop.orders, [json.dumps(envelope)])


@contextmanager
def running_pipeline(shop: Shop) -> Iterator[subprocess.Popen[bytes]]:
    """A driver of its own."""
    program = Path(sys.executable).with_name("orbitmq")
    environment = {**os.environ, "SHOP_PASSWORD": PASSWORD, "JAVA_TOOL_OPTIONS": SMALL_JVM}
    with subprocess.Popen(
        [program, "pipeline", "run", shop.file],
        env=environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as driver:
        try:
            yield driver
        finally:
            # Its Java, too.
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)


@contextmanager
def unconfirmed_commits(shop: Shop) -> Iterator[None]:
    """Commits are done, and wait for a copy that there is not before they are confirmed."""
    shop.query("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    shop.query("SELECT pg_reload_conf()")
    over = threading.Event()
    probing = threading.Thread(target=commit_until, args=(shop, over), daemon=True)
    probing.start()
    try:
        # The server takes up settings some time after it was told.
        wait_until(
            lambda: waiting(shop, None, "IPC", program=PROBE) == 1,
            timeout_s=START_TIMEOUT_S,
            what="commits wait",
        )
        yield
    finally:
        over.set()
        shop.query("ALTER SYSTEM RESET synchronous_standby_names")
        shop.query("SELECT pg_reload_conf()")
        probing.join(START_TIMEOUT_S)


def commit_until(shop: Shop, over: threading.Event) -> None:
    """Commit again and again, one after the other."""
    with shop.server.connected(shop.database.name, autocommit=True) as connection:
        connection.execute(f"SET application_name = '{PROBE}'")
        connection.execute("CREATE TABLE probe (n int)")
        while not over.is_set():
            connection.execute("INSERT INTO probe VALUES (1)")


def has_tables(shop: Shop, driver: subprocess.Popen[bytes]) -> bool:
    assert driver.poll() is None, "the driver ended by itself"
    return shop.query("SELECT to_regclass('after.orders') IS NOT NULL") == [(True,)]


def waiting(
    shop: Shop, driver: subprocess.Popen[bytes] | None, kind: str, *, program: str = DRIVER
) -> int:
    """How many transactions of a program wait for something."""
    assert driver is None or driver.poll() is None, "the driver ended by itself"
    ((count,),) = shop.query(
        f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{program}' "
        f"AND datname = '{shop.database.name}' AND wait_event_type = '{kind}'"
    )
    return int(count)
