"""The memory log: bounded, oldest first."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from itertools import pairwise

import pytest

from orbitmq.errors import MessageError
from orbitmq.model.queues import QueueOffset
from orbitmq.store.index.consume_queue import ENTRY
from orbitmq.store.reading import memory_log
from orbitmq.store.reading.memory_log import (
    FIRST_OFFSET,
    RECORD_OVERHEAD_BYTES,
    MemoryLog,
    MemoryQueue,
)

KEPT_BYTES = 100 + RECORD_OVERHEAD_BYTES
_MAKERS = (memory_log.__file__, __file__)


def put(log: MemoryLog, queue: MemoryQueue, *bodies: bytes) -> None:
    log.append(queue, [(body.ljust(100), hash(body) % 100) for body in bodies])


def queue_of(log: MemoryLog, topic: str = "orders", first: int = 0) -> MemoryQueue:
    return log.queue(topic, 0, QueueOffset(first))


def records(log: MemoryLog, queue: MemoryQueue) -> list[bytes]:
    entries = ENTRY.iter_unpack(queue.all_entries())
    return [(log.pread(offset, size) or b"gone").rstrip() for offset, size, _ in entries]


def test_records_are_read_by_entry_and_by_offset() -> None:
    log = MemoryLog(10 * KEPT_BYTES)
    queue = queue_of(log, first=7)

    put(log, queue, b"a", b"b")

    assert (queue.start, queue.end) == (7, 9)
    assert log.end == FIRST_OFFSET + 200
    assert queue.entry(QueueOffset(8)) == (FIRST_OFFSET + 100, 100, hash(b"b") % 100)
    assert queue.entry(QueueOffset(9)) is queue.entry(QueueOffset(6)) is None
    assert log.record_at(FIRST_OFFSET) == b"a".ljust(100)
    assert log.record_at(FIRST_OFFSET + 1) is None
    assert log.pread(FIRST_OFFSET + 100, 1) == log.pread_nowait(FIRST_OFFSET + 100, 1) == b"b"


def test_offsets_are_above_those_of_every_commit_log() -> None:
    assert MemoryLog(1).end == 2**62


def test_the_oldest_are_dropped_first_whatever_their_queue() -> None:
    log = MemoryLog(3 * KEPT_BYTES)
    orders, prices = queue_of(log), queue_of(log, "prices")

    put(log, orders, b"1")
    put(log, prices, b"2", b"3")
    put(log, orders, b"4")
    assert (records(log, orders), records(log, prices)) == ([b"4"], [b"2", b"3"])
    put(log, orders, b"5", b"6")

    assert (records(log, orders), records(log, prices)) == ([b"4", b"5", b"6"], [])
    assert (orders.start, orders.end) == (1, 4)
    assert (prices.start, prices.end) == (2, 2)
    assert log.record_at(FIRST_OFFSET) is None
    assert log.used_bytes == 3 * KEPT_BYTES


def test_messages_larger_than_the_log_are_refused_and_nothing_is_dropped() -> None:
    log = MemoryLog(3 * KEPT_BYTES)
    queue = queue_of(log)
    put(log, queue, b"1", b"2", b"3")

    with pytest.raises(MessageError, match="raise memoryLogBytesMax"):
        put(log, queue, b"4", b"5", b"6", b"7")

    assert records(log, queue) == [b"1", b"2", b"3"]


def test_a_cleared_queue_keeps_its_end_and_frees_its_bytes() -> None:
    log = MemoryLog(100 * KEPT_BYTES)
    orders, prices = queue_of(log), queue_of(log, "prices")
    put(log, orders, b"1", b"2")
    put(log, prices, b"3")

    log.clear([orders])

    assert (orders.start, orders.end, orders.all_entries()) == (2, 2, b"")
    assert (records(log, prices), log.used_bytes) == ([b"3"], KEPT_BYTES)
    assert log.record_at(FIRST_OFFSET) is None
    put(log, orders, b"4")
    assert records(log, orders) == [b"4"]


@pytest.mark.parametrize("body_bytes", [1, 100, 10_000])
def test_memory_is_bounded_whatever_the_size_of_messages(body_bytes: int) -> None:
    bytes_max = 1024 * 1024
    log = MemoryLog(bytes_max)
    queues = [queue_of(log, f"topic{number}") for number in range(7)]
    tracemalloc.start()
    try:
        written = 0
        while written < 3 * bytes_max:
            log.append(queues[written % 7], [(bytes(bytearray(body_bytes)), 0)])
            written += body_bytes + RECORD_OVERHEAD_BYTES
        gc.collect()
        kept = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    # Only allocations of this file and the log: other threads of the process allocate too.
    ours = [tracemalloc.Filter(inclusive=True, filename_pattern=each) for each in _MAKERS]
    taken = sum(trace.size for trace in kept.filter_traces(ours).traces)

    assert log.used_bytes <= bytes_max
    assert bytes_max / 2 < taken <= bytes_max


def test_readers_see_whole_entries_while_the_oldest_are_dropped() -> None:
    log = MemoryLog(50 * KEPT_BYTES)
    queue = queue_of(log)
    done = threading.Event()
    wrong: list[object] = []

    def read() -> None:
        while not done.is_set():
            start = queue.start
            entries = list(ENTRY.iter_unpack(queue.entries(start, 100)))
            wrong.extend(pair for pair in pairwise(entries) if pair[1][0] != pair[0][0] + 100)
            for position, (offset, size, _) in enumerate(entries):
                record = log.pread(offset, size)
                if record is not None and int(record) != start + position:
                    wrong.append((start, position, record))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(5_000):
        put(log, queue, b"%d" % number)
    done.set()
    reader.join(120)

    assert not reader.is_alive()
    assert wrong == []
    assert queue.end - queue.start == 50
