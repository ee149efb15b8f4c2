"""Pipelines run by Spark: topics to tables and topics, as a file says."""

from __future__ import annotations

import datetime
import json
import signal
import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from orbitmq.errors import PipelineError, PipelineFileError, SettingsError
from orbitmq.pipelines.file.pipeline_file import read_pipeline
from orbitmq.pipelines.running.runner import Runner
from orbitmq.pipelines.running.state import locked
from orbitmq.pipelines.watching.events import Event, Lag
from orbitmq.pipelines.watching.run_record import RunRecord
from tests.integration.docs.pages import ROOT
from tests.spark.commands import orbitmq
from tests.spark.topics import Topics
from tests.unit.pipelines.decoding.registry import running_registry
from tests.unit.pipelines.decoding.test_avro import confluent, encoded, record
from tests.unit.pipelines.decoding.test_protobuf import an_order, descriptors
from tests.waiting import wait_until

FILE = """\
name: shop
namesrv: {namesrv}
sources:
  orders:
    topic: {orders}
    decode: json
    columns: {{id: bigint, item: string, price: "decimal(8, 2)"}}
    expect:
      has a price: price > 0
  prices:
    table: limits
    format: json
    columns: {{item: string, limit: int}}
steps:
  expensive:
    sql: |
      SELECT o.id, o.item, o.price, o.message.keys AS key
      FROM orders o JOIN prices p ON o.item = p.item AND o.price > p.limit
  doubled:
    python: steps.py:doubled
    from: orders
sinks:
  table:
    from: orders
    parquet: tables/orders
    partition_by: item
  twice:
    from: doubled
    parquet: tables/twice
  alerts:
    from: expensive
    topic: {alerts}
    keys: key
    tags: item
"""
AVRO_FILE = """\
name: shop
namesrv: {namesrv}
sources:
  orders:
    topic: {orders}
    decode: {{format: avro, schema: order.avsc, framing: confluent, registry: "{registry}"}}
sinks:
  table: {{from: orders, parquet: tables/avro}}
"""
PROTOBUF_FILE = """\
name: shop
namesrv: {namesrv}
sources:
  orders:
    topic: {orders}
    decode: {{format: protobuf, descriptors: shop.pb, message: shop.Order}}
sinks:
  table: {{from: orders, parquet: tables/orders}}
"""
TABLES_FILE = """\
name: shop
namesrv: {namesrv}
sources:
  orders:
    topic: {orders}
    decode: json
    columns: {{id: bigint, price: "decimal(8, 2)"}}
steps:
  doubled: {{python: "steps.py:doubled", from: orders}}
sinks:
  table: {{from: orders, parquet: tables/orders}}
  twice: {{from: doubled, parquet: tables/twice}}
"""
TIMESTAMP = {"type": "long", "logicalType": "timestamp-millis"}
STEPS = """\
from pyspark.sql.functions import udf

@udf("decimal(8, 2)")
def twice(price):
    return price * 2

def doubled(orders):
    return orders.select("id", twice("price").alias("price"))
"""

IN_PYTHON = """\
from pyspark.sql.functions import udf

from orbitmq.pipelines import define

shop = define("shop", namesrv="{namesrv}")
shop.source("orders", topic="{orders}", decode="json", columns={{"id": "bigint", "price": "int"}})

class Rate:
    times = 2

@udf("int")
def dearer(price):
    return price * Rate.times

@shop.step
def doubled(orders):
    return orders.select("id", dearer("price").alias("price"))

@shop.sink(parquet="tables/large")
def large(doubled):
    return doubled.where("price > 100")
"""


class Shop:
    """A pipeline file with its topics."""

    def __init__(self, spark: SparkSession, topics: Topics, folder: Path) -> None:
        self.spark = spark
        self.topics = topics
        self.folder = folder
        self.orders, self.alerts = topics.create(queues=2), topics.create(queues=2)
        # Of the newest run.
        self.record = RunRecord()
        (folder / "limits").mkdir()
        (folder / "limits" / "one.json").write_text('{"item": "tea", "limit": 100}')
        (folder / "steps.py").write_text(STEPS)
        self.file = folder / "shop.yaml"
        self.write(FILE)

    def write(self, text: str) -> None:
        self.file.write_text(
            text.format(namesrv=self.topics.cluster.namesrv, orders=self.orders, alerts=self.alerts)
        )

    def order(self, *orders: tuple[int, str, float]) -> None:
        self.topics.send(
            self.orders,
            [json.dumps({"id": id_, "item": item, "price": price}) for id_, item, price in orders],
        )

    def runner(self, *, is_once: bool = True) -> Runner:
        self.record = RunRecord()
        return Runner(
            pipeline=read_pipeline(self.file),
            spark=self.spark,
            is_once=is_once,
            record=self.record,
        )

    def table(self, name: str, *columns: str) -> list[tuple[object, ...]]:
        rows = self.spark.read.parquet(str(self.folder / name)).selectExpr(*columns).collect()
        return sorted((tuple(row) for row in rows), key=repr)


@pytest.fixture
def shop(spark: SparkSession, topics: Topics, tmp_path: Path) -> Shop:
    return Shop(spark, topics, tmp_path)


def test_a_file_brings_topics_into_tables_and_topics_each_row_once(shop: Shop) -> None:
    shop.order((1, "tea", 120), (2, "tea", 80), (3, "cake", 500))

    counts = shop.runner().run()
    first = shop.record
    assert not shop.spark.catalog.tableExists("orders")
    shop.order((4, "tea", 130.5))
    again = shop.runner().run()

    assert [float(str(price)) for _, _, price in shop.table("tables/orders", "id", "item", "price")] == [
        120, 80, 500, 130.5,
    ]  # fmt: skip
    assert [(id_, float(str(price))) for id_, price in shop.table("tables/twice", "id", "price")] == [
        (1, 240), (2, 160), (3, 1000), (4, 261),
    ]  # fmt: skip
    alerts = [json.loads(message.body) for message in shop.topics.messages(shop.alerts)]
    assert sorted((alert["id"], alert["price"]) for alert in alerts) == [(1, 120.0), (4, 130.5)]
    assert {message.tags for message in shop.topics.messages(shop.alerts)} == {"tea"}
    assert (counts["table"], again["table"]) == (3, 1)
    table = first.queries["table"]
    assert (first.outcome, table.batches, table.rows, table.lag) == ("done", 1, 3, 0)
    assert table.last is not None
    assert sum(table.last.phases_ms.values()) >= table.last.took_ms > 0


def test_rows_that_are_wrong_go_into_quarantine_and_the_others_go_on(shop: Shop) -> None:
    shop.order((1, "tea", 120), (2, "tea", -1))
    two = '{"id": 3, "item": "tea", "price": 1}{"id": 4, "item": "tea", "price": 1}'
    closed = '{"id": 5, "item": "tea", "price": 1}} {"id": 6}'
    no_text = b'{"id": 7, "item": "\xff", "price": 1}'
    shop.topics.send(shop.orders, [two, closed, no_text])
    shop.topics.send(shop.orders, ["{not json", '{"id": "x", "item": "tea", "price": 1}', "null"])

    shop.runner().run()

    rejected = shop.record.queries["quarantine of orders"].rejected
    assert rejected == {"cannot be decoded": 6, "not has a price": 1}
    assert shop.table("tables/orders", "id") == [(1,)]
    assert shop.table("shop.state/quarantine/orders", "reason", "body") == [
        *sorted(
            ("cannot be decoded", body)
            for body in (
                b"null",
                b'{"id": "x", "item": "tea", "price": 1}',
                b"{not json",
                two.encode(),
                closed.encode(),
                no_text,
            )
        ),
        ("not has a price", b'{"id": 2, "item": "tea", "price": -1}'),
    ]


def test_a_resident_pipeline_stops_when_asked(shop: Shop) -> None:
    shop.order((1, "tea", 120))
    runner = shop.runner(is_once=False)
    counts: dict[str, int] = {}

    def stop_once_brokers_were_asked(event: Event) -> None:
        if isinstance(event, Lag) and event.query == "table":
            runner.stopping.set()

    shop.record.listeners.append(stop_once_brokers_were_asked)
    thread = threading.Thread(target=lambda: counts.update(runner.run()))
    thread.start()
    thread.join(150)

    assert counts["table"] == 1
    assert (shop.record.outcome, shop.record.is_stopping) == ("stopped", True)
    assert (shop.record.queries["table"].lag, shop.record.queries["table"].behind_s) == (0, 0)
    assert not shop.spark.streams.active


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("o.id, o.item", "o.idd, o.item", r"step expensive: .*idd.*`o`\.`id`"),
        ("doubled\n    from", "doubledd\n    from", r"no function doubledd.*did you mean doubled"),
        ("keys: key", "keys: keyy", r"sink alerts: .*keyy.*`key`"),
        ("partition_by: item", "partition_by: itm", r"sink table: orders has no column itm .*item"),
        (
            "o.id, o.item, o.price, o",
            "o.id, o.item, p.item, o.price, o",
            r"sink alerts: expensive has two columns item",
        ),
        ("price > 0", "prize > 0", r"source orders: .*prize.*`price`"),
        ("from: doubled", "from: prices", r"sink twice reads prices, which has no topic"),
    ],
)
def test_a_mistake_that_only_spark_can_find_is_named_before_anything_runs(
    shop: Shop, old: str, new: str, message: str
) -> None:
    text = FILE.replace(old, new)
    if "prices" in new:
        text = text.replace("  doubled:\n    python: steps.py:doubled\n    from: orders\n", "")
    shop.write(text)

    with pytest.raises(SettingsError, match=message):
        shop.runner().run()

    assert not (shop.folder / "tables").exists()


STATEFUL_FILE = """\
name: shop
namesrv: {namesrv}
sources:
  orders:
    topic: {orders}
    decode: json
    columns: {{id: bigint, item: string, placed: timestamp}}
    watermark: {{column: placed, delay: 1 minute}}
steps:
  single: {{deduplicate: {{keys: [id]}}, from: orders}}
  counted:
    sql: |
      SELECT window.start AS minute, item, count(*) AS orders
      FROM single GROUP BY window(placed, '1 minute'), item
sinks:
  single: {{from: single, parquet: tables/single}}
  counted: {{from: counted, parquet: tables/counted}}
"""


def test_rows_are_deduplicated_and_counted_by_windows_over_several_runs(shop: Shop) -> None:
    shop.write(STATEFUL_FILE)

    def order(*orders: tuple[int, str]) -> None:
        bodies = [
            {"id": id_, "item": "tea", "placed": f"2026-01-31T{time}Z"} for id_, time in orders
        ]
        shop.topics.send(shop.orders, map(json.dumps, bodies))
        shop.runner().run()

    order((1, "12:00:10"), (2, "12:00:20"), (1, "12:00:10"))
    state = shop.record.queries["single"].last
    order((2, "12:00:20"), (3, "12:00:50"), (4, "12:04:00"))

    assert state is not None
    assert state.state_rows == 2
    assert state.state_bytes > 0
    assert shop.table("tables/single", "id") == [(1,), (2,), (3,), (4,)]
    assert shop.table("tables/counted", "date_format(minute, 'HH:mm')", "orders") == [("12:00", 3)]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "    watermark: {{column: placed, delay: 1 minute}}\nsteps:\n"
            "  single: {{deduplicate: {{keys: [id]}}, from: orders}}",
            "steps:\n  single: {{sql: SELECT * FROM orders}}",
            r"sink counted cannot have these rows, as they are never final: .*without watermark",
        ),
        ("window(placed, '1 minute'), ", "", r"sink counted cannot .* never final"),
        ("keys: [id]", "keys: [idd]", r"orders has no column idd to .* \(did you mean id\?\)"),
    ],
)
def test_what_cannot_work_on_a_stream_is_named_before_anything_runs(
    shop: Shop, old: str, new: str, message: str
) -> None:
    shop.write(
        STATEFUL_FILE.replace(old, new).replace(
            "window.start AS minute" if "window(" in old else "nothing", "1 AS minute"
        )
    )

    with pytest.raises(PipelineFileError, match=message):
        shop.runner().run()

    assert not (shop.folder / "tables").exists()


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("def doubled(orders):\n    return orders.nowhere()\n", r"steps\.py:2: .*nowhere"),
        ("import nowhere\n", r"steps\.py:1: ModuleNotFoundError: .*nowhere"),
        ("def doubled(orders:\n", r"steps\.py:1: SyntaxError: "),
        ("def doubled():\n    pass\n", r"steps\.py: TypeError: doubled\(\) takes 0"),
    ],
)
def test_an_error_in_a_python_step_has_its_line(shop: Shop, steps: str, message: str) -> None:
    (shop.folder / "steps.py").write_text(steps)

    with pytest.raises(SettingsError, match=message):
        shop.runner().run()


def test_a_table_cannot_have_columns_that_differ_in_case_only(shop: Shop) -> None:
    steps = STEPS.replace('"id", twice', '"id", orders.id.alias("ID"), twice')
    (shop.folder / "steps.py").write_text(steps)

    with pytest.raises(SettingsError, match=r"sink twice: doubled has two columns ID"):
        shop.runner().run()


def test_a_state_that_cannot_be_written_is_named(shop: Shop) -> None:
    (shop.folder / "shop.state").write_text("a file, where a folder should be")

    with pytest.raises(
        SettingsError, match=r"pipeline shop cannot keep its state in .*shop\.state"
    ):
        shop.runner().run()


def test_a_column_may_have_the_name_of_one_of_the_quarantine(shop: Shop) -> None:
    shop.write(FILE.replace('price: "decimal(8, 2)"', 'price: "decimal(8, 2)", reason: string'))
    shop.topics.send(
        shop.orders,
        [
            '{"id": 1, "item": "tea", "price": 1, "reason": "gift"}',
            '{"id": 2, "item": "tea", "price": 0, "reason": "gift"}',
        ],
    )

    shop.runner().run()

    assert shop.table("tables/orders", "id", "reason") == [(1, "gift")]
    assert shop.table("shop.state/quarantine/orders", "reason") == [("not has a price",)]


def test_a_pipeline_whose_sink_fails_says_which_and_why(shop: Shop) -> None:
    shop.order((1, "tea", 120))
    (shop.folder / "tables").write_text("a file, where a folder should be")

    with pytest.raises(PipelineError, match=r"pipeline shop: table failed: .*not a dir.*tables"):
        shop.runner().run()

    assert not shop.spark.streams.active
    assert shop.record.outcome == "failed"
    assert "tables" in shop.record.queries["table"].failure


def test_a_failure_in_the_middle_of_a_batch_is_told_and_the_next_run_makes_up_for_it(
    shop: Shop,
) -> None:
    shop.order((1, "tea", 120), (2, "cake", 0.5))
    steps = shop.folder / "steps.py"
    steps.write_text(STEPS.replace("return price * 2", "return 1 / 0"))
    with pytest.raises(PipelineError, match=r"twice failed: .*division by zero"):
        shop.runner().run()

    steps.write_text(STEPS)
    shop.runner().run()

    assert shop.table("tables/orders", "id") == [(1,), (2,)]
    assert shop.table("tables/twice", "id") == [(1,), (2,)]


def test_a_first_file_for_a_topic_runs_as_it_is(shop: Shop) -> None:
    shop.order((1, "tea", 120), (2, "tea", 80.5))
    drafted = shop.folder / "drafted.yaml"

    new = ("pipeline", "new", shop.orders, drafted, "--namesrv", shop.topics.cluster.namesrv)
    assert "is written" in orbitmq(*new).stdout
    again = orbitmq(*new)
    shop.file = drafted
    shop.runner().run()

    assert again.returncode == 1
    assert "name another file" in again.stderr
    (table,) = (shop.folder / "tables").iterdir()
    assert shop.table(f"tables/{table.name}", "id", "item", "price") == [
        (1, "tea", 120.0),
        (2, "tea", 80.5),
    ]


def test_a_python_file_defines_a_pipeline_with_functions_as_steps(shop: Shop) -> None:
    shop.file = shop.folder / "shop.py"
    shop.write(IN_PYTHON)
    shop.order((1, "tea", 70), (2, "tea", 40))

    shop.runner().run()

    assert shop.table("tables/large", "id", "price") == [(1, 140)]


def test_avro_bodies_are_read_by_the_schemas_that_they_name(shop: Shop) -> None:
    first, second = record(("id", "long")), record(("id", "long"), ("placed", TIMESTAMP))
    (shop.folder / "order.avsc").write_text(
        record(("id", "long"), ("placed", ["null", TIMESTAMP]), placed=None)
    )
    placed = datetime.datetime(2026, 1, 31, 12, 30, tzinfo=datetime.UTC)
    shop.topics.send(
        shop.orders,
        [
            encoded(first, {"id": 1}, confluent(1)),
            encoded(second, {"id": 2, "placed": placed}, confluent(2)),
            encoded(first, {"id": 3}, confluent(3)),
        ],
    )
    with running_registry({1: first, 2: second}) as registry:
        shop.write(AVRO_FILE.replace("{registry}", registry))
        shop.runner().run()

    assert shop.table("tables/avro", "id", "CAST(placed AS STRING) AS placed") == [
        (1, None),
        (2, "2026-01-31 12:30:00"),
    ]
    assert shop.table("shop.state/quarantine/orders", "reason") == [("cannot be decoded",)]


def test_protobuf_bodies_are_read_by_a_descriptor_set(shop: Shop) -> None:
    (shop.folder / "shop.pb").write_bytes(descriptors())
    shop.topics.send(shop.orders, [an_order().SerializeToString(), b"\xff"])
    shop.write(PROTOBUF_FILE)

    shop.runner().run()

    assert shop.table("tables/orders", "items[0].name", "kind", "counts['tea']", "a_uint64") == [
        ("tea", "GIFT", 2, Decimal(2**64 - 1))
    ]
    assert shop.table("shop.state/quarantine/orders", "body") == [(b"\xff",)]


def test_the_state_says_how_far_queries_are_and_is_forgotten_only_when_asked(shop: Shop) -> None:
    shop.order((1, "tea", 120), (2, "tea", 80))
    assert "has not committed anything yet" in orbitmq("pipeline", "status", shop.file).stdout
    shop.runner().run()
    shop.order((3, "cake", 5))

    rows = json.loads(orbitmq("pipeline", "status", shop.file, "--json").stdout)
    with locked(shop.runner().pipeline), pytest.raises(SettingsError, match="shop is running"):
        shop.runner().run()
    assert orbitmq("pipeline", "reset", shop.file, "--yes").returncode == 0
    with pytest.raises(SettingsError, match=r"table: .* batches up to 0, .* is new: rows would be"):
        shop.runner().run()
    (shop.folder / "tables").rename(shop.folder / "old")
    shop.runner().run()

    assert {row["query"]: (row["batch"], row["lag"]) for row in rows} == {
        "table": (0, 1), "twice": (0, 1), "alerts": (0, 1), "quarantine of orders": (0, 1),
    }  # fmt: skip
    assert shop.table("tables/twice", "id") == [(1,), (2,), (3,)]
    assert len(shop.topics.messages(shop.alerts)) == 2
    assert (shop.folder / "shop.state" / "quarantine-1" / "orders").is_dir()


def test_the_file_of_the_page_runs_by_the_command(shop: Shop, java_home: Path) -> None:
    assert java_home.is_dir()
    page = (ROOT / "docs" / "pipelines.md").read_text()
    text = page.partition("```yaml\n")[2].partition("```")[0]
    for shown, real in (
        ("127.0.0.1:9876", shop.topics.cluster.namesrv),
        ("topic: orders", f"topic: {shop.orders}"),
        ("topic: alerts", f"topic: {shop.alerts}"),
    ):
        text = text.replace(shown, real)
    shop.file.write_text(text)
    shop.order((1, "tea", 120), (2, "tea", 80), (3, "cake", -1))

    checked = orbitmq("pipeline", "check", shop.file, "--json")
    events = shop.folder / "events.jsonl"
    done = orbitmq(
        *("pipeline", "run", shop.file, "--once", "--events", events, "--metrics-port", "0"),
        *("--report", shop.folder / "report.html"),
    )

    assert [sink["guarantee"] for sink in json.loads(checked.stdout)] == [
        "each row once, for readers that honour Spark's log of the folder",
        "each row once",
    ]
    assert done.returncode == 0, done.stderr
    assert "table: batch 0, 3 rows in " in done.stdout
    assert done.stdout.startswith("metrics http://127.0.0.1:")
    report = (shop.folder / "report.html").read_text()
    assert '<span class="outcome done">' in report
    assert "<td>not has_a_price</td><td>1</td>" in report
    said = [json.loads(line) for line in events.read_text().splitlines()]
    assert said[0]["queries"]["alerts"] == f"topic {shop.alerts}"
    assert (said[-1]["event"], said[-1]["outcome"]) == ("run_ended", "done")
    assert "alerts: 3 rows in this run" in done.stdout
    assert shop.table("tables/orders", "id") == [(1,), (2,)]
    assert len(shop.topics.messages(shop.alerts)) == 1


SLOW_STEPS = """\
import pathlib, threading
from pyspark.sql.functions import udf

@udf("decimal(8, 2)")
def twice(price):
    pause = threading.Event()
    for _ in range(3000):
        if pathlib.Path("{gate}").exists():
            return price * 2
        pause.wait(0.1)

def doubled(orders):
    return orders.select("id", twice("price").alias("price"))
"""


def test_ctrl_c_lets_batches_end_a_second_one_ends_at_once_and_either_way_no_row_is_lost(
    shop: Shop,
) -> None:
    shop.order((1, "tea", 120))
    gate, report = shop.folder / "gate", shop.folder / "report.html"
    (shop.folder / "steps.py").write_text(SLOW_STEPS.format(gate=gate))
    shop.write(TABLES_FILE)
    with _started(shop) as running:
        assert running.stdout is not None
        next(line for line in running.stdout if line.startswith("table: batch 0"))
        running.send_signal(signal.SIGUSR1)
        wait_until(report.exists, timeout_s=60, what="a report of the run at work")
        running.send_signal(signal.SIGINT)
        next(line for line in running.stdout if line.startswith("stopping after the batches"))
        running.send_signal(signal.SIGINT)
    assert running.returncode == 130
    assert '<span class="outcome running">' in report.read_text()
    assert not (shop.folder / "tables" / "twice" / "_spark_metadata" / "0").exists()

    gate.touch()
    shop.order((2, "tea", 5))
    with _started(shop) as running:
        assert running.stdout is not None
        next(line for line in running.stdout if line.startswith("table: batch 1"))
        running.send_signal(signal.SIGINT)
        said = running.stdout.read()

    assert running.returncode == 0
    assert "stopping after the batches at hand" in said
    assert "table: 1 row in this run" in said
    assert '<span class="outcome stopped">' in report.read_text()
    assert shop.table("tables/orders", "id") == [(1,), (2,)]


def _started(shop: Shop) -> subprocess.Popen[str]:
    program = Path(sys.executable).with_name("orbitmq")
    return subprocess.Popen(
        [program, "pipeline", "run", shop.file, "--report", shop.folder / "report.html"],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_the_command_says_what_is_wrong_with_a_file(shop: Shop) -> None:
    shop.write(FILE.replace("from: doubled", "from: doubeld"))

    refused = orbitmq("pipeline", "run", shop.file)

    assert refused.returncode == 2
    assert refused.stderr.endswith(
        "shop.yaml:28:11: sink twice reads 'doubeld', which is not known (did you mean doubled?)\n"
    ), refused.stderr
