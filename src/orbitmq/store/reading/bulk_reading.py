"""Reading a queue in bulk: as much as requested, near the end or far from it.

Neighbouring records are read in one piece. `QueueReader`, which knows every rule, handles unusual
ones.

Threads: any; it may wait for the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.model.queues import QueueOffset
from orbitmq.record.codec import sound_records
from orbitmq.store.index.consume_queue import ENTRY, ENTRY_BYTES
from orbitmq.store.reading.queue_reader import (
    READ_BYTES_MAX,
    SPAN_BYTES_MAX,
    Limits,
    ReadStatus,
    expected_topic,
    missing_entries,
    start_read,
)

if TYPE_CHECKING:
    from orbitmq.store.reading.queue_reader import (
        QueueReader,
        Read,
        ReadableLog,
        ReadableQueue,
        RecordFilter,
        TagFilter,
    )


def read_bulk(
    reader: QueueReader,
    queue: ReadableQueue | None,
    offset: QueueOffset,
    count_max: int,
    bytes_max: int,
    *,
    tag_filter: TagFilter | None = None,
    record_filter: RecordFilter | None = None,
) -> Read:
    """Read up to `count_max` records and `bytes_max` bytes from `offset` on; at least one record."""
    result = start_read(queue, offset)
    if queue is None or result.status is not ReadStatus.NO_MATCHED_MESSAGE:
        return result
    entries = queue.entries(offset, max(count_max, 1))
    if not entries:
        return missing_entries(queue, offset)
    most = max(count_max, 1), min(bytes_max, READ_BYTES_MAX)
    if record_filter is None:
        passed = _collect_spans(reader.log, queue, entries, result, most, tag_filter)
        if passed:
            last_offset = ENTRY.unpack_from(entries, (passed - 1) * ENTRY_BYTES)[0]
            result.far_behind = last_offset < reader.log.end - reader.near_bytes
        entries = entries[passed * ENTRY_BYTES :]
        if _is_full(result, entries, most):
            return result
    if entries:
        limits = Limits.uniform(*most)
        reader.collect(queue, entries, result, limits, tag_filter, record_filter, reader.log.pread)
    return result


def _collect_spans(
    log: ReadableLog,
    queue: ReadableQueue,
    entries: bytes,
    result: Read,
    most: tuple[int, int],
    tag_filter: TagFilter | None,
) -> int:
    """Collect records up to the first unusual one or the limits; return how many entries."""
    topic = expected_topic(queue)
    count_max, bytes_max = most
    entry_count = len(entries) // ENTRY_BYTES
    passed = 0
    while passed < entry_count:
        span_end = _span_end(entries, passed, log.file_bytes)
        span = entries[passed * ENTRY_BYTES : span_end * ENTRY_BYTES]
        if _is_full(result, span, most):
            break
        first_offset = ENTRY.unpack_from(span)[0]
        last_offset, last_bytes, _ = ENTRY.unpack_from(span, len(span) - ENTRY_BYTES)
        size = last_offset + last_bytes - first_offset
        is_sane = first_offset >= 0 and size > 0
        content = log.pread(first_offset, size) if is_sane else None
        if content is None:
            break
        records, record_bytes, taken = sound_records(
            span,
            content,
            first_offset,
            first_offset,
            first_offset + size,
            topic,
            queue.queue_id,
            result.next_offset + passed,
            count_max - len(result.records),
            bytes_max - result.record_bytes,
            tag_filter,
        )
        if result.records and result.record_bytes + record_bytes > bytes_max:
            # `sound_records` takes the first record of a span however large it is.
            break
        result.records += records
        result.record_bytes += record_bytes
        result.filtered_count += taken - len(records)
        passed += taken
        if taken * ENTRY_BYTES < len(span):
            break
    result.next_offset = QueueOffset(result.next_offset + passed)
    if result.records:
        result.status = ReadStatus.FOUND
    return passed


def _span_end(entries: bytes, first: int, file_bytes: int) -> int:
    """Find the end of the entries, from `first` on, whose records can be read in one piece."""
    first_offset = ENTRY.unpack_from(entries, first * ENTRY_BYTES)[0]
    limit = min(first_offset + SPAN_BYTES_MAX, (first_offset // file_bytes + 1) * file_bytes)
    low, high = first + 1, len(entries) // ENTRY_BYTES
    # Invariant: physical offsets rise along a queue.
    while low < high:
        middle = (low + high + 1) // 2
        offset, record_bytes, _ = ENTRY.unpack_from(entries, (middle - 1) * ENTRY_BYTES)
        if offset + record_bytes <= limit:
            low = middle
        else:
            high = middle - 1
    return low


def _is_full(result: Read, entries: bytes, most: tuple[int, int]) -> bool:
    """Whether the record of the next entry would exceed the limits."""
    if not result.records or not entries:
        return False
    count_max, bytes_max = most
    record_bytes: int = ENTRY.unpack_from(entries)[1]
    return (
        len(result.records) >= count_max or result.record_bytes + max(record_bytes, 0) > bytes_max
    )
