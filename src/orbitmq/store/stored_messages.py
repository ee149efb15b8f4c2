"""Reading an open store: by queue, by time, by key and by place in the log.

Threads: any, at any time.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from orbitmq.model.property_names import KEYS, UNIQUE_ID
from orbitmq.model.queues import PhysicalOffset, QueueOffset
from orbitmq.record.decode import Found, StoredMessage, decode_record, locate
from orbitmq.record.message_id import decode_message_id
from orbitmq.store.reading import (
    Boundary,
    QueueReader,
    Read,
    RecordFilter,
    TagFilter,
    offset_at_time,
)
from orbitmq.store.record_checks import HEAD_BYTES, store_ms_of
from orbitmq.store.stand_ins import is_stand_in

if TYPE_CHECKING:
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.consume_queue import ConsumeQueue
    from orbitmq.store.opening import Parts


class StoredMessages:
    """The messages of a store that may be seen; `MessageStore` adds the putting."""

    def __init__(self, parts: Parts, config: StoreConfig) -> None:
        self._parts = parts
        self._log = parts.log
        self._queues = parts.queues
        self._indexes = parts.indexes
        self._query_count_max = config.query_count_max
        self._reader = QueueReader(self._log, config, memory_bytes=_machine_memory_bytes())

    # --- by queue -----------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int = 32,
        *,
        tag_filter: TagFilter | None = None,
        record_filter: RecordFilter | None = None,
    ) -> Read:
        """Read records of a queue from an offset on."""
        return self._reader.read(
            self._queues.find(topic, queue_id),
            QueueOffset(offset),
            count_max,
            tag_filter=tag_filter,
            record_filter=record_filter,
        )

    def start_of(self, topic: str, queue_id: int) -> QueueOffset:
        """The oldest offset of a queue."""
        queue = self._queues.find(topic, queue_id)
        return queue.start if queue is not None else QueueOffset(0)

    def end_of(self, topic: str, queue_id: int) -> QueueOffset:
        """The offset behind the newest visible message."""
        queue = self._queues.find(topic, queue_id)
        return queue.end if queue is not None else QueueOffset(0)

    def offset_at(
        self, topic: str, queue_id: int, time_ms: int, boundary: Boundary = Boundary.LOWER
    ) -> QueueOffset:
        """The offset of a queue at a store time."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return QueueOffset(0)
        return offset_at_time(queue, time_ms, self._store_ms_at, boundary)

    def earliest_ms(self, topic: str, queue_id: int) -> int:
        """The store time of the oldest message of a queue; -1 when there is none."""
        queue = self._queues.find(topic, queue_id)
        entry = queue.entry(queue.start) if queue is not None else None
        store_ms = self._store_ms_at(entry[0]) if entry is not None else None
        return -1 if store_ms is None else store_ms

    def queues(self) -> list[ConsumeQueue]:
        """Every queue that has or had messages."""
        return list(self._queues)

    # --- by place and by key ------------------------------------------------------------------

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """Read one message by physical offset; None when no visible message begins there."""
        head = self._log.pread(physical_offset, 4) if physical_offset >= 0 else None
        size = int.from_bytes(head) if head is not None else 0
        if size == 0 or physical_offset + size > self.visible:
            return None
        record = self._log.pread(physical_offset, size)
        if record is None or isinstance(locate(record, 0, size, check_body=True), Found):
            return None
        if is_stand_in(record):
            return None
        message = decode_record(record)
        return message if message.physical_offset == physical_offset else None

    def message_by_id(self, message_id: str) -> StoredMessage | None:
        """Read one message by the id that its receipt named; None when it is not there."""
        return self.message_at(decode_message_id(message_id)[2])

    def find(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = 2**63 - 1,
        count_max: int = 32,
    ) -> list[StoredMessage]:
        """Find messages by key or unique id in a range of store times, newest first."""
        count_max = min(count_max, self._query_count_max)
        found: dict[int, StoredMessage] = {}
        if self._indexes is None or count_max <= 0:
            return []
        for offset in self._indexes.find(topic, key, begin_ms=begin_ms, end_ms=end_ms):
            message = self.message_at(offset) if offset not in found else None
            if (
                message is not None
                and message.topic == topic
                and begin_ms <= message.store_ms <= end_ms
                and _has_key(message, key)
            ):
                found[offset] = message
                if len(found) >= count_max:
                    break
        return list(found.values())

    # --- the log ------------------------------------------------------------------------------

    @property
    def visible(self) -> PhysicalOffset:
        """Records below may be seen."""
        return self._parts.watermark.offset

    @property
    def log_start(self) -> PhysicalOffset:
        """The oldest byte of the log."""
        return self._log.start

    @property
    def log_end(self) -> PhysicalOffset:
        """The end of what was appended."""
        return self._log.end

    @property
    def parts(self) -> Parts:
        """The parts of the store, for retention and checks."""
        return self._parts

    def _store_ms_at(self, physical_offset: int) -> int | None:
        head = self._log.pread(physical_offset, HEAD_BYTES)
        return store_ms_of(head) if head is not None else None


def _has_key(message: StoredMessage, key: str) -> bool:
    properties = message.properties
    return key == properties.get(UNIQUE_ID) or key in properties.get(KEYS, "").split(" ")


def _machine_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
