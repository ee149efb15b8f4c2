# cython: language_level=3, annotation_typing=False
"""Appending: gives messages offsets and times, and writes them to the log.

Nothing else writes messages there. This source runs compiled where possible
(`appender_cython.pxd` holds the C types) and else as Python; `fast_forms` chooses. Both behave the
same.

Threads: any, one at a time under `lock`. While a thread holds the lock, the log's end and the next
offsets do not move.
Crash: the first eight bytes of a record are written last, and a batch is written from its last
record to its first. After a kill, recovery finds all of a record or batch, or none of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from orbitmq.errors import MessageError
from orbitmq.model.queues import QueueOffset
from orbitmq.record.codec import encode_batch_records, encode_record
from orbitmq.record.layout import (
    BLANK_BYTES_MIN,
    BORN_HOST_V6,
    FIXED_BYTES,
    HOST_BYTES_V4,
    HOST_BYTES_V6,
    PROPERTIES_BYTES_MAX,
    STORE_HOST_V6,
    TOPIC_BYTES_MAX,
    TOPIC_BYTES_MAX_V1,
    UNQUEUED,
)

if TYPE_CHECKING:
    from orbitmq.model.queues import PhysicalOffset
    from orbitmq.store.log.commit_log import CommitLog
    from orbitmq.store.log.obstacles import Obstacles

# Physical offset, record bytes, queue offset, store time.
Appended = tuple["PhysicalOffset", int, QueueOffset, int]
# Physical offset of the first record, bytes of all, queue offset of the first, ids of all messages.
AppendedBatch = tuple["PhysicalOffset", int, QueueOffset, bytes]
# Body, properties, flag, system flag, born time, born host, reconsume times, prepared offset.
Entry = tuple[bytes, bytes, int, int, int, bytes, int, int]

_HOSTS_V6: Final = BORN_HOST_V6 | STORE_HOST_V6
# Checks for upkeep once per this many bytes, not after every message.
_UPKEEP_CHECK_BYTES_MAX: Final = 64 * 1024


class MemoryAppender(Protocol):
    """Takes the messages that are kept in memory instead of the log."""

    def keeps(self, topic: bytes) -> bool:
        """Whether it takes the messages of a topic."""

    def append_batch(
        self, topic: bytes, queue_id: int, entries: Sequence[Entry], now_ms: int
    ) -> list[Appended]:
        """Store messages of one queue; their system flags match their hosts."""


class Appender:
    """Writes messages to the log, one after another."""

    def __init__(
        self,
        log: CommitLog,
        *,
        store_host: bytes,
        body_bytes_max: int,
        last_store_ms: int,
        next_offsets: dict[tuple[bytes, int], QueueOffset],
        obstacles: Obstacles,
        on_growth: Callable[[], None],
        memory: MemoryAppender | None = None,
    ) -> None:
        self.lock = threading.Lock()
        self._acquire = self.lock.acquire
        self._release = self.lock.release
        self._log = log
        self._store_host = store_host
        self._hosts_flag = STORE_HOST_V6 if len(store_host) == HOST_BYTES_V6 else 0
        self.body_bytes_max = body_bytes_max
        # Invariant: store times never fall in log order, whatever the clock does.
        self._last_store_ms = last_store_ms
        # Invariant: the topics in it are checked and kept on disk.
        self._next_offsets = next_offsets
        self._obstacles = obstacles
        self._errors = obstacles.errors
        self._on_growth = on_growth
        self._memory = memory
        self._upkeep_check_bytes = min(_UPKEEP_CHECK_BYTES_MAX, log.file_bytes // 64)
        self._next_upkeep_check = 0
        # The file being written, and the offset where its room ends.
        self._view: memoryview | None = None
        self._first_offset = 0
        self._room_end = 0

    def next_offset(self, topic: bytes, queue_id: int) -> QueueOffset | None:
        """The number of a queue's next message; None if the queue has had no messages."""
        return self._next_offsets.get((topic, queue_id))

    def forget_topic(self, topic: bytes) -> dict[int, QueueOffset]:
        """Restart a topic's queues at 0; the caller holds the lock.

        Returns the numbers that would have been next, by queue id.
        """
        queue_ids = [queue_id for name, queue_id in self._next_offsets if name == topic]
        return {queue_id: self._next_offsets.pop((topic, queue_id)) for queue_id in queue_ids}

    def set_next_offset(self, topic: bytes, queue_id: int, number: QueueOffset) -> None:
        """Give the next message of a queue this number; the caller holds the lock."""
        self._next_offsets[topic, queue_id] = number

    def close(self) -> None:
        """Release the file being written; appending is no longer possible."""
        self._view = None
        self._room_end = 0

    def append(  # noqa: PLR0913, PLR0917  # Perf: an argument object costs 0.8 us
        self,
        topic: bytes,
        queue_id: int,
        body: bytes,
        properties: bytes,
        flag: int,
        system_flag: int,
        born_ms: int,
        born_host: bytes,
        reconsume_times: int,
        prepared_offset: int,
        now_ms: int,
    ) -> Appended:
        """Write one message; on an error nothing of it stays in the log."""
        system_flag = self._record_flag(system_flag, born_host)
        size = self._checked_size(topic, body, properties, system_flag)
        # Perf: `with` takes 0.05 us more than these two calls.
        self._acquire()
        try:
            if self._errors:
                self._obstacles.check()
            key = (topic, queue_id)
            number = self._next_offsets.get(key)
            if number is None:
                number = _first_offset(topic, queue_id)
                # Perf: only here, so that queues on disk pay nothing for queues in memory.
                if self._memory is not None and self._memory.keeps(topic):
                    return self._memory.append_batch(
                        topic,
                        queue_id,
                        [
                            (
                                body,
                                properties,
                                flag,
                                system_flag,
                                born_ms,
                                born_host,
                                reconsume_times,
                                prepared_offset,
                            )
                        ],
                        now_ms,
                    )[0]
            offset = self._log.end
            if offset + size > self._room_end:
                offset = self._make_room(size)
            store_ms = self._last_store_ms
            if now_ms > store_ms:
                store_ms = self._last_store_ms = now_ms
            encode_record(
                self._view,  # type: ignore[arg-type]  # there is one when there is room
                offset - self._first_offset,
                topic,
                queue_id,
                0 if system_flag & UNQUEUED else number,
                offset,
                body,
                properties,
                flag,
                system_flag,
                born_ms,
                born_host,
                store_ms,
                self._store_host,
                reconsume_times,
                prepared_offset,
            )
            # Perf: a call of QueueOffset or PhysicalOffset takes 0.05 us, so this class omits them.
            self._next_offsets[key] = number if system_flag & UNQUEUED else number + 1  # type: ignore[assignment]  # Perf: see above
            end = offset + size
            self._log.end = end  # type: ignore[assignment]  # Perf: see above
            if end >= self._next_upkeep_check:
                self._check_upkeep(end)
        finally:
            self._release()
        return offset, size, number, store_ms

    def append_batch(
        self, topic: bytes, queue_id: int, entries: Sequence[Entry], now_ms: int
    ) -> list[Appended]:
        """Write messages of one queue, one after another; on an error, none of them."""
        if not entries:
            return []
        sizes = [
            self._checked_size(topic, body, properties, self._record_flag(system_flag, born_host))
            for body, properties, _, system_flag, _, born_host, _, _ in entries
        ]
        whole = sum(sizes)
        places: list[Appended] = []
        self._acquire()
        try:
            if self._errors:
                self._obstacles.check()
            key = (topic, queue_id)
            number = self._next_offsets.get(key)
            if number is None:
                number = _first_offset(topic, queue_id)
                if self._memory is not None and self._memory.keeps(topic):
                    return self._memory.append_batch(
                        topic,
                        queue_id,
                        [
                            (*entry[:3], self._record_flag(entry[3], entry[5]), *entry[4:])
                            for entry in entries
                        ],
                        now_ms,
                    )
            offset = self._make_room(whole)
            store_ms = self._last_store_ms = max(now_ms, self._last_store_ms)
            for entry, size in zip(entries, sizes, strict=True):
                places.append((offset, size, number, store_ms))
                offset += size  # type: ignore[assignment]  # Perf: see above
                if not entry[3] & UNQUEUED:
                    number += 1  # type: ignore[assignment]  # Perf: see above
            self._write_batch(topic, queue_id, entries, places)
            self._next_offsets[key] = number
            self._log.end = offset
            if offset >= self._next_upkeep_check:
                self._check_upkeep(offset)
        finally:
            self._release()
        return places

    def append_packed(  # noqa: PLR0913, PLR0917  # Perf: plain arguments
        self,
        topic: bytes,
        queue_id: int,
        packed: bytes,
        start: int,
        end: int,
        count: int,
        content_bytes: int,
        broker_properties: bytes,
        born_ms: int,
        born_host: bytes,
        reconsume_times: int,
        now_ms: int,
    ) -> AppendedBatch | None:
        """Write a batch, encoded as in `record.batch` at `packed[start:end]`.

        Perf: no object per message. For batches as Spark's writers send them (write of
        benchmarks/spark_kafka.py) a broker takes half the user CPU that it takes with `append_batch`.

        Args:
            topic: the topic of all messages.
            queue_id: the queue of all messages.
            packed: bytes that hold the batch; other bytes may surround it.
            start: where the batch begins.
            end: where it ends.
            count: the number of messages.
            content_bytes: bytes of all bodies and properties, with those of `broker_properties`.
            broker_properties: properties that are added to each message.
            born_ms: when the messages were sent.
            born_host: the host that sent them.
            reconsume_times: how often their consumption failed.
            now_ms: the current time.

        Returns:
            Where the batch was written; None if the topic is kept in memory.

        Raises:
            MessageError: the messages cannot be stored.
            ValueError: `count` or `content_bytes` is not that of the messages.
        """
        system_flag = self._record_flag(0, born_host)
        whole = content_bytes + count * self._checked_size(topic, b"", b"", system_flag)
        self._acquire()
        try:
            if self._errors:
                self._obstacles.check()
            key = (topic, queue_id)
            number = self._next_offsets.get(key)
            if number is None:
                number = _first_offset(topic, queue_id)
                if self._memory is not None and self._memory.keeps(topic):
                    return None
            offset = self._make_room(whole)
            store_ms = self._last_store_ms = max(now_ms, self._last_store_ms)
            ids = encode_batch_records(
                self._view,  # type: ignore[arg-type]  # there is one when there is room
                offset - self._first_offset,
                whole,
                packed,
                start,
                end,
                broker_properties,
                topic,
                queue_id,
                number,
                offset,
                system_flag,
                born_ms,
                born_host,
                store_ms,
                self._store_host,
                reconsume_times,
            )
            self._next_offsets[key] = number + count  # type: ignore[assignment]  # Perf: see above
            log_end = offset + whole
            self._log.end = log_end  # type: ignore[assignment]  # Perf: see above
            if log_end >= self._next_upkeep_check:
                self._check_upkeep(log_end)
        finally:
            self._release()
        return offset, whole, number, ids

    def _write_batch(
        self, topic: bytes, queue_id: int, entries: Sequence[Entry], places: list[Appended]
    ) -> None:
        """Write records from last to first: until the first is written, none of them exists."""
        view = self._view
        assert view is not None
        try:
            for index in range(len(entries) - 1, -1, -1):
                body, properties, flag, system_flag, born_ms, born_host, times, prepared = entries[
                    index
                ]
                offset, _, number, store_ms = places[index]
                encode_record(
                    view,
                    offset - self._first_offset,
                    topic,
                    queue_id,
                    0 if system_flag & UNQUEUED else number,
                    offset,
                    body,
                    properties,
                    flag,
                    self._record_flag(system_flag, born_host),
                    born_ms,
                    born_host,
                    store_ms,
                    self._store_host,
                    times,
                    prepared,
                )
        except BaseException:
            start = places[0][0] - self._first_offset
            stop = places[-1][0] - self._first_offset + places[-1][1]
            view[start:stop] = bytes(stop - start)
            raise

    # --- inside, under the lock -----------------------------------------------------------------

    def _make_room(self, size: int) -> PhysicalOffset:
        """Switch to a file with room at the log's end; returns the log's end."""
        file = self._log.room(size)
        self._view = file.view
        self._first_offset = file.first_offset
        # Invariant: a file keeps room for a blank record at its end.
        self._room_end = file.end_offset - BLANK_BYTES_MIN
        return self._log.end

    def _check_upkeep(self, end: int) -> None:
        self._next_upkeep_check = end + self._upkeep_check_bytes
        self._on_growth()

    # --- checks ---------------------------------------------------------------------------------

    def _record_flag(self, system_flag: int, born_host: bytes) -> int:
        """The system flag of the record, with the bits that say how long its hosts are."""
        if len(born_host) == HOST_BYTES_V6:
            return system_flag & ~_HOSTS_V6 | self._hosts_flag | BORN_HOST_V6
        return system_flag & ~_HOSTS_V6 | self._hosts_flag

    def _checked_size(self, topic: bytes, body: bytes, properties: bytes, system_flag: int) -> int:
        """The size of the record; raises MessageError if body or properties cannot be stored."""
        body_bytes = len(body)
        topic_bytes = len(topic)
        properties_bytes = len(properties)
        if body_bytes > self.body_bytes_max:
            raise MessageError(
                f"a body of {body_bytes} bytes is above the limit of {self.body_bytes_max}",
                hint="send smaller messages or batches, or raise maxMessageSize",
            )
        if properties_bytes > PROPERTIES_BYTES_MAX:
            raise MessageError(
                f"properties of {properties_bytes} bytes are above {PROPERTIES_BYTES_MAX}",
                hint="move large values into the body",
            )
        if 0 in properties:
            # A page that a crash lost reads as zero bytes, by which recovery recognises it.
            raise MessageError(
                "properties hold a zero byte", hint="encode the value, for example as base64"
            )
        size = FIXED_BYTES + body_bytes + topic_bytes + properties_bytes
        if topic_bytes > TOPIC_BYTES_MAX_V1:
            size += 1
        if system_flag & BORN_HOST_V6:
            size += HOST_BYTES_V6 - HOST_BYTES_V4
        if system_flag & STORE_HOST_V6:
            size += HOST_BYTES_V6 - HOST_BYTES_V4
        return size


def check_topic(topic: bytes) -> None:
    """Raise MessageError unless a topic can be stored."""
    if not topic or len(topic) > TOPIC_BYTES_MAX:
        raise MessageError(
            f"a topic of {len(topic)} bytes cannot be stored",
            hint=f"topics have 1 to {TOPIC_BYTES_MAX} bytes",
        )
    if b"\0" in topic or b"/" in topic or topic in (b".", b".."):
        raise MessageError(
            f"topic {topic.decode(errors='replace')!r} cannot be the name of a folder",
            hint="rename it",
        )


def _first_offset(topic: bytes, queue_id: int) -> QueueOffset:
    """The first offset of a new queue; raises MessageError if there can be no such queue."""
    check_topic(topic)
    if queue_id < 0:
        raise MessageError(f"there is no queue {queue_id}", hint="queues count from 0")
    return QueueOffset(0)
