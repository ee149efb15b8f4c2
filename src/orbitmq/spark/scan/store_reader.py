"""The reader of store directories: planning on the driver, rows in the tasks."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from orbitmq.errors import SettingsError, TopicMissingError
from orbitmq.java_hash import java_hash
from orbitmq.spark.reading.filters import Pruning, is_pushing_worker, pruning_of
from orbitmq.spark.rows.row_batches import RowBatches
from orbitmq.spark.rows.row_decoder import RowDecoder
from orbitmq.spark.rows.schema import Projection
from orbitmq.spark.rows.wanted_rows import WantedRows
from orbitmq.spark.scan.file_fetch import RecordFetch
from orbitmq.spark.scan.record_owners import TopicCheck
from orbitmq.spark.scan.store_partitions import StorePartition
from orbitmq.spark.scan.store_paths import find_stores, topics_of_broker
from orbitmq.spark.scan.store_survey import StoreSelection, StoreSurvey, plan, survey_store
from orbitmq.spark.sessions.short_errors import short_errors
from orbitmq.spark.sessions.worker_process import freeze_loaded_modules, keep_freed_memory
from orbitmq.store.readonly.readonly_store import SHARED_RECORDS

if TYPE_CHECKING:
    from orbitmq.spark.options.store_options import StoreOptions


def reader_for(options: StoreOptions, projection: Projection) -> DataSourceReader:
    """Make the reader that Spark can use in this process."""
    # Spark reuses the result of pushed filters for later queries of the same DataFrame.
    if options.push_filters and is_pushing_worker():
        return PushingStoreReader(options, projection)
    return StoreReader(options, projection)


@short_errors
class StoreReader(DataSourceReader):
    """One scan of store directories."""

    def __init__(self, options: StoreOptions, projection: Projection) -> None:
        self._options = options
        self._projection = projection
        self._pruning = Pruning()

    def partitions(self) -> Sequence[InputPartition]:
        """Survey the stores, and cut the wanted entries into tasks."""
        freeze_loaded_modules()
        options = self._options
        selection = selection_of(options, self._pruning)
        surveys = [
            survey_store(location, selection, fail_on_data_loss=options.fail_on_data_loss)
            for location in find_stores(options)
        ]
        check_topics(options.topics, surveys)
        return plan(
            surveys,
            parallelism=os.cpu_count() or 1,
            min_partitions=options.min_partitions,
            records_max=options.max_records_per_partition,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        # Spark makes a partition of its own if there is none.
        if not isinstance(partition, StorePartition):
            return
        freeze_loaded_modules()
        keep_freed_memory()
        wanted = WantedRows(self._projection, self._options.tag_filter.tags)
        options = self._options
        decoder = RowDecoder(wanted.decoded, check_bodies=options.check_crc)
        rows = RowBatches(decoder, options.unreadable_choice)
        location = partition.location
        fails = options.unreadable_choice == "fail"
        names = wanted.decoded.names
        topics = (
            TopicCheck(partition, names.index("topic"), fail=fails) if "topic" in names else None
        )
        with RecordFetch(
            location,
            fail_on_data_loss=options.fail_on_data_loss,
            fail_on_unreadable=fails,
            check_topics=topics is None,
        ) as fetch:
            for records in fetch.batches(partition.slices, tag_hashes=self._tag_hashes()):
                for decoded in rows.of(records.buffer, records.positions, location.broker_name):
                    batch = wanted.of(topics.of(decoded) if topics is not None else decoded)
                    if batch.num_rows:
                        yield batch
        rows.end()

    def _tag_hashes(self) -> list[int] | None:
        """The tag hashes that entries of wanted messages may have."""
        asked = self._options.tag_filter
        # Spark itself checks the tags in conditions.
        pruned = self._pruning.tags
        if pruned is None:
            return None if asked.tags is None else sorted(asked.hashes)
        hashes = {java_hash(tag) for tag in pruned}
        return sorted(hashes if asked.tags is None else hashes & asked.hashes)


@short_errors
class PushingStoreReader(StoreReader):
    """A reader to which Spark pushes the filters of a query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Use filters to read less; all are returned, so that Spark still checks every row."""
        self._pruning = pruning_of(filters)
        return filters


def selection_of(options: StoreOptions, pruning: Pruning) -> StoreSelection:
    """Combine options and conditions."""
    queues = {(one.topic, one.broker_name, one.queue_id) for one in options.assigned_queues}
    return StoreSelection(
        topics=frozenset(options.topics) or None,
        topic_pattern=options.subscribe_pattern or None,
        queues=frozenset(queues) or None,
        with_system_topics=options.include_system_topics,
        start_ms=options.starting_timestamp,
        end_ms=options.ending_timestamp,
        pruning=pruning,
    )


def check_topics(asked: Sequence[str], surveys: Sequence[StoreSurvey]) -> None:
    """Refuse topics that no store has, and topics that only point to messages of others."""
    present = {topic for survey in surveys for topic in survey.topics}
    for topic in asked:
        if topic.startswith(SHARED_RECORDS):
            raise SettingsError(
                f"topic {topic!r} has no messages of its own: its queues point to those of others",
                hint="read the topics that the messages were sent to",
            )
        if topic in present or any(topic in topics_of_broker(_root(one)) for one in surveys):
            continue
        nearest = difflib.get_close_matches(topic, present, n=1)
        raise TopicMissingError(
            f"topic {topic!r} is not in {', '.join(one.location.root for one in surveys)}",
            hint=f"did you mean {nearest[0]}?" if nearest else _listed(present),
        )


def _root(survey: StoreSurvey) -> Path:
    return Path(survey.location.root)


def _listed(topics: set[str]) -> str:
    shown = sorted(topics)[:10]
    return f"topics found: {', '.join(shown)}{' …' if len(topics) > 10 else ''}" if shown else ""
