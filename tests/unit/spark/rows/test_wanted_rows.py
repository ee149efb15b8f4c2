"""Rows and columns that were asked for, out of decoded ones."""

from __future__ import annotations

from pyspark.sql.types import LongType, StructField, StructType

from orbitmq.spark.rows.row_decoder import RowDecoder
from orbitmq.spark.rows.schema import projection_of
from orbitmq.spark.rows.wanted_rows import WantedRows
from tests.unit.record.sample_records import KNOWN
from tests.unit.spark.sample_rows import BROKER, all_columns, joined

OFFSETS = projection_of(StructType([StructField("QueueOffset", LongType())]))


def test_columns_have_the_names_of_the_user() -> None:
    wanted = WantedRows(OFFSETS, None)
    decoded = RowDecoder(wanted.decoded).decode(*joined([KNOWN.encode()]), BROKER)

    rows = wanted.of(decoded)

    assert rows.to_pylist() == [{"QueueOffset": KNOWN.queue_offset}]
    assert rows.schema == OFFSETS.asked_schema


def test_tags_are_compared_though_nobody_asked_for_the_column() -> None:
    records = joined([KNOWN.encode()])
    (tag,) = RowDecoder(all_columns()).decode(*records, BROKER).column("tags").to_pylist()
    assert tag

    for tags, count in (({tag}, 1), ({"other"}, 0), ({"other", tag}, 1)):
        wanted = WantedRows(OFFSETS, frozenset(tags))
        rows = wanted.of(RowDecoder(wanted.decoded).decode(*records, BROKER))
        assert (rows.num_rows, rows.schema.names) == (count, ["QueueOffset"])


def test_batches_pass_unchanged_if_nothing_is_to_do() -> None:
    decoded = RowDecoder(all_columns()).decode(*joined([KNOWN.encode()]), BROKER)

    assert WantedRows(all_columns(), None).of(decoded) is decoded
