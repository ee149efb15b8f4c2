"""Tasks write rows into files of one partition each, and say what is in them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orbitmq.pipelines.tables import parquet_parts
from orbitmq.pipelines.tables.delta_form import statistics_form
from orbitmq.pipelines.tables.parquet_parts import (
    ColumnStatistics,
    LocalFolder,
    PartWriting,
    PartWritingTask,
    statistics_of,
)

FORM = pa.schema([("id", pa.int64()), ("text", pa.string())])


class FullDisk:
    """A folder on a disk that has room for so many bytes."""

    def __init__(self, path: Path) -> None:
        self.folder = LocalFolder(str(path))

    def create(self, name: str) -> IO[bytes]:
        with self.folder.create(name):
            pass
        # The device that refuses every byte.
        return open("/dev/full", "wb", buffering=0)  # noqa: PTH123

    def remove(self, name: str) -> None:
        self.folder.remove(name)


def write(
    folder: Path, batches: Sequence[pa.RecordBatch], form: pa.Schema = FORM
) -> list[dict[str, Any]]:
    writing = PartWriting(folder=LocalFolder(str(folder)), form=form, statistics=statistics_form)
    return [row for batch in PartWritingTask(writing)(batches) for row in batch.to_pylist()]


def batch(ids: Sequence[int | None], *partitions: Sequence[object]) -> pa.RecordBatch:
    columns = [pa.array(ids, pa.int64()), pa.array([str(one) for one in ids])]
    columns += [pa.array(values) for values in partitions]
    return pa.RecordBatch.from_arrays(columns, names=[f"c{n}" for n in range(len(columns))])


def test_a_task_without_rows_writes_nothing(tmp_path: Path) -> None:
    assert write(tmp_path / "table", [batch([])]) == []
    assert not (tmp_path / "table").exists()


def test_rows_of_a_partition_are_in_one_file_across_batches(tmp_path: Path) -> None:
    day = datetime.date(2026, 1, 31)

    reports = write(
        tmp_path,
        [
            batch([1, 2], [None, "a/b"], [day, day]),
            batch([3, 4], ["a/b", "a/b"], [day, None]),
        ],
    )

    assert [
        (
            json.loads(report["partition"]),
            report["rows"],
            pq.read_table(tmp_path / report["name"]).column("id").to_pylist(),
        )
        for report in reports
    ] == [
        ([None, "2026-01-31"], 1, [1]),
        (["a/b", "2026-01-31"], 2, [2, 3]),
        (["a/b", None], 1, [4]),
    ]
    assert [(tmp_path / report["name"]).stat().st_size for report in reports] == [
        report["bytes"] for report in reports
    ]


def test_a_task_holds_no_more_than_a_row_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_parts, "GROUP_ROWS", 4)

    (report,) = write(tmp_path, [batch([n, n]) for n in range(5)])

    metadata = pq.read_metadata(tmp_path / report["name"])
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [4, 4, 2]
    assert json.loads(report["statistics"])["maxValues"] == {"id": 4, "text": "4"}


def test_what_a_full_disk_leaves_of_a_file_is_removed(tmp_path: Path) -> None:
    writing = PartWriting(folder=FullDisk(tmp_path), form=FORM, statistics=statistics_form)

    with pytest.raises(OSError, match="No space left on device"):
        list(PartWritingTask(writing)([batch([1])]))

    assert not list(tmp_path.iterdir())


def test_statistics_are_bounds_of_what_a_file_has(tmp_path: Path) -> None:
    time = datetime.datetime(2026, 1, 31, 12, 30, 0, 123456, tzinfo=datetime.UTC)
    columns = {
        "whole": pa.array([3, None, 1]),
        "long": pa.array(["b" * 40, "a" * 40, None]),
        "nan": pa.array([1.0, float("nan"), 2.0]),
        "day": pa.array([time.date(), None, None]),
        "far": pa.array([3_000_000, None, None], pa.int32()).cast(pa.date32()),
        "time": pa.array([time, time, None], pa.timestamp("us", "UTC")),
        "local": pa.array([time.replace(tzinfo=None), None, None], pa.timestamp("us")),
        "money": pa.array([Decimal("1.10"), Decimal("-2.20"), None], pa.decimal128(8, 2)),
        "wide": pa.array([Decimal(10**30), None, None], pa.decimal128(38, 0)),
        "flag": pa.array([True, False, None]),
        "raw": pa.array([b"\xff", None, None]),
        "nothing": pa.array([None, None, None], pa.int64()),
        "items": pa.array([[1], None, [2]]),
        "buyer": pa.array([{"name": "Ann"}, None, None]),
    }
    rows = pa.record_batch(columns)

    (report,) = write(tmp_path, [rows], rows.schema)

    assert json.loads(report["statistics"]) == {
        "numRecords": 3,
        "minValues": {
            "whole": 1,
            "long": "a" * 32,
            "day": "2026-01-31",
            "time": "2026-01-31T12:30:00.123Z",
            "local": "2026-01-31T12:30:00.123",
            "money": -2.2,
        },
        "maxValues": {
            "whole": 3,
            "day": "2026-01-31",
            "time": "2026-01-31T12:30:00.124Z",
            "local": "2026-01-31T12:30:00.124",
            "money": 1.1,
        },
        "nullCount": {
            "whole": 1, "long": 1, "nan": 0, "day": 2, "far": 2, "time": 1, "local": 2, "money": 1,
            "wide": 2, "flag": 1, "raw": 2, "nothing": 3,
        },
    }  # fmt: skip
    found = statistics_of(pq.read_metadata(tmp_path / report["name"]))
    assert found["nothing"] == ColumnStatistics(3, None, None)
    assert "buyer" not in found
