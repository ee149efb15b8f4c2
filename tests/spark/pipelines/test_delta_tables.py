"""Delta tables: what their log keeps, what is refused, how they are read."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from orbitmq.errors import SettingsError, TableError
from orbitmq.pipelines.plan import TableSource
from orbitmq.pipelines.running.source_rows import table_rows
from tests.spark.pipelines.written_tables import DeltaTrial


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> DeltaTrial:
    return DeltaTrial(spark, tmp_path)


def test_what_a_table_has_outlasts_a_clean_up_of_its_log(table: DeltaTrial) -> None:
    checkpoint = table.checkpoint("a", "b", "c")
    for batch in (0, 1):
        table.write(checkpoint, batch)
    DeltaTable(table.sink.path).create_checkpoint()
    for version in range(2):
        Path(table.sink.path, "_delta_log", f"{version:020}.json").unlink()
    assert len(DeltaTable(table.sink.path).history()) == 1

    for batch in (1, 2):
        table.write(checkpoint, batch)

    assert table.ids() == [0, 1, 2]


def test_a_place_that_is_no_table_is_named(table: DeltaTrial) -> None:
    Path(table.sink.path).write_text("a file, where a folder should be")

    with pytest.raises(TableError, match=r"table is not written to Delta table .*orders"):
        table.write(table.checkpoint("a"), 0)


def test_a_table_that_is_partitioned_otherwise_is_refused(table: DeltaTrial) -> None:
    table.sink = replace(table.sink, partition_by=("ITEM",))
    checkpoint = table.checkpoint("a", "b")
    table.write(checkpoint, 0)

    table.sink = replace(table.sink, partition_by=())
    with pytest.raises(TableError, match="the table is partitioned by item"):
        table.write(checkpoint, 1)


def test_a_delta_table_can_be_read_with_its_partitions(table: DeltaTrial) -> None:
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


def test_a_delta_table_that_has_more_than_files_of_rows_is_not_read(table: DeltaTrial) -> None:
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
