"""The reader of a batch: each task's share is fixed when the query is planned.

There are two classes, since Spark refuses every read by a reader that can take filters unless its
setting `spark.sql.python.filterPushdown.enabled` is on. Which one is made depends on the process,
and on the user's option: Spark stores the partitions left by pushed filters with the DataFrame, not
with the query, and reuses them for later queries of the same DataFrame that push none.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from orbitmq.spark.reading.filters import Pruning, is_pushing_worker, pruning_of
from orbitmq.spark.reading.partitions import QueuePartition
from orbitmq.spark.reading.planning import pack
from orbitmq.spark.reading.positions import batch_ranges, without_lost
from orbitmq.spark.reading.queue_fetch import read_partition
from orbitmq.spark.reading.queue_view import QueueView
from orbitmq.spark.sessions.short_errors import short_errors
from orbitmq.spark.sessions.worker_process import freeze_loaded_modules

if TYPE_CHECKING:
    import pyarrow as pa

    from orbitmq.spark.options.read_options import ReadOptions
    from orbitmq.spark.rows.schema import Projection


def reader_for(options: ReadOptions, projection: Projection) -> DataSourceReader:
    """Make the reader that Spark can use in this process."""
    if options.push_filters and is_pushing_worker():
        return PushingReader(options, projection)
    return BatchReader(options, projection)


@short_errors
class BatchReader(DataSourceReader):
    """Reads topics from a start to an end."""

    def __init__(self, options: ReadOptions, projection: Projection) -> None:
        self._options = options
        self._projection = projection
        self._pruning = Pruning()

    def partitions(self) -> Sequence[InputPartition]:
        """Plan what each task reads."""
        freeze_loaded_modules()
        options = self._options
        with QueueView(options) as view:
            ranges = self._pruning.narrowed(
                batch_ranges(options, view), namespace=options.namespace
            )
            ranges = self._pruning.between(ranges, view.at_times)
            view.wait_for_copies(ranges)
            ranges = without_lost(ranges, options, view)
        return pack(
            ranges,
            parallelism=os.cpu_count() or 1,
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a task's partition; runs on an executor."""
        # Spark makes a task even if there is nothing to read.
        if isinstance(partition, QueuePartition):
            yield from read_partition(partition, self._options, self._projection)


@short_errors
class PushingReader(BatchReader):
    """A reader to which Spark pushes the filters of a query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Use filters to read less; all are returned, so that Spark still checks every row."""
        self._pruning = pruning_of(filters)
        expression = self._pruning.expression
        if expression is not None and not self._options.tags and not self._options.sql:
            self._options = replace(self._options, tags=expression)
        return filters
