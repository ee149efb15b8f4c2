"""Where the messages of a topic are kept: on disk or in memory.

Threads: any; each change holds the appender's lock, so that nothing is appended meanwhile.
Crash: a deletion is on disk before the queues are deleted; see `index.deleted_topics`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.errors import StateError
from orbitmq.model.queues import PhysicalOffset, QueueOffset
from orbitmq.store.index.topic_scan import TopicScan
from orbitmq.store.log.appender import check_topic
from orbitmq.store.log.obstacles import CLOSED

if TYPE_CHECKING:
    from orbitmq.store.index.consume_queues import ConsumeQueues
    from orbitmq.store.index.deleted_topics import DeletedTopics
    from orbitmq.store.index.dispatcher import Dispatcher
    from orbitmq.store.log.appender import Appender
    from orbitmq.store.log.commit_log import CommitLog
    from orbitmq.store.log.obstacles import Obstacles
    from orbitmq.store.reading.memory_topics import MemoryTopics
    from orbitmq.store.reading.reserved_offsets import QueueKey
    from orbitmq.store.visibility import Visibility

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, kw_only=True)
class TopicStorage:
    """Moves topics between disk and memory, and deletes them."""

    commit_log: CommitLog
    queues: ConsumeQueues
    memory: MemoryTopics
    deleted_topics: DeletedTopics
    appender: Appender
    visibility: Visibility
    dispatcher: Dispatcher
    obstacles: Obstacles
    # Puts the log on disk up to an offset, and returns how far it is.
    flush_log: Callable[[PhysicalOffset], PhysicalOffset]

    def keep_in_memory(self, topic: str) -> None:
        """Keep new messages of a topic in memory; those on disk stay readable there."""
        check_topic(topic.encode())
        with self._changing():
            if topic in self.memory.topics:
                return
            # A queue continues in memory after its entries on disk, so those must be complete.
            if self.visibility.offset < self.commit_log.end:
                self._show_all()
                if self.visibility.trouble is not None:
                    raise self.visibility.trouble
            self.memory.keep(topic, self.appender.forget_topic(topic.encode()))

    def keep_on_disk(self, topic: str) -> None:
        """Keep new messages of a topic on disk again; those in memory are dropped.

        Numbers continue. A queue on disk has no gaps, so if it had messages in memory, its older
        ones on disk are dropped too.
        """
        with self._changing():
            if topic not in self.memory.topics:
                return
            for queue_id, end in self.memory.ends_of(topic).items():
                queue = self.queues.find(topic, queue_id)
                if queue is not None and 0 < queue.end < end:
                    log.warning("messages on disk dropped topic=%s end=%d", topic, queue.end)
                    self._delete_queues(topic)
            for queue_id, end in self.memory.release(topic).items():
                self.appender.set_next_offset(topic.encode(), queue_id, end)

    def follow_reserved(self, reserved: Mapping[QueueKey, QueueOffset]) -> None:
        """Keep the numbers that a master reserved for queues in memory; on disk on return."""
        with self._changing():
            self.memory.follow(reserved)

    def delete(self, topic: str, *, until: PhysicalOffset | None = None) -> None:
        """Delete a topic's queues; its records age out, and its next message has number 0.

        With `until`, records from there on belong to a topic that was created again, and stay.
        """
        with self._changing():
            if until is None:
                self._delete_queues(topic)
            elif self.deleted_topics.end_of(topic) <= until:
                # Also if it was noted before: a crash may have kept the queues.
                self.dispatcher.delete_before(topic, until)
            if all(queue.topic != topic for queue in self.queues):
                self.memory.forget(topic)
                self.appender.forget_topic(topic.encode())

    def raise_deletion(self, topic: str, deleted_until: PhysicalOffset) -> None:
        """Delete the records below an offset of a topic that was created again."""
        with self._changing():
            if self.deleted_topics.end_of(topic) < deleted_until:
                self.dispatcher.delete_before(topic, deleted_until)
                log.info("older messages deleted topic=%s until=%d", topic, deleted_until)

    def restore(self, topic: str, deleted_until: PhysicalOffset, *, noted: int) -> bool:
        """Fill a topic's queues from the log again, except for records below an offset.

        Takes as long as reading the log from there on. A crash before the end leaves the deletion
        in place, or the queues without it. Does nothing, and returns False, if it was deleted
        elsewhere than noted, as happens when it is deleted again meanwhile.
        """
        scan = TopicScan(
            self.commit_log,
            topic.encode(),
            max(deleted_until, self.commit_log.start),
            self.dispatcher.delay_levels_ms,
        )
        scan.run(self.dispatcher.position)
        with self._changing():
            if not self.dispatcher.restore(scan, noted=noted):
                log.info("topic not restored, as it was deleted again topic=%s", topic)
                return False
        self.queues.sync()
        self.lower_deletion(topic, deleted_until, noted=noted)
        log.info("topic restored from the log topic=%s from=%d", topic, deleted_until)
        return True

    def lower_deletion(self, topic: str, deleted_until: PhysicalOffset, *, noted: int) -> None:
        """Note that a topic's records are deleted only below a lower offset than the one noted."""
        with self._changing():
            self.dispatcher.lower_deletion(topic, deleted_until, noted=noted)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the appender's lock, unless the store is closed.

        Then another one may have its files: a thread that a slave left behind may outlast its
        promotion.
        """
        with self.appender.lock:
            if CLOSED in self.obstacles.errors:
                raise StateError("the store is closed")
            yield

    def _delete_queues(self, topic: str) -> None:
        # Records that are not dispatched yet would recreate the queues.
        self._show_all()
        self.deleted_topics.add(topic, self.commit_log.end, log_start=self.commit_log.start)
        self.queues.delete_topic(topic)

    def _show_all(self) -> None:
        """Make all of the log visible, if the disk has room for that."""
        self.flush_log(self.commit_log.end)
        self.visibility.show(self.commit_log.end)
