"""Reading an open store: by queue, by time, by key and by physical offset.

Threads: any, at any time.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

from orbitmq.errors import QueueDamagedError
from orbitmq.model.property_names import KEYS, UNIQUE_ID
from orbitmq.model.queues import PhysicalOffset, QueueBounds, QueueOffset
from orbitmq.record.codec import is_sound, whole_records
from orbitmq.record.decode import StoredMessage, decode_sound
from orbitmq.record.layout import MAGIC_V1, MAGIC_V2
from orbitmq.record.message_id import decode_message_id
from orbitmq.store.files.record_checks import (
    HEAD_BYTES,
    is_head_of,
    store_ms_of,
)
from orbitmq.store.index.consume_queue import ENTRY, ConsumeQueue
from orbitmq.store.log.stand_ins import is_stand_in
from orbitmq.store.reading.bodiless_reading import read_without_bodies
from orbitmq.store.reading.bulk_reading import read_bulk
from orbitmq.store.reading.entry_repair import EntryRepair
from orbitmq.store.reading.hidden_records import record_places
from orbitmq.store.reading.memory_log import FIRST_OFFSET
from orbitmq.store.reading.queue_reader import QueueReader, Read, RecordFilter, TagFilter
from orbitmq.store.reading.queue_times import Boundary, earliest_ms, offset_at_time
from orbitmq.store.reading.tag_search import TagSearch, count_miss

if TYPE_CHECKING:
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.files.mapped_file import MappedFile
    from orbitmq.store.opening.parts import Parts
    from orbitmq.store.reading.memory_log import MemoryQueue
    from orbitmq.store.reading.memory_topics import MemoryTopics
    from orbitmq.store.reading.queue_reader import ReadableQueue


T = TypeVar("T")

_ZERO: Final = QueueOffset(0)
# Size and magic of a record.
_RECORD_START: Final = struct.Struct(">iI")
# What one read takes if the next message that is wanted begins this close.
_RUN_BYTES: Final = 256 * 1024
_NEIGHBOUR_BYTES: Final = 16 * 1024
# Larger than any record.
_STEP_BYTES: Final = 16 * 1024 * 1024


class StoredMessages:
    """The visible messages of a store; `MessageStore` adds writing."""

    def __init__(self, parts: Parts, config: StoreConfig, memory: MemoryTopics) -> None:
        self._parts = parts
        self._memory = memory
        self._log = parts.log
        self._queues = parts.queues
        self._indexes = parts.indexes
        self._query_count_max = config.query_count_max
        self._reader = QueueReader(self._log, config, memory_bytes=_machine_memory_bytes())
        self._repair = EntryRepair(self._log, self._queues, parts.dispatcher.delay_levels_ms)

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
        may_wait: bool = True,
    ) -> Read:
        """Read records of a queue from an offset on; see `QueueReader.read`."""
        while True:
            on_disk, in_memory = self._find(topic, queue_id)
            reader, queue = self._part_at(offset, on_disk, in_memory)
            try:
                found = reader.read(
                    queue,
                    QueueOffset(offset),
                    count_max,
                    tag_filter=tag_filter,
                    record_filter=record_filter,
                    may_wait=may_wait,
                )
            except QueueDamagedError as damage:
                if self._is_known(on_disk, topic, queue_id):
                    self._repair_entry(queue, damage, may_wait=may_wait)
                continue
            if in_memory is not None:
                found.start, found.end = _bounds(on_disk, in_memory)
            if self._is_known(on_disk, topic, queue_id):
                return found

    def read_bulk(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        bytes_max: int,
        *,
        tag_filter: TagFilter | None = None,
        record_filter: RecordFilter | None = None,
        with_bodies: bool = True,
    ) -> Read:
        """Read many records of a queue from an offset on; see `bulk_reading`."""
        while True:
            on_disk, in_memory = self._find(topic, queue_id)
            reader, queue = self._part_at(offset, on_disk, in_memory)
            read = partial(
                read_bulk,
                reader,
                queue,
                bytes_max=bytes_max,
                tag_filter=tag_filter,
                record_filter=record_filter,
            )
            try:
                if with_bodies:
                    found = read(QueueOffset(offset), count_max)
                else:
                    found = read_without_bodies(read, offset, count_max, bytes_max)
            except QueueDamagedError as damage:
                if self._is_known(on_disk, topic, queue_id):
                    self._repair_entry(queue, damage)
                continue
            if in_memory is not None:
                found.start, found.end = _bounds(on_disk, in_memory)
            if self._is_known(on_disk, topic, queue_id):
                return found

    def _repair_entry(
        self, queue: ReadableQueue | None, damage: QueueDamagedError, *, may_wait: bool = True
    ) -> None:
        """Repair a queue entry that a read has met, or raise what is wrong with it."""
        if not isinstance(queue, ConsumeQueue) or self._repair.was_tried(queue, damage):
            raise damage
        if not may_wait:
            raise BlockingIOError(errno.EAGAIN, "a queue entry needs repair") from damage
        if not self._repair.repair(queue, damage):
            raise damage

    def _part_at(
        self, offset: int, on_disk: ConsumeQueue | None, in_memory: MemoryQueue | None
    ) -> tuple[QueueReader, ReadableQueue | None]:
        """The part of a queue that holds an offset, and its reader."""
        if in_memory is not None and (on_disk is None or offset >= on_disk.end):
            return self._memory.reader, in_memory
        return self._reader, on_disk

    def start_of(self, topic: str, queue_id: int) -> QueueOffset:
        """The oldest offset of a queue."""
        return self._look(topic, queue_id, _bounds)[0]

    def end_of(self, topic: str, queue_id: int) -> QueueOffset:
        """The offset after the newest visible message."""
        return self._look(topic, queue_id, _bounds)[1]

    def offset_at(
        self, topic: str, queue_id: int, time_ms: int, boundary: Boundary = Boundary.LOWER
    ) -> QueueOffset:
        """The offset of a queue at a store time."""
        return self._look(topic, queue_id, lambda *parts: self._offset_in(parts, time_ms, boundary))

    def _offset_in(
        self,
        found: tuple[ConsumeQueue | None, MemoryQueue | None],
        time_ms: int,
        boundary: Boundary,
    ) -> QueueOffset:
        # Store times do not fall between the part on disk and the one in memory either.
        parts = [part for part in found if part is not None and part.start < part.end]
        if boundary is Boundary.LOWER:
            for part in parts:
                store_ms_of = partial(self._store_ms, part, may_wait=True)
                number = offset_at_time(part, time_ms, store_ms_of)
                if number < part.end:
                    return number
            return _bounds(*found)[1]
        for part in reversed(parts):
            store_ms_of = partial(self._store_ms, part, may_wait=True)
            oldest_ms = earliest_ms(part, store_ms_of)
            if oldest_ms is not None and oldest_ms <= time_ms:
                return offset_at_time(part, time_ms, store_ms_of, boundary)
        return _bounds(*found)[0]

    def earliest_ms(self, topic: str, queue_id: int) -> int:
        """The store time of the oldest message of a queue; -1 if it has none."""

        def look(*parts: ConsumeQueue | MemoryQueue | None) -> int:
            for part in parts:
                store_ms = (
                    earliest_ms(part, partial(self._store_ms, part)) if part is not None else None
                )
                if store_ms is not None:
                    return store_ms
            return -1

        return self._look(topic, queue_id, look)

    def store_ms_of(self, topic: str, queue_id: int, offset: int) -> int | None:
        """The store time of one message of a queue; None if there is no such message."""

        def look(*parts: ConsumeQueue | MemoryQueue | None) -> int | None:
            for part in parts if offset >= 0 else ():
                if part is not None and part.start <= offset < part.end:
                    return self._store_ms(part, QueueOffset(offset))
            return None

        return self._look(topic, queue_id, look)

    def entries(
        self, topic: str, queue_id: int, offset: int, count_max: int
    ) -> list[tuple[int, int, int]]:
        """Read entries of a queue, fewer at the end of a file.

        Each holds physical offset, record bytes, and tag hash or due time. Those that overlap, or
        lead out of the log, are repaired first, if they can be.
        """
        content = self.encoded_entries(topic, queue_id, offset, count_max)
        queue = self._queues.find(topic, queue_id)
        if queue is not None and offset < queue.end:
            doubtful = _doubtful_entries(content, queue.min_physical_offset, self._log.end)
            for at in doubtful:
                with suppress(QueueDamagedError):
                    self.read(topic, queue_id, offset + at, 1)
            if doubtful:
                content = self.encoded_entries(topic, queue_id, offset, count_max)
        return list(ENTRY.iter_unpack(content))

    def encoded_entries(self, topic: str, queue_id: int, offset: int, count_max: int) -> bytes:
        """Read entries of a queue as their bytes, fewer at the end of a file."""

        def look(*parts: ConsumeQueue | MemoryQueue | None) -> bytes:
            for part in parts:
                content = part.entries(QueueOffset(offset), count_max) if part is not None else b""
                if content:
                    return content
            return b""

        return self._look(topic, queue_id, look)

    def is_in_memory(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a message counts as in memory, by `memory_percent`."""
        entry = self._entry(topic, queue_id, offset)
        return entry is not None and self._log.end - entry[0] <= self._reader.near_bytes

    def has_queues(self, topic: str) -> bool:
        """Whether a topic has or had messages."""
        return any(queue.topic == topic for queue in (*self._queues, *self._memory.queues()))

    def queues(self, topics: Container[str] | None = None) -> list[QueueBounds]:
        """The bounds of every queue that has or had messages, or of those of some topics."""
        keys = {
            (queue.topic, queue.queue_id): None
            for queue in (*self._queues, *self._memory.queues())
            if topics is None or queue.topic in topics
        }
        bounds = (QueueBounds(*key, *self._look(*key, _bounds)) for key in keys)
        return [queue for queue in bounds if queue.end > 0]

    def queue_ids(self, topic: str) -> list[int]:
        """The queues of a topic that have or had messages."""
        parts = (*self._queues, *self._memory.queues())
        return sorted({part.queue_id for part in parts if part.topic == topic and part.end > 0})

    def _find(self, topic: str, queue_id: int) -> tuple[ConsumeQueue | None, MemoryQueue | None]:
        """The part of a queue on disk, and the newer one in memory; None for a missing part."""
        on_disk = self._queues.find(topic, queue_id)
        in_memory = self._memory.find(topic, queue_id)
        if in_memory is not None and on_disk is not None and in_memory.end <= on_disk.end:
            in_memory = None
        return on_disk, in_memory

    def _look(
        self,
        topic: str,
        queue_id: int,
        look: Callable[[ConsumeQueue | None, MemoryQueue | None], T],
    ) -> T:
        """What the two parts of a queue show, again if it was replaced meanwhile."""
        while True:
            on_disk, in_memory = self._find(topic, queue_id)
            seen = look(on_disk, in_memory)
            if self._is_known(on_disk, topic, queue_id):
                return seen

    def _is_known(self, on_disk: ConsumeQueue | None, topic: str, queue_id: int) -> bool:
        """Whether a queue was not replaced, which empties it, while it was read."""
        return self._queues.find(topic, queue_id) is on_disk

    # --- by physical offset and by key --------------------------------------------------------

    def record_at(self, physical_offset: int, *, hidden: bool = False) -> bytes | None:
        """Read one record by physical offset; None if no visible message begins there.

        With `hidden`, messages that are not visible yet count too.
        """
        if physical_offset >= FIRST_OFFSET:
            return self._memory.record_at(physical_offset)
        head = self._log.pread(physical_offset, 4) if physical_offset >= 0 else None
        size = int.from_bytes(head) if head is not None else 0
        if size == 0 or physical_offset + size > (self.log_end if hidden else self.visible):
            return None
        record = self._log.pread(physical_offset, size)
        return record if record is not None and _is_message(record, physical_offset) else None

    def newest_record(self, end: int) -> tuple[PhysicalOffset, bytes] | None:
        """The last record that ends at or below `end`, and where; None if the log has none."""
        for file in reversed(self._log.files):
            if file.first_offset >= end:
                continue
            last = _last_record(file, min(end, self.log_end, file.end_offset) - file.first_offset)
            if last >= 0:
                offset = PhysicalOffset(file.first_offset + last)
                record = self.record_at(offset, hidden=True)
                return (offset, record) if record is not None else None
        return None

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """Read one message by physical offset; None if no visible message begins there."""
        record = self.record_at(physical_offset)
        return decode_sound(record) if record is not None else None

    def messages_at(self, physical_offsets: Sequence[int]) -> Iterator[StoredMessage | None]:
        """Read messages as `message_at` does; neighbours in the log cost one read of the disk."""
        content, start = b"", 0
        for number, offset in enumerate(physical_offsets):
            at = offset - start
            if not 0 <= at <= len(content) - 4:
                following = (
                    physical_offsets[number + 1] if number + 1 < len(physical_offsets) else 0
                )
                if not 0 <= offset < following < offset + _NEIGHBOUR_BYTES:
                    yield self.message_at(offset)
                    continue
                content, start, at = self._run_at(offset), offset, 0
            size = int.from_bytes(content[at : at + 4])
            record = content[at : at + size]
            if 0 < size == len(record) and _is_message(record, offset):
                yield decode_sound(record)
            else:
                # It is longer than the run, or none.
                yield self.message_at(offset)

    def _run_at(self, physical_offset: int) -> bytes:
        """Visible bytes of the log from an offset on, up to the end of its file."""
        file = self._log.file_at(physical_offset)
        if file is None or physical_offset >= FIRST_OFFSET:
            return b""
        end = min(physical_offset + _RUN_BYTES, self.visible, file.end_offset)
        return self._log.pread(physical_offset, end - physical_offset) or b""

    def message_by_id(self, message_id: str) -> StoredMessage | None:
        """Read one message by the id from its receipt; None if there is no such message."""
        return self.message_at(decode_message_id(message_id)[2])

    @property
    def has_key_index(self) -> bool:
        """Whether messages on disk are found by key."""
        return self._indexes is not None

    def find(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = 2**63 - 1,
        count_max: int = 32,
    ) -> list[StoredMessage]:
        """Find the newest messages by key or unique id in a range of store times, oldest first."""
        count_max = min(count_max, self._query_count_max)
        found: dict[int, StoredMessage] = {}
        misses = 0
        for message in self._candidates(topic, key, begin_ms, end_ms):
            if len(found) >= count_max:
                break
            if (
                message.topic == topic
                and begin_ms <= message.store_ms <= end_ms
                and _has_key(message, key)
            ):
                found[message.physical_offset] = message
            else:
                misses = count_miss(misses, key)
        return list(reversed(found.values()))

    def find_tagged(
        self,
        topic: str,
        tag: str,
        *,
        begin_ms: int = 0,
        end_ms: int = 2**63 - 1,
        count_max: int = 32,
    ) -> list[StoredMessage]:
        """Find the newest messages by tag in a range of store times, oldest first."""
        found = TagSearch(self, topic, tag).newest_first(begin_ms, end_ms)
        return list(islice(found, max(min(count_max, self._query_count_max), 0)))[::-1]

    def _candidates(
        self, topic: str, key: str, begin_ms: int, end_ms: int
    ) -> Iterator[StoredMessage]:
        """Messages that may have a key, newest first; some may repeat."""
        yield from self._memory.messages_with(topic, key)
        if self._indexes is not None:
            for offset in self._indexes.find(topic, key, begin_ms=begin_ms, end_ms=end_ms):
                message = self.message_at(offset)
                if message is not None:
                    yield message

    # --- the log ------------------------------------------------------------------------------

    @property
    def visible(self) -> PhysicalOffset:
        """Records below are visible."""
        return self._parts.watermark.offset

    @property
    def indexed_until_ms(self) -> int:
        """The store time of the newest message that can be found by its keys."""
        return self._parts.dispatcher.last_store_ms

    @property
    def log_start(self) -> PhysicalOffset:
        """The oldest byte of the log."""
        return self._log.start

    @property
    def log_end(self) -> PhysicalOffset:
        """The offset after the newest appended record."""
        return self._log.end

    @property
    def newest_file_start(self) -> PhysicalOffset:
        """The offset of the first byte of the file being written."""
        files = self._log.files
        return PhysicalOffset(files[-1].first_offset if files else self._log.end)

    def file_starts(self) -> list[PhysicalOffset]:
        """Where the files of the log begin, oldest first."""
        return [PhysicalOffset(file.first_offset) for file in self._log.files]

    def record_offsets(self, file_start: int, end: int) -> list[int]:
        """Where the records of a file begin, up to the one at `end`."""
        file = self._log.file_at(file_start)
        offsets: list[int] = []
        if file is None:
            return offsets
        at, stop = 0, min(end, self.log_end) - file_start
        while at <= min(stop, file.file_bytes - HEAD_BYTES):
            size, magic = _RECORD_START.unpack_from(file.view, at)
            if magic not in (MAGIC_V1, MAGIC_V2) or size <= 0:
                break
            offsets.append(file_start + at)
            at += size
        return offsets

    def hidden_records(
        self, topic: str, queue_id: int, start: int
    ) -> Iterator[tuple[PhysicalOffset, bytes | None]]:
        """The records of a queue in the log from an offset on, visible or not, and where they are.

        One that cannot be read is None; raises StoreDamagedError where the log is no log.
        """
        for place in record_places(self._log, start, self.log_end, topic, queue_id):
            yield place, self.record_at(place, hidden=True)

    @property
    def parts(self) -> Parts:
        """The parts of the store, for retention and checks."""
        return self._parts

    def _entry(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        for part in self._find(topic, queue_id) if offset >= 0 else ():
            entry = part.entry(QueueOffset(offset)) if part is not None else None
            if entry is not None:
                return entry
        return None

    def _store_ms(
        self, part: ReadableQueue, number: QueueOffset, *, may_wait: bool = False
    ) -> int | None:
        """The store time of a message in a part of a queue; None if it is deleted or damaged.

        With `may_wait`, a damaged entry is repaired, if it can be.
        """
        entry = part.entry(number)
        if entry is None:
            return None
        physical_offset = entry[0]
        if physical_offset >= FIRST_OFFSET:
            return self._memory.store_ms_at(physical_offset)
        head = self._log.pread(physical_offset, HEAD_BYTES)
        if head is not None and is_head_of(head, physical_offset, part.queue_id, number):
            return store_ms_of(head)
        with suppress(QueueDamagedError, BlockingIOError):
            # Compat: after a loss it may have another number than its entry.
            found = self.read(part.topic, part.queue_id, number, 1, may_wait=may_wait)
            if found.records and found.next_offset == number + 1:
                return store_ms_of(found.records[0])
        return None


def _last_record(file: MappedFile, stop: int) -> int:
    """Where the last record of a file begins that ends at or below `stop`; -1 if there is none."""
    at, last = 0, -1
    while at < stop:
        # In steps, so that other threads get their turns.
        step = min(at + _STEP_BYTES, stop)
        end, found, _ = whole_records(file.view, at, step, file.first_offset, check_body=False)
        last = max(last, found)
        if end == at:
            break
        at = end
    return last


def _bounds(
    on_disk: ConsumeQueue | None, in_memory: MemoryQueue | None
) -> tuple[QueueOffset, QueueOffset]:
    """Where a queue of two parts begins and ends."""
    if in_memory is None:
        return (on_disk.start, on_disk.end) if on_disk is not None else (_ZERO, _ZERO)
    if on_disk is not None and on_disk.start < on_disk.end:
        return on_disk.start, in_memory.end
    return in_memory.start, in_memory.end


def _doubtful_entries(content: bytes, low: int, high: int) -> list[int]:
    """Positions of entries that lead below `low` or beyond `high`, or do not lead forward."""
    doubtful: dict[int, None] = {}
    known_end = low
    for at, (physical_offset, record_bytes, _) in enumerate(ENTRY.iter_unpack(content)):
        record_end = physical_offset + record_bytes
        if physical_offset < known_end or record_bytes <= 0 or record_end > high:
            # One of the two is damaged.
            doubtful |= {max(at - 1, 0): None, at: None}
        known_end = max(low, record_end)
    return list(doubtful)


def _has_key(message: StoredMessage, key: str) -> bool:
    properties = message.properties
    return key == properties.get(UNIQUE_ID) or key in properties.get(KEYS, "").split(" ")


def _machine_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _is_message(record: bytes, physical_offset: int) -> bool:
    """Whether bytes are a whole record, written for this offset, that is not lost."""
    return is_sound(record, physical_offset, None, 0) and not is_stand_in(record)
