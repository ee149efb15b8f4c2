"""The front door of the store: put messages in, get them out, through one object.

Threads: `append` and `put` from any thread, one at a time inside; reads from any thread at any
time; flushing and upkeep in threads of their own, begun by opening and ended by `close`.
Crash: opening recovers; see `opening` and `recovery`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from orbitmq.clock import SystemClock
from orbitmq.errors import MessageError, StateError, StoreError
from orbitmq.model.property_names import KEYS, UNIQUE_ID
from orbitmq.model.queues import PhysicalOffset, QueueOffset
from orbitmq.record.codec import encode_record
from orbitmq.record.decode import Found, StoredMessage, decode_record, locate
from orbitmq.record.hosts import encode_host
from orbitmq.record.layout import is_queued, record_bytes
from orbitmq.record.message_id import decode_message_id, encode_message_id
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.draft import Draft, Durability, Receipt
from orbitmq.store.flush import Flusher
from orbitmq.store.opening import Parts, log_folders, open_parts
from orbitmq.store.reading import (
    Boundary,
    QueueReader,
    Read,
    RecordFilter,
    TagFilter,
    offset_at_time,
)
from orbitmq.store.record_checks import HEAD_BYTES, store_ms_of
from orbitmq.store.retention import Decision, Deletion, Retention, RetentionConfig, measure_disk
from orbitmq.store.upkeep import Intervals, Upkeep
from orbitmq.store.visibility import OnVisible, Visibility

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.clock import Clock
    from orbitmq.store.consume_queue import ConsumeQueue
    from orbitmq.store.retention import DiskUse

log = logging.getLogger(__name__)


class MessageStore:
    """A store directory, open for writing."""

    def __init__(
        self,
        config: StoreConfig,
        *,
        retention: RetentionConfig | None = None,
        clock: Clock | None = None,
        store_host: tuple[str, int] = ("127.0.0.1", 10911),
        measure: Callable[[Path], DiskUse] = measure_disk,
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._store_host = encode_host(*store_host)
        self._append_lock = threading.Lock()
        self._closed = False
        self._parts = parts = open_parts(config, self._clock)
        self._log = parts.log
        self._queues = parts.queues
        self._indexes = parts.indexes
        self._last_store_ms = parts.last_store_ms
        self._next_offsets: dict[tuple[str, int], QueueOffset] = {
            (queue.topic, queue.queue_id): queue.end for queue in self._queues
        }
        self._reader = QueueReader(self._log, config, memory_bytes=_machine_memory_bytes())
        self._visibility = Visibility(parts.dispatcher, parts.watermark)
        self._flusher = Flusher(
            sync=self._log.sync,
            dirty_bytes=lambda: self._log.end - self._log.flushed,
            on_round=self._after_flush,
            clock=self._clock,
            interval_ms=config.flush_interval_ms,
            pages_min=config.flush_pages_min,
            thorough_interval_ms=config.flush_thorough_interval_ms,
        )
        retention = retention or RetentionConfig()
        self._retention = Retention(
            retention,
            commit_log=self._log,
            queues=self._queues,
            indexes=self._indexes,
            log_folders=log_folders(parts.root, config.log_path),
            queue_folder=parts.root / "consumequeue",
            clock=self._clock,
            measure=measure,
        )
        self._upkeep = Upkeep(
            commit_log=self._log,
            queues=self._queues,
            save=lambda: parts.progress.save(self._flush_log),
            retry=self._visibility.retry,
            fence=self._flusher.fence,
            retain=self._retain,
            clock=self._clock,
            intervals=Intervals(
                round_ms=config.queue_flush_interval_ms,
                thorough_ms=config.queue_flush_thorough_interval_ms,
                retain_ms=retention.interval_ms,
            ),
        )
        try:
            self._flusher.start(self._log.flushed)
            self._upkeep.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Put everything on disk and let the directory go; the next opening finds it clean.

        A store that is fenced, or whose queues cannot be written, is left to recovery.
        """
        with self._append_lock:
            if self._closed:
                return
            self._closed = True
        self._upkeep.stop()
        self._flusher.stop()
        try:
            if not self._flusher.is_fenced:
                self._save_all()
        except (OSError, StoreError) as error:
            log.warning("store not closed cleanly; the next start recovers reason=%s", error)
        finally:
            self._parts.resources.close()

    def _save_all(self) -> None:
        self._visibility.show(self._log.end)
        if self._visibility.trouble is not None:
            raise self._visibility.trouble
        self._log.drop_ready()
        self._parts.progress.save(lambda _: self._flusher.flushed)
        self._parts.mark_clean()

    def __enter__(self) -> MessageStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- putting ------------------------------------------------------------------------------

    def put(self, draft: Draft) -> Receipt:
        """Store a message; under SYNC_FLUSH returns once it is on disk."""
        return self.confirm([self.append(draft)])[0]

    def put_batch(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Store messages of one queue; under SYNC_FLUSH returns once they are on disk."""
        return self.confirm(self.append_batch(drafts))

    def append(self, draft: Draft) -> Receipt:
        """Write a message to the log without waiting for the disk."""
        return self.append_batch((draft,))[0]

    def append_batch(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Write messages of one queue to the log, one behind the other, all or none of them."""
        if not drafts:
            return []
        key = (drafts[0].topic, drafts[0].queue_id)
        if any((draft.topic, draft.queue_id) != key for draft in drafts):
            raise MessageError(
                "a batch holds messages of several queues", hint="send one batch per queue"
            )
        body_bytes_max = self._config.body_bytes_max
        *_, topic = (draft.checked_topic(body_bytes_max) for draft in drafts)
        store_host = self._store_host
        flags = [draft.record_flag(store_host) for draft in drafts]
        sizes = [
            record_bytes(
                body_bytes=len(draft.body),
                topic_bytes=len(topic),
                properties_bytes=len(draft.properties),
                system_flag=flag,
            )
            for draft, flag in zip(drafts, flags, strict=True)
        ]
        numbers: list[int] = []

        def encode(buffer: memoryview, physical_offset: int) -> None:
            at, number = 0, next_offset
            for draft, flag, size in zip(drafts, flags, sizes, strict=True):
                queued = is_queued(flag)
                encode_record(
                    buffer,
                    at,
                    topic,
                    draft.queue_id,
                    number if queued else 0,
                    physical_offset + at,
                    draft.body,
                    draft.properties,
                    draft.flag,
                    flag,
                    draft.born_ms,
                    draft.born_host,
                    store_ms,
                    store_host,
                    draft.reconsume_times,
                    draft.prepared_offset,
                )
                numbers.append(number)
                at += size
                number = QueueOffset(number + queued)
            numbers.append(number)

        with self._append_lock:
            self._check_writable()
            next_offset = self._next_offsets.get(key, QueueOffset(0))
            # Invariant: store times never fall in log order, whatever the clock does.
            store_ms = max(self._clock.now_ms(), self._last_store_ms)
            physical_offset = self._log.append(sum(sizes), encode)
            self._last_store_ms = store_ms
            self._next_offsets[key] = QueueOffset(numbers[-1])
        if self._log.wants_upkeep:
            self._upkeep.wake()
        receipts: list[Receipt] = []
        for number, size in zip(numbers, sizes, strict=False):
            receipts.append(
                Receipt(
                    physical_offset=physical_offset,
                    record_bytes=size,
                    queue_offset=QueueOffset(number),
                    store_ms=store_ms,
                    message_id=encode_message_id(store_host, physical_offset),
                    durability=Durability.MEMORY,
                )
            )
            physical_offset = PhysicalOffset(physical_offset + size)
        return receipts

    def confirm(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Wait for the durability that the flush mode promises, and say what was reached."""
        if not receipts:
            return []
        if self._config.flush_mode is FlushMode.ASYNC:
            self._flusher.check()
            self.publish()
            return list(receipts)
        self._flusher.request()
        reached = self._flusher.wait(receipts[-1].end, self._config.flush_timeout_ms)
        durability = Durability.DISK if reached else Durability.DISK_TIMEOUT
        return [replace(receipt, durability=durability) for receipt in receipts]

    def publish(self) -> None:
        """Under ASYNC_FLUSH, let everything appended be seen; call it once per chunk."""
        if self._config.flush_mode is FlushMode.ASYNC and not self._flusher.is_fenced:
            self._visibility.show(self._log.end)

    def request_flush(self) -> None:
        """Ask for a flush round without waiting for it."""
        self._flusher.request()

    def delete_topic(self, topic: str) -> None:
        """Forget a topic's queues; its records age out, and its next message has number 0."""
        with self._append_lock:
            # Records still on their way to the queues would bring them back.
            self._flush_log(self._log.end)
            self._visibility.show(self._log.end)
            self._parts.deleted_topics.note(topic, self._log.end, log_start=self._log.start)
            self._queues.delete_topic(topic)
            for key in [key for key in self._next_offsets if key[0] == topic]:
                del self._next_offsets[key]

    def delete_expired(self) -> tuple[Deletion, ...]:
        """Delete files past their time now, whatever the hour; the next passes go on with it."""
        if self._closed:
            raise StateError("the store is closed")
        self._retention.request()
        return self._retain().deletions

    def change_options(
        self, *, store: StoreConfig | None = None, retention: RetentionConfig | None = None
    ) -> None:
        """Take new values of the options that may change while the store is open."""
        if store is not None:
            self._config = replace(self._config, body_bytes_max=store.body_bytes_max)
        if retention is not None:
            self._retention.config = retention

    @property
    def flushed(self) -> PhysicalOffset:
        """Everything below is on disk."""
        return self._flusher.flushed

    @property
    def visible(self) -> PhysicalOffset:
        """Records below may be seen."""
        return self._visibility.offset

    def on_visible(self, callback: OnVisible) -> None:
        """Have `callback` told which queues grew, once per flush round or published chunk."""
        self._visibility.tell(callback)

    # --- reading ------------------------------------------------------------------------------

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

    def end_of(self, topic: str, queue_id: int, *, committed: bool = True) -> QueueOffset:
        """The offset behind the newest visible message; or behind the newest appended one."""
        if not committed:
            return self._next_offsets.get((topic, queue_id), QueueOffset(0))
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

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """Read one message by physical offset; None when no visible message begins there."""
        head = self._log.pread(physical_offset, 4) if physical_offset >= 0 else None
        size = int.from_bytes(head) if head is not None else 0
        if size == 0 or physical_offset + size > self.visible:
            return None
        record = self._log.pread(physical_offset, size)
        if record is None or isinstance(locate(record, 0, size, check_body=True), Found):
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
        count_max = min(count_max, self._config.query_count_max)
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

    def queues(self) -> list[ConsumeQueue]:
        """Every queue that has or had messages."""
        return list(self._queues)

    @property
    def log_start(self) -> PhysicalOffset:
        """The oldest byte of the log."""
        return self._log.start

    @property
    def log_end(self) -> PhysicalOffset:
        """The end of what was appended."""
        return self._log.end

    # --- inside -------------------------------------------------------------------------------

    @property
    def parts(self) -> Parts:
        """The parts of the store, for retention and checks."""
        return self._parts

    def _check_writable(self) -> None:
        if self._closed:
            raise StateError("the store is closed")
        self._flusher.check()
        self._retention.check()
        trouble = self._upkeep.trouble or self._visibility.trouble
        if trouble is not None:
            raise type(trouble)(f"queues or index cannot be written: {trouble}")

    def _retain(self) -> Decision:
        # Invariant: entries are on disk before the records they were made from go, or a crash
        # would make queues begin again at a number that was used.
        return self._retention.run(
            keep_from=min(self._parts.marks.mark.dispatched, self._flusher.flushed, self.visible)
        )

    def _after_flush(self, flushed: PhysicalOffset) -> None:
        self._parts.marks.raise_flushed(flushed)
        if self._config.flush_mode is FlushMode.SYNC:
            self._visibility.show(flushed)

    def _flush_log(self, offset: PhysicalOffset) -> PhysicalOffset:
        self._flusher.request()
        self._flusher.wait(offset, None)
        return self._flusher.flushed

    def _store_ms_at(self, physical_offset: int) -> int | None:
        head = self._log.pread(physical_offset, HEAD_BYTES)
        return store_ms_of(head) if head is not None else None


def _has_key(message: StoredMessage, key: str) -> bool:
    properties = message.properties
    return key == properties.get(UNIQUE_ID) or key in properties.get(KEYS, "").split(" ")


def _machine_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
