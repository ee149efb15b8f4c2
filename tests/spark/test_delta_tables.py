"""Delta tables that pipelines write: their rows, their commits, what is refused."""

from __future__ import annotations

import datetime
import json
import threading
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from orbitmq.errors import OrbitError, PipelineError, SettingsError, TableError, TableStateError
from orbitmq.pipelines.file.pipeline_file import read_pipeline
from orbitmq.pipelines.plan import DeltaSink, TableSource
from orbitmq.pipelines.running.runner import Runner
from orbitmq.pipelines.running.source_rows import table_rows
from orbitmq.pipelines.tables.batches import batch_writer
from orbitmq.pipelines.tables.delta import DeltaLake
from tests.spark.topics import Topics
from tests.waiting import wait_until

FILE = """\
name: shop
namesrv: {namesrv}
sources:
  orders:
    topic: {orders}
    decode: json
    columns:
      id: bigint
      item: string
      sold: date
      price: "decimal(8, 2)"
      placed: timestamp
      local: timestamp_ntz
      rate: double
      small: tinyint
      is_gift: boolean
      raw: binary
      tags: array<string>
      counts: map<string, int>
      buyer: "struct<name: string, age: smallint>"
      select: string
      "ä-`b`.c": int
steps:
  kept:
    sql: SELECT {columns} FROM orders
sinks:
  table:
    from: kept
    delta: tables/orders
    partition_by: [item, sold]
"""
ALL = "* EXCEPT (message)"
FAILING = "* EXCEPT (message, id), CAST(id / (2 - id) * (2 - id) AS BIGINT) AS id"
WHOLE = {
    "id": 1,
    "item": "a/b=ü %25'\"",
    "sold": "2026-01-31",
    "price": 12.5,
    "placed": "2026-01-31T12:30:00.123456Z",
    "local": "2026-01-31T12:30:00.123456",
    "rate": 0.1,
    "small": -7,
    "is_gift": True,
    "raw": "AAE=",
    "tags": ["x", None],
    "counts": {"a": 1, "b": None},
    "buyer": {"name": "Ann", "age": 30},
    "select": "word",
    "ä-`b`.c": 5,
}
READ = {
    **WHOLE,
    "sold": datetime.date(2026, 1, 31),
    "price": Decimal("12.50"),
    "placed": datetime.datetime(2026, 1, 31, 12, 30, 0, 123456, tzinfo=datetime.UTC),
    "local": datetime.datetime(2026, 1, 31, 12, 30, 0, 123456),  # noqa: DTZ001
    "raw": b"\x00\x01",
    "counts": [("a", 1), ("b", None)],
}
SINK = "shop/table"


def rows_of(path: str | Path) -> list[dict[str, Any]]:
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: int(row["id"]))


class Shop:
    """A pipeline that writes a Delta table."""

    def __init__(self, spark: SparkSession, topics: Topics, folder: Path) -> None:
        self.spark = spark
        self.topics = topics
        self.orders = topics.create(queues=2)
        self.file = folder / "shop.yaml"
        self.path = folder / "tables" / "orders"
        self.write(FILE)

    def write(self, text: str, columns: str = ALL) -> None:
        namesrv = self.topics.cluster.namesrv
        self.file.write_text(text.format(namesrv=namesrv, orders=self.orders, columns=columns))

    def order(self, *orders: dict[str, Any]) -> None:
        self.topics.send(self.orders, [json.dumps(order) for order in orders])

    def run(self) -> dict[str, int]:
        return Runner(
            pipeline=read_pipeline(self.file),
            spark=self.spark,
            is_once=True,
        ).run()


@dataclass
class Table:
    """A table, and checkpoints of queries that write it."""

    spark: SparkSession
    folder: Path
    sink: DeltaSink

    def checkpoint(self, *ends: str, query: str = "") -> Path:
        """A checkpoint of a query that has planned batches, each up to one of the ends."""
        folder = self.folder / f"checkpoint-{uuid.uuid4()}"
        (folder / "offsets").mkdir(parents=True)
        (folder / "metadata").write_text(json.dumps({"id": query or str(uuid.uuid4())}))
        for number, end in enumerate(ends):
            (folder / "offsets" / str(number)).write_text(end)
        return folder

    def write(self, checkpoint: Path, batch: int, rows: DataFrame | None = None) -> None:
        """What Spark does with a batch of a query."""
        if rows is None:
            rows = self.spark.sql(f"SELECT {batch}L AS id, 'tea' AS item")
        write = batch_writer(
            DeltaLake(self.sink), sink=SINK, target="the table", checkpoint=str(checkpoint)
        )
        write(rows, batch)

    def rows(self) -> list[dict[str, Any]]:
        return rows_of(self.sink.path)

    def ids(self) -> list[int]:
        return [row["id"] for row in self.rows()]


@pytest.fixture
def shop(spark: SparkSession, topics: Topics, tmp_path: Path) -> Shop:
    return Shop(spark, topics, tmp_path)


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    sink = DeltaSink(
        name="table",
        reads="orders",
        path=str(tmp_path / "orders"),
        partition_by=(),
        adds_columns=False,
    )
    return Table(spark, tmp_path, sink)


def test_rows_of_all_types_are_in_the_table_once(shop: Shop) -> None:
    shop.run()
    assert rows_of(shop.path) == []
    shop.order(WHOLE, {"id": 2})

    first = shop.run()
    shop.order({**WHOLE, "id": 3})
    second = shop.run()

    assert (first["table"], second["table"]) == (2, 1)
    assert rows_of(shop.path) == [READ, {**dict.fromkeys(READ), "id": 2}, {**READ, "id": 3}]
    commits = [one["orbitmq"] for one in DeltaTable(shop.path).history()]
    assert [(one["sink"], one["batch"]) for one in commits] == [(SINK, n) for n in (2, 1, 0)]
    assert len({one["query"] for one in commits}) == 1


def test_a_batch_that_fails_leaves_the_table_as_it_was_and_is_made_up_for(shop: Shop) -> None:
    shop.order({"id": 1})
    shop.run()
    shop.write(FILE, FAILING)
    shop.order({"id": 2}, {"id": 3})
    with pytest.raises(PipelineError, match=r"table failed: .*DIVIDE_BY_ZERO"):
        shop.run()
    assert [row["id"] for row in rows_of(shop.path)] == [1]

    shop.write(FILE)
    shop.run()

    assert [row["id"] for row in rows_of(shop.path)] == [1, 2, 3]


def test_a_batch_that_is_repeated_is_not_written_again(table: Table) -> None:
    checkpoint = table.checkpoint("a", "b")

    for batch in (0, 0, 1, 1):
        table.write(checkpoint, batch)

    assert table.ids() == [0, 1]


@pytest.mark.parametrize(
    ("ends", "query", "problem"),
    [
        (["a"], uuid.UUID(int=2), "another checkpoint wrote the table"),
        (["a", "b", "other"], uuid.UUID(int=1), "the table has batch 2 already, of other messages"),
        (["a", "b"], uuid.UUID(int=1), "the table has batch 2 already, of other messages"),
        (["a", "b", "other", "d"], uuid.UUID(int=1), "batch 3 does not begin where batch 2"),
        (["a", "b", "c", "d", "e"], uuid.UUID(int=1), "the table lacks batches 3 to 3"),
    ],
    ids=["new", "copied", "restored", "copied and further", "an older table"],
)
def test_a_checkpoint_that_does_not_continue_the_table_is_refused(
    table: Table, ends: list[str], query: uuid.UUID, problem: str
) -> None:
    checkpoint = table.checkpoint("a", "b", "c", query=str(uuid.UUID(int=1)))
    nothing = table.spark.sql("SELECT 0L AS id, 'tea' AS item LIMIT 0")
    for number in range(3):
        table.write(checkpoint, number, nothing)

    with pytest.raises(TableStateError, match=problem):
        table.write(table.checkpoint(*ends, query=str(query)), len(ends) - 1)

    assert table.rows() == []


def test_a_table_that_is_gone_is_not_begun_in_the_middle(table: Table) -> None:
    with pytest.raises(TableStateError, match="the table lacks the batches before 1"):
        table.write(table.checkpoint("a", "b"), 1)


def test_what_a_table_has_outlasts_a_clean_up_of_its_log(table: Table) -> None:
    checkpoint = table.checkpoint("a", "b", "c")
    for batch in (0, 1):
        table.write(checkpoint, batch)
    DeltaTable(table.sink.path).create_checkpoint()
    Path(table.sink.path, "_delta_log", f"{0:020}.json").unlink()
    assert len(DeltaTable(table.sink.path).history()) == 1

    for batch in (1, 2):
        table.write(checkpoint, batch)

    assert table.ids() == [0, 1, 2]


def test_of_drivers_that_write_a_batch_at_once_one_does(table: Table) -> None:
    first = table.checkpoint("a")
    query = json.loads((first / "metadata").read_text())["id"]
    others = [table.checkpoint("a", f"b{number}", query=query) for number in range(3)]
    table.write(first, 0)
    errors: list[str] = []
    begin = threading.Barrier(len(others))

    def write(checkpoint: Path) -> None:
        begin.wait(60)
        try:
            table.write(checkpoint, 1)
        except OrbitError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=write, args=(checkpoint,)) for checkpoint in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert len(errors) == len(others) - 1, errors
    assert table.ids() == [0, 1]


def test_a_commit_of_another_driver_while_rows_are_written_is_noticed(table: Table) -> None:
    mine = table.checkpoint("a", "b")
    query = json.loads((mine / "metadata").read_text())["id"]
    table.write(mine, 0)
    go_on = table.folder / "go-on"

    def wait(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wait_until(go_on.exists, timeout_s=120, what="the other driver")
        yield from batches

    rows = table.spark.sql("SELECT 1L AS id, 'tea' AS item")
    errors: list[TableError] = []

    def write_slowly() -> None:
        try:
            table.write(mine, 1, rows.mapInArrow(wait, "id bigint, item string"))
        except TableError as error:
            errors.append(error)

    thread = threading.Thread(target=write_slowly)
    thread.start()
    table.write(table.checkpoint("a", "other", query=query), 1)
    go_on.touch()
    thread.join(120)

    assert [str(error) for error in errors] == [
        f"table is not written to Delta table {table.sink.path}: another query wrote the table "
        "while this one did"
    ]
    assert table.ids() == [0, 1]


def test_columns_are_added_only_if_the_sink_says_so(table: Table) -> None:
    checkpoint = table.checkpoint("a", "b", "c", "d")
    table.write(checkpoint, 0)
    more = table.spark.sql("SELECT 1L AS ID, 2.5D AS price, named_struct('n', 1) AS other")

    with pytest.raises(TableError, match=r"the table has no column price \(double\)"):
        table.write(checkpoint, 1, more)
    table.sink = replace(table.sink, adds_columns=True)
    table.write(checkpoint, 1, more)
    with pytest.raises(TableError, match="column id is string, and that of the table is bigint"):
        table.write(checkpoint, 2, table.spark.sql("SELECT 'x' AS id"))
    table.write(checkpoint, 2)

    nothing = {"item": None, "price": None, "other": None}
    assert table.rows() == [
        {**nothing, "id": 0, "item": "tea"},
        {**nothing, "id": 1, "price": 2.5, "other": {"n": 1}},
        {**nothing, "id": 2, "item": "tea"},
    ]
    assert len(list(Path(table.sink.path).glob("*.parquet"))) == 3


def test_a_place_that_is_no_table_is_named(table: Table) -> None:
    Path(table.sink.path).write_text("a file, where a folder should be")

    with pytest.raises(TableError, match=r"table is not written to Delta table .*orders"):
        table.write(table.checkpoint("a"), 0)


def test_a_table_that_is_partitioned_otherwise_is_refused(table: Table) -> None:
    table.sink = replace(table.sink, partition_by=("ITEM",))
    checkpoint = table.checkpoint("a", "b")
    table.write(checkpoint, 0)

    table.sink = replace(table.sink, partition_by=())
    with pytest.raises(TableError, match="the table is partitioned by item"):
        table.write(checkpoint, 1)


def test_a_delta_table_can_be_read_with_its_partitions(table: Table) -> None:
    # Its path and values of partitions mean something to Spark, or to URLs.
    path = str(table.folder / "a {x} * ü")
    table.sink = replace(table.sink, path=path, partition_by=("item", "sold", "flag"))
    columns = "id BIGINT, item STRING, sold DATE, flag BOOLEAN, `a.b` INT"
    rows = [
        (1, "a/b=ü %25'\"", datetime.date(2026, 1, 31), True, 5),
        (2, None, None, None, None),
        (3, "tea", datetime.date(1, 1, 1), False, 7),
    ]
    source = TableSource(name="prices", path=path, format="delta", columns=(), options={})
    checkpoint = table.checkpoint("a", "b")
    table.write(checkpoint, 0, table.spark.createDataFrame([], columns))
    assert table_rows(source, table.spark).collect() == []

    table.write(checkpoint, 1, table.spark.createDataFrame(rows, columns))
    read = table_rows(source, table.spark)

    assert read.columns == ["id", "item", "sold", "flag", "a.b"]
    assert sorted(tuple(row) for row in read.collect()) == rows
    assert read.where("item = 'tea'").select("id").collect() == [(3,)]


def test_a_delta_table_that_has_more_than_files_of_rows_is_not_read(table: Table) -> None:
    table.write(table.checkpoint("a"), 0)
    log = Path(table.sink.path, "_delta_log", f"{0:020}.json")
    text = log.read_text().replace(
        '"minReaderVersion":1,"minWriterVersion":2',
        '"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["v2Checkpoint"],'
        '"writerFeatures":["v2Checkpoint"]',
    )
    log.write_text(text)
    source = TableSource(
        name="prices", path=table.sink.path, format="delta", columns=(), options={}
    )

    with pytest.raises(SettingsError, match="cannot be read: it needs readers that know v2Check"):
        table_rows(source, table.spark)
    with pytest.raises(SettingsError, match="nowhere cannot be read"):
        table_rows(replace(source, path=f"{table.folder}/nowhere"), table.spark)
