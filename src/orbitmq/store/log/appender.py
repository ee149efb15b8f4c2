# cython: language_level=3, annotation_typing=False
"""Appending: gives messages their offsets and times, and writes them to the log.

Nothing else does. This source is compiled where that is possible (`appender_cython.pxd` holds the
types) and runs as it is where it is not; `fast_forms` chooses. Both do the same.

Threads: any; one at a time inside, under `lock`. Whoever holds the lock may look at the log's end
and at the next offsets without seeing them move.
Crash: a record begins to exist with its first eight bytes, which are written last; those of a
batch from its end to its beginning. A killed process leaves all of it or nothing that counts.
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
Place = tuple["PhysicalOffset", int, QueueOffset, int]
# Physical offset of the first record, bytes of all, queue offset of the first, all message ids.
PackedPlace = tuple["PhysicalOffset", int, QueueOffset, bytes]
# Body, properties, flag, system flag, born time, born host, reconsume times, prepared offset.
Entry = tuple[bytes, bytes, int, int, int, bytes, int, int]

_HOSTS_V6: Final = BORN_HOST_V6 | STORE_HOST_V6
# Upkeep is thought of after so many bytes, not after every message.
_LOOK_BYTES_MAX: Final = 64 * 1024


class OtherPlace(Protocol):
    """Where messages go that are not for the log."""

    def keeps(self, topic: bytes) -> bool:
        """Whether messages of a topic go there."""

    def append_batch(
        self, topic: bytes, queue_id: int, entries: Sequence[Entry], now_ms: int
    ) -> list[Place]:
        """Store messages of one queue there; their system flags fit their hosts."""


class Appender:
    """Writes messages to the log, one behind the other."""

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
        memory: OtherPlace | None = None,
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
        # Invariant: topics in here were checked, and are kept on disk.
        self._next_offsets = next_offsets
        self._obstacles = obstacles
        self._errors = obstacles.errors
        self._on_growth = on_growth
        self._memory = memory
        self._look_bytes = min(_LOOK_BYTES_MAX, log.file_bytes // 64)
        self._look_at = 0
        # The file being written, and the offset from which on it has no room.
        self._view: memoryview | None = None
        self._first_offset = 0
        self._room_end = 0

    def next_offset(self, topic: bytes, queue_id: int) -> QueueOffset | None:
        """The number that the next message of a queue gets; None when it never had one."""
        return self._next_offsets.get((topic, queue_id))

    def forget_topic(self, topic: bytes) -> dict[int, QueueOffset]:
        """Let a topic's queues begin at 0 again; the caller holds the lock.

        Returns which numbers would have been next, by queue id.
        """
        queue_ids = [queue_id for name, queue_id in self._next_offsets if name == topic]
        return {queue_id: self._next_offsets.pop((topic, queue_id)) for queue_id in queue_ids}

    def go_on_at(self, topic: bytes, queue_id: int, number: QueueOffset) -> None:
        """Give the next message of a queue this number; the caller holds the lock."""
        self._next_offsets[topic, queue_id] = number

    def close(self) -> None:
        """Let go of the file that is written; nothing may be appended any more."""
        self._view = None
        self._room_end = 0

    def append(  # noqa: PLR0913, PLR0917  # Perf: an object more takes 0.8 us
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
    ) -> Place:
        """Write one message; raises and leaves nothing when that cannot be."""
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
                # Perf: only here, so that a queue on disk pays nothing for those in memory.
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
            # Perf: calling the type of an offset takes 0.05 us, so it is left out in here.
            self._next_offsets[key] = number if system_flag & UNQUEUED else number + 1  # type: ignore[assignment]  # as said
            end = offset + size
            self._log.end = end  # type: ignore[assignment]  # as said
            if end >= self._look_at:
                self._look(end)
        finally:
            self._release()
        return offset, size, number, store_ms

    def append_batch(
        self, topic: bytes, queue_id: int, entries: Sequence[Entry], now_ms: int
    ) -> list[Place]:
        """Write messages of one queue, one behind the other; all of them, or none and raise."""
        if not entries:
            return []
        sizes = [
            self._checked_size(topic, body, properties, self._record_flag(system_flag, born_host))
            for body, properties, _, system_flag, _, born_host, _, _ in entries
        ]
        whole = sum(sizes)
        places: list[Place] = []
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
                offset += size  # type: ignore[assignment]  # as said
                if not entry[3] & UNQUEUED:
                    number += 1  # type: ignore[assignment]  # as said
            self._write_batch(topic, queue_id, entries, places)
            self._next_offsets[key] = number
            self._log.end = offset
            if offset >= self._look_at:
                self._look(offset)
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
        marks: bytes,
        born_ms: int,
        born_host: bytes,
        reconsume_times: int,
        now_ms: int,
    ) -> PackedPlace | None:
        """Write the messages of a batch that lie at `packed[start:end]` as `record.batch` says.

        Perf: no object per message. For batches as Spark's writers send them (write of
        benchmarks/spark_kafka.py) a broker takes half the user CPU that it takes with `append_batch`.

        Args:
            topic: where they go, as all further arguments say what all have in common.
            queue_id: the queue.
            packed: where they lie, with others before and behind.
            start: where they begin.
            end: where they end.
            count: how many they are.
            content_bytes: what bodies and properties take together, marks included.
            marks: properties that are added to each.
            born_ms: when they were sent.
            born_host: from where.
            reconsume_times: how often they failed.
            now_ms: the time.

        Returns:
            Where they lie; None when the topic is not kept in the log.

        Raises:
            MessageError: they cannot be stored.
            ValueError: count or bytes are not those of the messages.
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
                marks,
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
            self._next_offsets[key] = number + count  # type: ignore[assignment]  # as said
            log_end = offset + whole
            self._log.end = log_end  # type: ignore[assignment]  # as said
            if log_end >= self._look_at:
                self._look(log_end)
        finally:
            self._release()
        return offset, whole, number, ids

    def _write_batch(
        self, topic: bytes, queue_id: int, entries: Sequence[Entry], places: list[Place]
    ) -> None:
        """Write records from the last to the first, so that they begin to exist with the first."""
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
        """Have a file with room at the log's end; returns where that is then."""
        file = self._log.room(size)
        self._view = file.view
        self._first_offset = file.first_offset
        # Invariant: a file keeps room for the blank at its end.
        self._room_end = file.end_offset - BLANK_BYTES_MIN
        return self._log.end

    def _look(self, end: int) -> None:
        self._look_at = end + self._look_bytes
        self._on_growth()

    # --- checks ---------------------------------------------------------------------------------

    def _record_flag(self, system_flag: int, born_host: bytes) -> int:
        """The system flag of the record, which tells how long its hosts are."""
        if len(born_host) == HOST_BYTES_V6:
            return system_flag & ~_HOSTS_V6 | self._hosts_flag | BORN_HOST_V6
        return system_flag & ~_HOSTS_V6 | self._hosts_flag

    def _checked_size(self, topic: bytes, body: bytes, properties: bytes, system_flag: int) -> int:
        """How long the record is; raises MessageError when body or properties cannot be stored."""
        body_bytes = len(body)
        topic_bytes = len(topic)
        properties_bytes = len(properties)
        if body_bytes > self.body_bytes_max:
            raise MessageError(
                f"a body of {body_bytes} bytes is above the limit of {self.body_bytes_max}",
                hint="send less at once, or raise maxMessageSize",
            )
        if properties_bytes > PROPERTIES_BYTES_MAX:
            raise MessageError(
                f"properties of {properties_bytes} bytes are above {PROPERTIES_BYTES_MAX}",
                hint="move what is large into the body",
            )
        if 0 in properties:
            # A page that a crash lost reads as zero bytes; recovery knows it by them.
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
    """Raise MessageError unless a topic can have messages."""
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
    """Where a new queue begins; raises MessageError when there can be none of that name."""
    check_topic(topic)
    if queue_id < 0:
        raise MessageError(f"there is no queue {queue_id}", hint="queues count from 0")
    return QueueOffset(0)
