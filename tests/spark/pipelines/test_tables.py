"""Tables that record which batches they have: what is written once, and what is refused."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from orbitmq.errors import OrbitError, TableError, TableStateError
from tests.spark.pipelines.written_tables import SINK, DeltaTrial, IcebergTrial, TableTrial
from tests.waiting import wait_until


@pytest.fixture(params=[DeltaTrial, IcebergTrial])
def table(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> TableTrial:
    kind: type[TableTrial] = request.param
    return kind(spark, tmp_path)


def test_a_batch_that_is_repeated_is_not_written_again(table: TableTrial) -> None:
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
    table: TableTrial, ends: list[str], query: uuid.UUID, problem: str
) -> None:
    checkpoint = table.checkpoint("a", "b", "c", query=str(uuid.UUID(int=1)))
    nothing = table.spark.sql("SELECT 0L AS id, 'tea' AS item LIMIT 0")
    for number in range(3):
        table.write(checkpoint, number, nothing)

    with pytest.raises(TableStateError, match=problem):
        table.write(table.checkpoint(*ends, query=str(query)), len(ends) - 1)

    assert table.rows() == []


def test_a_table_that_is_gone_is_not_begun_in_the_middle(table: TableTrial) -> None:
    with pytest.raises(TableStateError, match="the table lacks the batches before 1"):
        table.write(table.checkpoint("a", "b"), 1)


def errors_of_writers_at_once(table: TableTrial, checkpoints: list[Path], batch: int) -> list[str]:
    errors: list[str] = []
    begin = threading.Barrier(len(checkpoints))

    def write(checkpoint: Path) -> None:
        begin.wait(60)
        try:
            table.write(checkpoint, batch)
        except OrbitError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=write, args=(checkpoint,)) for checkpoint in checkpoints]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return errors


def test_of_drivers_that_write_a_batch_at_once_one_does(table: TableTrial) -> None:
    first = table.checkpoint("a")
    query = json.loads((first / "metadata").read_text())["id"]
    others = [table.checkpoint("a", f"b{number}", query=query) for number in range(3)]
    table.write(first, 0)

    errors = errors_of_writers_at_once(table, others, 1)

    assert len(errors) == len(others) - 1, errors
    assert table.ids() == [0, 1]


def test_of_drivers_that_begin_a_table_at_once_one_does(table: TableTrial) -> None:
    # So that the catalog of Iceberg is there.
    assert table.table.last_commit(SINK) is None
    others = [table.checkpoint(f"a{number}") for number in range(3)]

    errors = errors_of_writers_at_once(table, others, 0)

    assert len(errors) == len(others) - 1, errors
    assert table.ids() == [0]


def test_a_commit_of_another_driver_while_rows_are_written_is_noticed(table: TableTrial) -> None:
    mine = table.checkpoint("a", "b")
    query = json.loads((mine / "metadata").read_text())["id"]
    table.write(mine, 0)
    begun, go_on = table.folder / "begun", table.folder / "go-on"

    def wait(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begun.touch()
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
    wait_until(begun.exists, timeout_s=120, what="a task of the first driver")
    table.write(table.checkpoint("a", "other", query=query), 1)
    go_on.touch()
    thread.join(120)

    assert [str(error) for error in errors] == [
        f"table is not written to {table.sink.target}: another query wrote the table "
        "while this one did"
    ]
    assert table.ids() == [0, 1]


def test_columns_are_added_only_if_the_sink_says_so(table: TableTrial) -> None:
    checkpoint = table.checkpoint("a", "b", "c", "d")
    table.write(checkpoint, 0)
    more = table.spark.sql("SELECT 1L AS ID, 2.5D AS price, named_struct('n', 1) AS other")

    with pytest.raises(TableError, match=r"the table has no column price \(double\)"):
        table.write(checkpoint, 1, more)
    table.adds_columns()
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
    assert len(list(table.folder.glob("**/*.parquet"))) == 3
