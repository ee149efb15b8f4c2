"""Parquet files that Spark's tasks write and the driver adds to a table.

A task writes its rows into files of new names, and reports of each a small row. So no rows travel
through the driver, and what a failed or repeated task wrote is in no table. Rows of one partition
are in one file; its values are in the report, not in the file.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

# What a task holds of a file before it writes a row group.
GROUP_BYTES: Final = 32 * 1024 * 1024
GROUP_ROWS: Final = 256 * 1024
_REPORT: Final = (
    ("name", "string", pa.string()),
    ("bytes", "bigint", pa.int64()),
    ("rows", "bigint", pa.int64()),
    ("partition", "string", pa.string()),
    ("statistics", "string", pa.string()),
)
_REPORT_FORM: Final = pa.schema([(name, kind) for name, _, kind in _REPORT])

# The value of a partition: None, a text, a number, a truth value; of a date its ISO text.
PartitionValue = str | int | bool | None


class ColumnStatistics(NamedTuple):
    """What a file says of a simple column; None if it does not say it, or of NULLs only."""

    nulls: int | None
    low: Any
    high: Any


class PartFolder(Protocol):
    """Where tasks write; sent to them, so it can be pickled."""

    def create(self, name: str) -> IO[bytes]:
        """Begin a file that does not exist yet."""

    def remove(self, name: str) -> None:
        """Remove what there is of a file."""


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A folder that all machines of Spark have under one path."""

    path: str

    def create(self, name: str) -> IO[bytes]:
        """Begin a file that does not exist yet."""
        Path(self.path).mkdir(parents=True, exist_ok=True)
        return Path(self.path, name).open("xb")

    def remove(self, name: str) -> None:
        """Remove what there is of a file."""
        Path(self.path, name).unlink(missing_ok=True)


class StatisticsForm(Protocol):
    """How a table writes down what it knows of the columns of a file."""

    def __call__(self, metadata: pq.FileMetaData) -> Mapping[str, object]:
        """By name of a column or part, something that JSON can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A file that a task wrote."""

    name: str
    bytes: int
    rows: int
    partition: tuple[PartitionValue, ...]
    # As the table's form of statistics has them; None if it has none.
    statistics: dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartWriting:
    """What a task needs to write its rows."""

    folder: PartFolder
    # The columns of the files; what rows have after these are values of partitions.
    form: pa.Schema
    # None if the table takes them from the files themselves.
    statistics: StatisticsForm | None = None


def write_parts(rows: DataFrame, writing: PartWriting) -> list[Part]:
    """Write rows by Spark's tasks; they have the columns of the form, then those of partitions."""
    # Spark cannot hand over columns of every name.
    names = [f"c{number}" for number in range(len(rows.columns))]
    rows = rows.toDF(*names)
    partition_by = names[len(writing.form) :]
    if partition_by:
        # Then a task has one file open at a time; Spark sorts on disk if it must.
        rows = rows.sortWithinPartitions(*partition_by)
    form = ", ".join(f"{name} {kind}" for name, kind, _ in _REPORT)
    reports = rows.mapInArrow(PartWritingTask(writing), form).collect()
    return [
        Part(
            name=report["name"],
            bytes=report["bytes"],
            rows=report["rows"],
            partition=tuple(json.loads(report["partition"])),
            statistics=json.loads(report["statistics"]),
        )
        for report in reports
    ]


def statistics_of(metadata: pq.FileMetaData) -> dict[str, ColumnStatistics]:
    """What the footer of a file says of its columns that are not nested, by their names."""
    found: dict[str, ColumnStatistics] = {}
    for index in range(metadata.num_columns):
        column = metadata.schema.column(index)
        if column.path != column.name or column.max_repetition_level:
            continue
        groups = [
            metadata.row_group(group).column(index) for group in range(metadata.num_row_groups)
        ]
        found[column.name] = _merged([group.statistics for group in groups])
    return found


def _merged(groups: Sequence[pq.Statistics | None]) -> ColumnStatistics:
    nulls: int | None = 0
    low = high = None
    has_bounds = True
    for group in groups:
        if group is None:
            return ColumnStatistics(None, None, None)
        nulls = None if nulls is None or not group.has_null_count else nulls + group.null_count
        if not group.num_values:
            continue
        try:
            least, most = (group.min, group.max) if group.has_min_max else (None, None)
        except (ValueError, OverflowError, pa.ArrowException):
            # A date that Python does not have.
            least = most = None
        has_bounds = has_bounds and least is not None
        if has_bounds:
            low = least if low is None or least < low else low
            high = most if high is None or most > high else high
    return ColumnStatistics(nulls, low, high) if has_bounds else ColumnStatistics(nulls, None, None)


@dataclass(frozen=True, slots=True)
class PartWritingTask:
    """What Spark calls with the rows of a task."""

    writing: PartWriting

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of a task; yields a row for each file."""
        runs = itertools.chain.from_iterable(
            _runs(batch, len(self.writing.form)) for batch in batches if batch.num_rows
        )
        reports = []
        for partition, run in itertools.groupby(runs, key=lambda one: one[0]):
            reports.append(self._write(partition, (rows for _, rows in run)))
        if reports:
            yield pa.RecordBatch.from_pylist(reports, schema=_REPORT_FORM)

    def _write(
        self, partition: tuple[PartitionValue, ...], batches: Iterable[pa.RecordBatch]
    ) -> dict[str, object]:
        writing = self.writing
        statistics = writing.statistics
        name = f"part-{uuid.uuid4()}.parquet"
        footers: list[pq.FileMetaData] = []
        rows = 0
        try:
            with writing.folder.create(name) as file:
                with pq.ParquetWriter(
                    file, writing.form, compression="zstd", metadata_collector=footers
                ) as writer:
                    for group in _groups(batches, writing.form):
                        writer.write_table(group, row_group_size=GROUP_ROWS)
                        rows += group.num_rows
                size = file.tell()
        except BaseException:
            # The disk may be full; what is left of it is in no table anyway.
            with suppress(OSError):
                writing.folder.remove(name)
            raise
        return {
            "name": name,
            "bytes": size,
            "rows": rows,
            "partition": json.dumps(partition),
            "statistics": json.dumps(statistics and dict(statistics(footers[0]))),
        }


def _runs(
    batch: pa.RecordBatch, width: int
) -> Iterator[tuple[tuple[PartitionValue, ...], pa.RecordBatch]]:
    """A batch that is sorted by partition, in pieces of one partition each."""
    if batch.num_columns == width:
        yield (), batch
        return
    columns = [_values(column) for column in batch.columns[width:]]
    rows = batch.select(range(width))
    start = 0
    for partition, run in itertools.groupby(zip(*columns, strict=True)):
        length = sum(1 for _ in run)
        yield partition, rows.slice(start, length)
        start += length


def _values(column: pa.Array) -> list[PartitionValue]:
    # Python has fewer years than Spark, so dates stay text.
    values = column.cast(pa.string()) if pa.types.is_date(column.type) else column
    found: list[PartitionValue] = values.to_pylist()
    return found


def _groups(batches: Iterable[pa.RecordBatch], form: pa.Schema) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(_cast(batch, form))
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _cast(batch: pa.RecordBatch, form: pa.Schema) -> pa.RecordBatch:
    columns = [column.cast(field.type) for column, field in zip(batch.columns, form, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=form)
