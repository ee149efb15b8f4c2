"""Surveys a store once, when a scan is planned: the wanted ranges of its queues.

Topics, queues, times and offsets become ranges of queue entries here, so that tasks touch only
records that they return. All ranges end at the visible end that the store has now; later writes of
a live broker are not in them.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orbitmq.errors import RecordsDeletedError, StoreDamagedError, StoreError, StoreFormatError
from orbitmq.model.names import is_group_topic, is_system_topic
from orbitmq.record.layout import MAGIC_V1, MAGIC_V2
from orbitmq.spark.reading.filters import Pruning
from orbitmq.spark.scan.queue_gaps import Gap, find_gaps
from orbitmq.spark.scan.store_partitions import QueueSlice, StoreLocation, StorePartition
from orbitmq.spark.scan.store_paths import topics_of_broker
from orbitmq.spark.scan.store_planning import (
    EntryRange,
    part_count,
    row_count,
    sample,
    shares,
    split,
    total_bytes,
)
from orbitmq.store.index.consume_queue import ENTRY_BYTES
from orbitmq.store.opening.parts import CHECKPOINT_NAME, OWN_FOLDER, log_folders
from orbitmq.store.readonly.queue_files import Entry
from orbitmq.store.readonly.readonly_store import SHARED_RECORDS, ReadOnlyStore
from orbitmq.store.readonly.visible_queue import VisibleQueue

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 3
_WHOLE: Final = Pruning()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSelection:
    """What to read from stores; None is no limit."""

    topics: frozenset[str] | None = None
    topic_pattern: str | None = None
    # Topic, broker and queue id.
    queues: frozenset[tuple[str, str, int]] | None = None
    with_system_topics: bool = False
    # Store times at or after `start_ms` and before `end_ms`.
    start_ms: int | None = None
    end_ms: int | None = None
    # The part that the conditions of the query allow.
    pruning: Pruning = _WHOLE

    def takes_topic(self, topic: str) -> bool:
        """Whether messages of a topic are wanted."""
        if topic.startswith(SHARED_RECORDS):
            # Compat: its entries point to records that are also in other queues.
            return False
        if self.topics is not None:
            return topic in self.topics
        if self.queues is not None:
            return any(topic == name for name, _, _ in self.queues)
        if not self.with_system_topics and (is_system_topic(topic) or is_group_topic(topic)):
            return False
        return self.topic_pattern is None or bool(re.fullmatch(self.topic_pattern, topic))

    def takes_queue(self, topic: str, broker_name: str, queue_id: int) -> bool:
        """Whether messages of a queue are wanted."""
        pruning = self.pruning
        return (
            self.takes_topic(topic)
            and (self.queues is None or (topic, broker_name, queue_id) in self.queues)
            and (pruning.topics is None or topic in pruning.topics)
            and (pruning.brokers is None or broker_name in pruning.brokers)
            and (pruning.queue_ids is None or queue_id in pruning.queue_ids)
        )

    @property
    def bounds_ms(self) -> tuple[int | None, int | None]:
        """The limits of store time, from options and conditions together."""
        starts = [ms for ms in (self.start_ms, self.pruning.first_ms) if ms is not None]
        ends = [ms for ms in (self.end_ms, self.pruning.end_ms) if ms is not None]
        return max(starts, default=None), min(ends, default=None)


@dataclass(frozen=True, slots=True)
class FoundQueue:
    """A wanted queue, as it was when the scan was planned."""

    topic: str
    queue_id: int
    queue: VisibleQueue


class StoreSurvey:
    """One store: the wanted queues, and the ranges of their entries."""

    def __init__(
        self,
        location: StoreLocation,
        store: ReadOnlyStore,
        selection: StoreSelection,
        *,
        fail_on_data_loss: bool,
    ) -> None:
        self.location = location
        self._store = store
        self._fail_on_data_loss = fail_on_data_loss
        _check_is_store(Path(location.root), location.log_path, store)
        self._check_is_whole()
        self.topics = store.topics()
        self.queues: list[FoundQueue] = []
        self.ranges: list[EntryRange] = []
        for topic, queue_id in store.queue_keys():
            if selection.takes_queue(topic, location.broker_name, queue_id):
                self._take(topic, queue_id, selection)
        gaps = find_gaps(
            store,
            lambda topic, queue_id: selection.takes_queue(topic, location.broker_name, queue_id),
            configured_topics=topics_of_broker(Path(location.root)),
        )
        if gaps:
            self._report_gaps(gaps)
        self._log_deleted()
        self._samples = sample(self.ranges, self.entry_of)
        self.row_bytes = total_bytes(self._samples)

    @property
    def rows(self) -> int:
        """The number of selected messages, before any filter by tag."""
        return row_count(self.ranges)

    def entry_of(self, queue: int, number: int) -> Entry:
        """An entry of a wanted queue."""
        return self.queues[queue].queue.entry(number)

    def partitions(self, parts: int, records_max: int | None) -> list[StorePartition]:
        """Cut the selected ranges into tasks."""
        found = split(
            self.ranges,
            self.entry_of,
            parts=parts,
            records_max=records_max,
            samples=self._samples,
        )
        return [StorePartition(self.location, [self._slice(one) for one in part]) for part in found]

    def _slice(self, one: EntryRange) -> QueueSlice:
        found = self.queues[one.queue]
        disk_end = int(found.queue.disk_end)
        base = max(one.first, disk_end)
        at, end = (base - disk_end) * ENTRY_BYTES, (one.end - disk_end) * ENTRY_BYTES
        return QueueSlice(
            topic=found.topic,
            queue_id=found.queue_id,
            first=one.first,
            end=one.end,
            disk_end=disk_end,
            file_bytes=found.queue.on_disk.file_bytes,
            tail=found.queue.tail[at:end] if end > at else b"",
        )

    # --- which entries ------------------------------------------------------------------------

    def _take(self, topic: str, queue_id: int, selection: StoreSelection) -> None:
        queue = self._store.queue(topic, queue_id)
        first, end = int(queue.start), int(queue.end)
        if selection.pruning.first_offset is not None:
            first = max(first, selection.pruning.first_offset)
        if selection.pruning.end_offset is not None:
            end = min(end, selection.pruning.end_offset)
        # Store times never decrease within a queue.
        start_ms, end_ms = selection.bounds_ms
        if start_ms is not None and first < end:
            first = max(first, self._store.offset_at(topic, queue_id, start_ms))
        if end_ms is not None and first < end:
            end = min(end, self._store.offset_at(topic, queue_id, end_ms))
        number = len(self.queues)
        self.queues.append(FoundQueue(topic, queue_id, queue))
        for hole, hole_end in self._store.log.missing():
            low, high = queue.first_from(hole), queue.first_from(hole_end)
            if max(first, low) < min(end, high):
                self._report_loss(topic, queue_id, max(first, low), min(end, high))
            if first < min(end, low):
                self.ranges.append(EntryRange(number, first, min(end, low)))
            first = max(first, high)
        if first < end:
            self.ranges.append(EntryRange(number, first, end))

    # --- missing messages ---------------------------------------------------------------------

    def _report_loss(self, topic: str, queue_id: int, first: int, end: int) -> None:
        message = (
            f"messages {first} to {end - 1} of queue {queue_id} of topic {topic!r} of broker "
            f"{self.location.broker_name!r} are gone: log files of {self.location.root} are missing "
            "between others"
        )
        if self._fail_on_data_loss:
            raise RecordsDeletedError(
                message,
                start=end,
                hint="restore them from a copy or a replica; the option failOnDataLoss=false reads "
                "the rest",
            )
        log.warning("%s", message)

    def _check_is_whole(self) -> None:
        """Report a log that ends too early, as in an incomplete copy."""
        store = self._store
        watermark = store.state.watermark
        problem = ""
        if watermark is not None and watermark > store.log.room_end and store.log.files:
            problem = f"its broker had published messages up to offset {watermark}"
        elif store.log.unfinished is not None and _begins_with_record(store):
            problem = (
                f"{store.log.unfinished.path.name} has {store.log.unfinished.file_bytes} bytes "
                f"of {store.log.file_bytes}"
            )
        if not problem:
            return
        message = (
            f"the log of {self.location.root} ends at offset {store.log.room_end}, but {problem}"
        )
        if self._fail_on_data_loss:
            raise StoreDamagedError(
                message,
                hint="copy the whole store; the option failOnDataLoss=false reads the rest",
            )
        log.warning("%s", message)

    def _report_gaps(self, gaps: Sequence[Gap]) -> None:
        gap = gaps[0]
        has = f"entries {gap.start} to {gap.end - 1}" if gap.end > gap.start else "no entries"
        message = (
            f"the log of {self.location.root} has messages that its queues lack: message {gap.first} "
            f"of queue {gap.queue_id} of topic {gap.topic!r} is at offset {gap.physical_offset}, "
            f"but the queue has {has}; incomplete queues: {len(gaps)}"
        )
        if self._fail_on_data_loss:
            raise StoreDamagedError(
                message,
                hint="copy all of consumequeue, or rebuild it with: orbitmq store rebuild; the "
                "option failOnDataLoss=false reads only what queues have, which is right for a "
                "topic that was deleted and recreated",
            )
        log.warning("%s", message)

    def _log_deleted(self) -> None:
        shortened = [found for found in self.queues if found.queue.start > 0]
        if shortened:
            log.warning(
                "store scan starts after deleted messages broker=%s store=%s queues=%d messages=%d",
                self.location.broker_name,
                self.location.root,
                len(shortened),
                sum(found.queue.start for found in shortened),
            )


def plan(
    surveys: Sequence[StoreSurvey],
    *,
    parallelism: int,
    min_partitions: int | None,
    records_max: int | None,
) -> list[StorePartition]:
    """Cut the selected ranges of all stores into tasks of about the same size."""
    weights = [survey.row_bytes for survey in surveys]
    parts = part_count(
        sum(survey.rows for survey in surveys),
        sum(weights),
        parallelism=parallelism,
        min_partitions=min_partitions,
    )
    partitions: list[StorePartition] = []
    for survey, share in zip(surveys, shares(weights, parts), strict=True):
        if survey.rows:
            partitions += survey.partitions(share, records_max)
    return partitions


def _check_is_store(root: Path, log_path: str, store: ReadOnlyStore) -> None:
    folders = log_folders(root, log_path)
    # A store that never held a message has no log.
    signs = (*folders, root / OWN_FOLDER, root / CHECKPOINT_NAME)
    if not any(sign.exists() for sign in signs):
        inside = sorted(path.parent for path in root.glob("*/commitlog"))
        inside += sorted(path.parent for path in root.glob("*/*/commitlog"))
        raise StoreFormatError(
            f"{root} is not a store: {folders[0]} does not exist",
            hint=f"did you mean {inside[0]}?"
            if inside
            else "name the storePathRootDir of a broker; set storePathCommitLog if its log is "
            "elsewhere",
        )
    queues = root / "consumequeue"
    if not queues.is_dir() and store.entries_known_until > store.start:
        raise StoreFormatError(
            f"{root} has a log and no queues: {queues} does not exist",
            hint="copy it too; orbitmq store rebuild rebuilds the queues from the log",
        )
    if not store.log.files and any(queues.glob("*/*/*")):
        raise StoreFormatError(
            f"{root} has queues and no log: {folders[0]} holds no files",
            hint="copy it too; set storePathCommitLog if it is elsewhere",
        )


def _begins_with_record(store: ReadOnlyStore) -> bool:
    """Whether a last file that is too short has records."""
    assert store.log.unfinished is not None
    try:
        with store.log.unfinished.path.open("rb") as file:
            head = file.read(8)
    except OSError:
        return False
    return int.from_bytes(head[4:8]) in {MAGIC_V1, MAGIC_V2}


def survey_store(
    location: StoreLocation, selection: StoreSelection, *, fail_on_data_loss: bool
) -> StoreSurvey:
    """Survey one store."""
    if not Path(location.root).is_dir():
        raise StoreError(
            f"{location.root} is not a folder", hint="name the storePathRootDir of a broker"
        )
    if not os.access(location.root, os.R_OK | os.X_OK):
        raise StoreError(
            f"this user may not read {location.root}",
            hint="give the user that runs Spark read access to the store",
        )
    for attempts_left in reversed(range(_ATTEMPTS)):
        store = ReadOnlyStore(location.root, log_path=location.log_path)
        try:
            return StoreSurvey(location, store, selection, fail_on_data_loss=fail_on_data_loss)
        except StoreError:
            # Retention of a live broker may delete files during the survey.
            if store.state.is_clean or not attempts_left:
                raise
    raise AssertionError("the last attempt returns or raises")
