"""Topics kept in memory: which they are, and what happens to their messages.

A queue continues its numbers when its topic moves between disk and memory, either way. Messages on
disk stay readable after the move to memory, until retention deletes them; messages in memory are
dropped by the move to disk.

Messages in memory are not copied to slaves. The store of a slave keeps the numbers that its master
reserved, for its promotion, and shows no queue of these topics to readers.

Threads: all changes run under the store's append lock; reads from any thread.
Crash: messages are lost, but their numbers are not reused; see `reserved_offsets`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Final

from orbitmq.errors import MessageError
from orbitmq.model import property_names
from orbitmq.model.queues import PhysicalOffset, QueueOffset
from orbitmq.record.codec import encode_record
from orbitmq.record.decode import StoredMessage, decode_record
from orbitmq.record.layout import TRANSACTION_MASK, record_bytes
from orbitmq.record.properties import find_property
from orbitmq.record.scan import record_tag_code
from orbitmq.store.files.record_checks import store_ms_of
from orbitmq.store.index.consume_queue import ENTRY
from orbitmq.store.reading.memory_log import MemoryLog, MemoryQueue
from orbitmq.store.reading.queue_reader import QueueReader
from orbitmq.store.reading.reserved_offsets import BYTES_STEP, STEP, QueueKey, ReservedOffsets

if TYPE_CHECKING:
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.log.appender import Appended, Entry

log = logging.getLogger(__name__)

_DELAY_LEVEL: Final = property_names.DELAY_LEVEL.encode()
# Properties that request a delay, by level or by time.
_DELAYS: Final = (
    _DELAY_LEVEL,
    property_names.TIMER_DELIVER_MS.encode(),
    property_names.TIMER_DELAY_SECONDS.encode(),
    property_names.TIMER_DELAY_MS.encode(),
)
_REAL_TOPIC: Final = property_names.REAL_TOPIC.encode()
_HALF: Final = property_names.HALF_MESSAGE.encode()


class MemoryTopics:
    """The topics that are kept in memory, and their queues."""

    def __init__(
        self,
        reserved: ReservedOffsets,
        config: StoreConfig,
        *,
        store_host: bytes,
        last_store_ms: int,
        disk_ends: Mapping[QueueKey, QueueOffset],
        is_copy: bool = False,
    ) -> None:
        self._reserved = reserved
        self._is_copy = is_copy
        # The number of the first message in a queue that had none.
        self._first = QueueOffset(0)
        self._store_host = store_host
        self._last_store_ms = last_store_ms
        self._log = MemoryLog(config.memory_log_bytes_max, reserved.physical_bound)
        # All of the log counts as near, so that no read suggests a slave.
        self.reader = QueueReader(self._log, config, memory_bytes=100 * config.memory_log_bytes_max)
        self._queues: dict[QueueKey, MemoryQueue] = {}
        self.topics: set[str] = set()
        # Queues with new messages that listeners do not know of yet.
        self.grown: set[MemoryQueue] = set()
        # Topics that were moved to disk; their queues have no messages, only their next offsets.
        self._moved: set[str] = set()
        for key, bound in reserved.bounds.items():
            self._load(key, bound, disk_ends.get(key, QueueOffset(0)))

    def _load(self, key: QueueKey, bound: QueueOffset, disk_end: QueueOffset) -> None:
        topic, queue_id = key
        if topic in self._reserved.on_disk:
            if disk_end > 0:
                if disk_end < bound:
                    log.warning(
                        "another broker restarted a queue topic=%s queue=%d end=%d was=%d",
                        topic,
                        queue_id,
                        disk_end,
                        bound,
                    )
                return
            self._moved.add(topic)
        else:
            self.topics.add(topic)
        self._queues[key] = self._log.queue(topic, queue_id, max(bound, disk_end))

    @property
    def reserved(self) -> dict[QueueKey, QueueOffset]:
        """The numbers below which messages of queues in memory are numbered, without moved topics."""
        bounds, moved = self._reserved.bounds, self._reserved.on_disk
        return {key: bound for key, bound in bounds.items() if key[0] not in moved}

    def follow(self, reserved: Mapping[QueueKey, QueueOffset]) -> None:
        """Keep the numbers that a master reserved, in the store of its slave; on disk on return.

        Numbers of a queue never fall. Topics that the master does not have in memory are forgotten.
        """
        assert self._is_copy
        bounds = {
            key: max(bound, self._queues[key].end if key in self._queues else bound)
            for key, bound in reserved.items()
        }
        self._reserved.write(bounds, self._log.end)
        self._queues = {
            (topic, queue_id): self._log.queue(topic, queue_id, bound)
            for (topic, queue_id), bound in bounds.items()
        }
        self.topics = {topic for topic, _ in bounds}
        self._moved = set()

    def count_from(self, first: QueueOffset, topics: Set[str]) -> None:
        """Number all messages from a number on; forget topics in memory other than these.

        For a master that was a slave: what it followed may be outdated.
        """
        for topic in self.topics - topics:
            self.forget(topic)
        self._first = first
        for (topic, queue_id), queue in self._queues.items():
            if topic in self.topics and queue.end < first:
                self._queues[topic, queue_id] = self._log.queue(topic, queue_id, first)

    def close(self) -> None:
        """Save where each queue ended, so that it resumes there."""
        if self._queues or self._reserved.bounds:
            self._reserve(ahead=0, bytes_ahead=0)

    # --- which topics -------------------------------------------------------------------------

    def keeps(self, topic: bytes) -> bool:
        """Whether a topic's messages are kept in memory."""
        return topic.decode(errors="surrogateescape") in self.topics

    def keep(self, topic: str, disk_ends: Mapping[int, QueueOffset]) -> None:
        """Keep a topic's new messages in memory, after those that are on disk."""
        self.topics.add(topic)
        self._moved.discard(topic)
        for queue_id, disk_end in disk_ends.items():
            queue = self._queues.get((topic, queue_id))
            if queue is None or queue.end < disk_end:
                first = max(disk_end, self._first)
                self._queues[topic, queue_id] = self._log.queue(topic, queue_id, first)

    def release(self, topic: str) -> dict[int, QueueOffset]:
        """Stop keeping a topic in memory; returns the next offsets of its queues, by id."""
        ends = self.ends_of(topic)
        if ends:
            moved = self._moved | {topic}
            self._reserve(ahead=STEP, moved=moved)
            self._moved = moved
        self.topics.discard(topic)
        self._log.clear([self._queues[topic, queue_id] for queue_id in ends])
        return ends

    def forget(self, topic: str) -> None:
        """Forget a deleted topic: drop its messages, and restart its numbers."""
        self.topics.discard(topic)
        self._moved.discard(topic)
        gone = [self._queues.pop((topic, queue_id)) for queue_id in self.ends_of(topic)]
        self._log.clear(gone)
        if any(name == topic for name, _ in self._reserved.bounds):
            self._reserve(ahead=0 if self._is_copy else STEP)

    def ends_of(self, topic: str) -> dict[int, QueueOffset]:
        """Where the queues of a topic end, by id."""
        return {key[1]: queue.end for key, queue in self._queues.items() if key[0] == topic}

    def moved_ends(self) -> dict[QueueKey, QueueOffset]:
        """The next offsets of queues whose topics were moved to disk."""
        return {key: queue.end for key, queue in self._queues.items() if key[0] in self._moved}

    # --- putting ------------------------------------------------------------------------------

    def append_batch(
        self, topic: bytes, queue_id: int, entries: Sequence[Entry], now_ms: int
    ) -> list[Appended]:
        """Store messages of one queue, all or none; they are readable immediately.

        The caller has checked topic, queue id and lengths, and system flags match the hosts.
        """
        name = topic.decode()
        sizes: list[int] = []
        for body, properties, _, system_flag, _, _, _, _ in entries:
            _refuse_waiting(name, properties, system_flag)
            sizes.append(
                record_bytes(
                    body_bytes=len(body),
                    topic_bytes=len(topic),
                    properties_bytes=len(properties),
                    system_flag=system_flag,
                )
            )
        self._log.check_fits(sizes)
        queue = self._queues.get((name, queue_id))
        if queue is None:
            queue = self._queues[name, queue_id] = self._log.queue(name, queue_id, self._first)
        # Invariant: store times never fall in a queue, whatever the clock does.
        self._last_store_ms = store_ms = max(now_ms, self._last_store_ms)
        number, offset = queue.end, self._log.end
        appended: list[Appended] = []
        records: list[tuple[bytes, int]] = []
        for entry, size in zip(entries, sizes, strict=True):
            body, properties, flag, system_flag, born_ms, born_host, times, prepared = entry
            record = bytearray(size)
            encode_record(
                record,
                0,
                topic,
                queue_id,
                number,
                offset,
                body,
                properties,
                flag,
                system_flag,
                born_ms,
                born_host,
                store_ms,
                self._store_host,
                times,
                prepared,
            )
            records.append((bytes(record), record_tag_code(topic, properties, store_ms, ())))
            appended.append((offset, size, number, store_ms))
            number = QueueOffset(number + 1)
            offset = PhysicalOffset(offset + size)
        if not self._reserved.cover(queue, len(records), offset):
            self._reserve(ahead=STEP + len(records))
        self._log.append(queue, records)
        self.grown.add(queue)
        return appended

    def take_grown(self) -> set[MemoryQueue]:
        """Return and clear the queues that got messages."""
        grown, self.grown = self.grown, set()
        return grown

    def _reserve(
        self, *, ahead: int, bytes_ahead: int = BYTES_STEP, moved: set[str] | None = None
    ) -> None:
        """Reserve numbers for all queues: one write costs the same as for one."""
        moved = self._moved if moved is None else moved
        self._reserved.write(
            {
                key: QueueOffset(queue.end + (0 if key[0] in moved else ahead))
                for key, queue in self._queues.items()
            },
            PhysicalOffset(self._log.end + bytes_ahead),
            on_disk=moved,
        )

    # --- reading ------------------------------------------------------------------------------

    def find(self, topic: str, queue_id: int) -> MemoryQueue | None:
        """Find a queue; None if it never had messages in memory, or this is the store of a slave."""
        if self._is_copy:
            return None
        queue = self._queues.get((topic, queue_id))
        if queue is None and self._first and topic in self.topics:
            # Readers must not wait below the number of its first message.
            return self._log.queue(topic, queue_id, self._first)
        return queue

    def queues(self) -> list[MemoryQueue]:
        """Every queue that readers may see."""
        return [] if self._is_copy else list(self._queues.values())

    def store_ms_at(self, physical_offset: int) -> int | None:
        """The store time of a record; None if it was dropped."""
        record = self._log.record_at(physical_offset)
        return store_ms_of(record) if record is not None else None

    def record_at(self, physical_offset: int) -> bytes | None:
        """Read one record; None if none begins there, or it was dropped."""
        return self._log.record_at(physical_offset)

    def messages_with(self, topic: str, text: str) -> Iterator[StoredMessage]:
        """The messages of a topic that contain a text anywhere, newest first."""
        wanted = text.encode()
        offsets = [
            physical_offset
            for queue in self.queues()
            if queue.topic == topic
            for physical_offset, _, _ in ENTRY.iter_unpack(queue.all_entries())
        ]
        for physical_offset in sorted(offsets, reverse=True):
            record = self._log.record_at(physical_offset)
            if record is not None and wanted in record:
                yield decode_record(record)


def _refuse_waiting(topic: str, properties: bytes, system_flag: int) -> None:
    """Raise MessageError for transactions and delays, which only topics on disk support."""
    if system_flag & TRANSACTION_MASK or find_property(properties, _HALF) == b"true":
        raise MessageError(
            f"topic {topic!r} is kept in memory, which does not support transactions",
            hint="send it to a topic that is kept on disk, or without a transaction",
        )
    if find_property(properties, _REAL_TOPIC) == topic.encode():
        # Its delay is over: it names the topic that it was meant for.
        return
    for name in _DELAYS:
        asked = find_property(properties, name)
        # Compat: level 0 means no delay.
        if asked is not None and (name != _DELAY_LEVEL or asked.strip(b"0")):
            raise MessageError(
                f"topic {topic!r} is kept in memory, which does not support delays; the message "
                f"has {name.decode()}",
                hint="send it to a topic that is kept on disk, or without a delay",
            )
