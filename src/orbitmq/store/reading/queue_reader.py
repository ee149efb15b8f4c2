"""Reading a queue: which records a consumer gets, and its next offset.

The rules are RocketMQ's: what an offset outside the queue means, how many messages and bytes one
read returns near the end of the log and far from it, how many entries a filter may skip.

Threads: any. A damaged record is never returned, and a damaged entry never skipped: reading stops
before it, and raises QueueDamagedError if it is the first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from orbitmq.errors import QueueDamagedError
from orbitmq.model.queues import QueueOffset
from orbitmq.record.codec import is_sound, sound_records
from orbitmq.store.files.record_checks import damage_of, queue_offset_of
from orbitmq.store.index.consume_queue import ENTRY, ENTRY_BYTES
from orbitmq.store.log.stand_ins import is_stand_in

if TYPE_CHECKING:
    from orbitmq.model.queues import PhysicalOffset
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.files.mapped_file import MappedFile

# No read is larger than this, whatever is requested.
READ_BYTES_MAX: Final = 128 * 1024 * 1024
_READ_BYTES_MIN: Final = 100
# Within this distance of the end, messages are read from the mapping. An older page may have to
# come from the disk, and every thread would wait for it.
MAPPED_READ_BYTES: Final = 128 * 1024 * 1024
# Older records are read in one piece, with what is between them, up to this size.
SPAN_BYTES_MAX: Final = 512 * 1024
# Compat: entries of these queues point to records of other topics.
_SHARED_RECORDS: Final = "%LMQ%"
_ZERO: Final = QueueOffset(0)

TagFilter = Callable[[int], bool]
# None ends the read before the record: the filter has used up its time.
RecordFilter = Callable[[bytes], bool | None]
Pread = Callable[[int, int], bytes | bytearray | None]


class ReadStatus(Enum):
    """The outcome of a read; the names are RocketMQ's, since consumers see them as a remark."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


@dataclass(slots=True, kw_only=True)
class Read:
    """The result of a read."""

    status: ReadStatus
    next_offset: QueueOffset
    start: QueueOffset = _ZERO
    end: QueueOffset = _ZERO
    records: list[bytes] = field(default_factory=list)
    record_bytes: int = 0
    # Entries that a filter skipped.
    filtered_count: int = 0
    # Whether the next messages are so far from the end that a slave should serve them.
    far_behind: bool = False


class ReadableQueue(Protocol):
    """A queue as a reader sees it, on disk or in memory."""

    @property
    def topic(self) -> str:
        """The topic."""

    @property
    def queue_id(self) -> int:
        """The number of the queue in its topic."""

    @property
    def start(self) -> QueueOffset:
        """The number of the oldest message."""

    @property
    def end(self) -> QueueOffset:
        """The number after the newest message."""

    @property
    def opened_end(self) -> QueueOffset:
        """The end when the store was opened; the first number if the queue is newer."""

    @property
    def min_physical_offset(self) -> PhysicalOffset:
        """A sound entry from `start` on leads here or further."""

    def entry(self, number: QueueOffset) -> tuple[int, int, int] | None:
        """Read one entry: physical offset, record bytes, tag hash; None if it does not exist."""

    def entries(self, first: QueueOffset, count: int) -> bytes:
        """Read up to `count` entries from `first`; none if that one does not exist."""


class ReadableLog(Protocol):
    """A log as a reader sees it, on disk or in memory."""

    @property
    def end(self) -> PhysicalOffset:
        """The offset after the newest record."""

    @property
    def file_bytes(self) -> int:
        """How many bytes are deleted together."""

    def newest_view(self) -> tuple[memoryview | None, int]:
        """Bytes at the end that can be read without waiting, and the offset of the first."""

    def pread(self, offset: int, size: int, /) -> bytes | None:
        """Read bytes; None if the log does not have them."""

    def pread_nowait(self, offset: int, size: int, /) -> bytes | bytearray | None:
        """Read bytes as `pread` does; BlockingIOError if it would wait for the disk."""

    def deleted_until(self, offset: int, since: int, /) -> int:
        """Up to where retention deleted a record at or after `since`; 0 if it did not."""

    def file_at(self, offset: int, /) -> MappedFile | None:
        """The file that holds an offset; None if there is none."""


class QueueReader:
    """Reads queues of one log."""

    def __init__(self, log: ReadableLog, config: StoreConfig, *, memory_bytes: int) -> None:
        self.log = log
        self._config = config
        # Within this distance of the end, messages count as in memory.
        self.near_bytes = memory_bytes * config.memory_percent // 100

    def read(
        self,
        queue: ReadableQueue | None,
        offset: QueueOffset,
        count_max: int,
        *,
        bytes_max: int = READ_BYTES_MAX,
        tag_filter: TagFilter | None = None,
        record_filter: RecordFilter | None = None,
        may_wait: bool = True,
    ) -> Read:
        """Read up to `count_max` records from `offset` on.

        Without `may_wait`, raises BlockingIOError if a record is not in memory.
        """
        result = start_read(queue, offset)
        if queue is None or result.status is not ReadStatus.NO_MATCHED_MESSAGE:
            return result
        scanned = max(count_max, 1)
        if tag_filter is not None or record_filter is not None:
            scanned = max(scanned, self._config.scan_bytes_max // ENTRY_BYTES)
        entries = queue.entries(offset, scanned)
        if not entries:
            return missing_entries(queue, offset)
        limits = Limits(self._config, count_max, min(bytes_max, READ_BYTES_MAX))
        pread = self.log.pread if may_wait else self.log.pread_nowait
        if record_filter is None:
            passed = self._collect_common(queue, entries, result, limits, tag_filter, pread)
            entries = entries[passed * ENTRY_BYTES :]
        if entries:
            self.collect(queue, entries, result, limits, tag_filter, record_filter, pread)
        return result

    def _collect_common(
        self,
        queue: ReadableQueue,
        entries: bytes,
        result: Read,
        limits: Limits,
        tag_filter: TagFilter | None,
        pread: Pread,
    ) -> int:
        """Collect records up to the first unusual one or the limits; return how many entries."""
        # Perf: one compiled call reads 32 messages in 19 us, `collect` in 50 us; without the mapping
        # in 28 instead of 112 us (benchmarks/store_read.py). `collect` continues where this ends,
        # and knows every rule.
        first_offset = ENTRY.unpack_from(entries)[0]
        log_end = self.log.end
        near_from = log_end - self.near_bytes
        content: memoryview | bytes | bytearray | None
        content, content_start = self.log.newest_view()
        mapped_from = max(content_start, near_from, log_end - MAPPED_READ_BYTES)
        low: int = mapped_from
        high: int = log_end
        most = limits.near
        if content is None or first_offset < mapped_from:
            low = near_from
            if first_offset < near_from:
                # A record that ends at the border begins before it, so all of these are far.
                low, high, most = 0, near_from, limits.far
            content_start = first_offset
            content = _read_span(entries, most[0], pread) if tag_filter is None else None
        if content is None:
            return 0
        topic = expected_topic(queue)
        result.records, result.record_bytes, passed = sound_records(
            entries,
            content,
            content_start,
            low,
            high,
            topic,
            queue.queue_id,
            result.next_offset,
            *most,
            tag_filter,
        )
        if passed:
            result.filtered_count = passed - len(result.records)
            result.next_offset = QueueOffset(result.next_offset + passed)
            last_offset = ENTRY.unpack_from(entries, (passed - 1) * ENTRY_BYTES)[0]
            result.far_behind = last_offset < near_from
        if result.records:
            result.status = ReadStatus.FOUND
        return passed

    def collect(  # noqa: C901, PLR0915  # Perf: see below
        self,
        queue: ReadableQueue,
        entries: bytes,
        result: Read,
        limits: Limits,
        tag_filter: TagFilter | None,
        record_filter: RecordFilter | None,
        pread: Pread,
    ) -> None:
        """Add the records of entries to a result, by every rule, up to the limits."""
        # Perf: local names and one compiled check per record; another object or call per record
        # would be measurable here.
        topic = expected_topic(queue)
        queue_id, near_bytes, log = queue.queue_id, self.near_bytes, self.log
        log_end = log.end
        newest, newest_start = log.newest_view()
        mapped_from = max(newest_start, log_end - min(near_bytes, MAPPED_READ_BYTES))
        records = result.records
        taken_bytes, skip_below = result.record_bytes, 0
        number = result.next_offset
        missed = ReadStatus.NO_MATCHED_MESSAGE
        for physical_offset, record_bytes, tag_hash in ENTRY.iter_unpack(entries):
            near = log_end - physical_offset <= near_bytes
            count_max, bytes_max = limits.near if near else limits.far
            # Never before the first record, however large it is.
            if records and (
                len(records) >= count_max
                or taken_bytes + record_bytes > bytes_max
                or taken_bytes >= limits.stop_bytes
            ):
                break
            number += 1  # type: ignore[assignment]  # Perf: see above
            result.far_behind = not near
            if 0 <= physical_offset < skip_below:
                continue
            if tag_filter is not None and not tag_filter(tag_hash):
                result.filtered_count += 1
                missed = ReadStatus.NO_MATCHED_MESSAGE
                continue
            at = physical_offset - newest_start
            if (
                newest is not None
                and physical_offset >= mapped_from
                and physical_offset + record_bytes <= log_end
            ):
                found: bytes | bytearray | memoryview | None = newest[at : at + record_bytes]
            else:
                found = pread(physical_offset, record_bytes)
            if found is None and (
                skip_below := log.deleted_until(physical_offset, queue.min_physical_offset)
            ):
                missed = ReadStatus.MESSAGE_WAS_REMOVING
                continue
            record = bytes(found or b"")
            if not is_sound(record, physical_offset, topic, queue_id) or (
                queue_offset_of(record) != number - 1 and _is_astray(queue, number - 1)
            ):
                number -= 1  # type: ignore[assignment]  # Perf: see above
                if not records:
                    number = self._next_start(queue, number, physical_offset, record)
                    missed = ReadStatus.MESSAGE_WAS_REMOVING
                break
            # The message of a stand-in is lost; the consumer skips it.
            accepted = not is_stand_in(record) and (record_filter is None or record_filter(record))
            if accepted is None:
                number -= 1  # type: ignore[assignment]  # Perf: see above
                break
            if not accepted:
                result.filtered_count += 1
                missed = ReadStatus.NO_MATCHED_MESSAGE
                continue
            records.append(record)
            taken_bytes += record_bytes
            skip_below = 0
        result.next_offset = number
        result.record_bytes = taken_bytes
        result.status = ReadStatus.FOUND if records else missed

    def _next_start(
        self, queue: ReadableQueue, number: QueueOffset, physical_offset: int, record: bytes
    ) -> QueueOffset:
        """Where to read on if retention has just deleted a record; raises if it is damaged."""
        start = queue.start
        if number >= start:
            raise self._damage(queue, number, physical_offset, record)
        return start

    def _damage(
        self, queue: ReadableQueue, number: QueueOffset, physical_offset: int, record: bytes
    ) -> QueueDamagedError:
        """The error that says what is wrong with a record, or with the entry that leads to it."""
        if not record:
            return _entry_damage(
                queue, number, f"leads to offset {physical_offset}, where the log has no record"
            )
        damage = damage_of(
            record, physical_offset, topic=expected_topic(queue), queue_id=queue.queue_id
        )
        if not damage:
            return _entry_damage(
                queue, number, f"leads to message {queue_offset_of(record)} instead of its own"
            )
        file = self.log.file_at(physical_offset)
        where = f"{file.path} at byte {physical_offset - file.first_offset}" if file else "the log"
        return QueueDamagedError(
            f"message {number} of topic {queue.topic!r} queue {queue.queue_id}, in {where} "
            f"(offset {physical_offset}): {damage}",
            queue_offset=number,
            hint="run: orbitmq store verify; to skip the message, reset the consumer's offset",
        )


def missing_entries(queue: ReadableQueue, offset: QueueOffset) -> Read:
    """Read where entries cannot be read; raises QueueDamagedError unless they were deleted."""
    if queue.start <= offset < queue.end:
        raise _entry_damage(queue, offset, "cannot be read")
    return start_read(queue, offset)


def _is_astray(queue: ReadableQueue, number: int) -> bool:
    """Whether an entry leads to the record of another; its number alone does not tell.

    Compat: after a loss, queues have their entries without gaps, whatever their records' numbers.
    """
    if queue.topic.startswith(_SHARED_RECORDS):
        return False
    around = [
        entry
        for other in (number - 1, number, number + 1)
        if (entry := queue.entry(QueueOffset(other))) is not None
    ]
    return any(left[0] + left[1] > right[0] for left, right in itertools.pairwise(around))


def _entry_damage(queue: ReadableQueue, number: int, damage: str) -> QueueDamagedError:
    return QueueDamagedError(
        f"entry {number} of topic {queue.topic!r} queue {queue.queue_id} {damage}",
        queue_offset=number,
        hint="stop the broker and run: orbitmq store rebuild, which makes queues from the log",
    )


def expected_topic(queue: ReadableQueue) -> bytes | None:
    """The topic that the records of a queue must have; None for any."""
    return None if queue.topic.startswith(_SHARED_RECORDS) else queue.topic.encode()


def _read_span(entries: bytes, count_max: int, pread: Pread) -> bytes | bytearray | None:
    """Read the records of the first entries in one piece; None if too long, or not in the log."""
    last = max(1, min(count_max, len(entries) // ENTRY_BYTES)) - 1
    first_offset = ENTRY.unpack_from(entries)[0]
    last_offset, last_bytes, _ = ENTRY.unpack_from(entries, last * ENTRY_BYTES)
    size = last_offset + last_bytes - first_offset
    if first_offset < 0 or last_bytes <= 0 or not 0 < size <= SPAN_BYTES_MAX:
        return None
    return pread(first_offset, size)


class Limits:
    """How much one read may return: messages and bytes, near the end of the log and far from it."""

    __slots__ = ("far", "near", "stop_bytes")

    def __init__(self, config: StoreConfig, count_max: int, bytes_max: int) -> None:
        self.near = (
            min(count_max, config.memory_count_max),
            min(bytes_max, config.memory_bytes_max),
        )
        self.far = min(count_max, config.disk_count_max), min(bytes_max, config.disk_bytes_max)
        # The read stops after this many bytes, near or far.
        self.stop_bytes = max(bytes_max, _READ_BYTES_MIN)

    @classmethod
    def uniform(cls, count_max: int, bytes_max: int) -> Limits:
        """Make limits that are the same near the end and far from it."""
        made = cls.__new__(cls)
        made.near = made.far = count_max, bytes_max
        made.stop_bytes = max(bytes_max, _READ_BYTES_MIN)
        return made


def start_read(queue: ReadableQueue | None, offset: QueueOffset) -> Read:
    """Start a read: nothing matched yet, unless the offset is outside the queue."""
    if queue is None:
        # Compat: Java creates the queue on request, and finds it empty.
        return Read(status=ReadStatus.NO_MESSAGE_IN_QUEUE, next_offset=_ZERO)
    start, end = queue.start, queue.end
    status, next_offset = ReadStatus.NO_MATCHED_MESSAGE, offset
    if end == 0:
        status, next_offset = ReadStatus.NO_MESSAGE_IN_QUEUE, _ZERO
    elif offset < start:
        status, next_offset = ReadStatus.OFFSET_TOO_SMALL, start
    elif offset == end:
        status = ReadStatus.OFFSET_OVERFLOW_ONE
    elif offset > end:
        # The reader was here before a crash that lost messages, or before the topic was created
        # again: all that is stored since is new to it.
        status, next_offset = ReadStatus.OFFSET_OVERFLOW_BADLY, max(start, queue.opened_end)
    return Read(status=status, next_offset=next_offset, start=start, end=end)
