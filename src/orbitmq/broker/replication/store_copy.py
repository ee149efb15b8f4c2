"""What a slave keeps of its master's store beside the log: numbers, deletions.

A master deletes a topic, dies before its slave hears of it, and returns as the slave of the one that
was promoted, which still has the topic. The log is the same, but the queues are gone here, and would
lack what is older. So deletions that the master does not have are undone from the log. And a topic
that was deleted and created again between two looks loses here what it lost there.

The log tells of a deletion, too, maybe after the master was asked for its deletions. So only those
are undone that were here before.

Threads: one at a time; blocks, for as long as a log is read if a topic is restored.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orbitmq.errors import StoreDamagedError
from orbitmq.model.queues import PhysicalOffset, QueueOffset

if TYPE_CHECKING:
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.protocol.requests.metadata import StoreTables
    from orbitmq.store.message_store import MessageStore

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class StoreCopy:
    """Makes a slave's store one of its master."""

    store: MessageStore
    # Those of the master.
    topics: TopicTable
    # Topics that neither had at the last look, and where they were deleted here.
    _gone: dict[str, int] = field(default_factory=dict, init=False)
    # Topics that will not be restored, and where they were deleted here. What fails otherwise, as
    # on a full disk, is tried again with the next tables.
    _failed: dict[str, int] = field(default_factory=dict, init=False)

    def follow(self, master: StoreTables, deleted_before: Mapping[str, int]) -> None:
        """Keep the numbers that the master reserved, and delete what it has deleted, no more.

        `deleted_before` is what was deleted here before the master was asked for its tables.
        """
        self.store.follow_reserved_offsets(
            {(one.topic, one.queue_id): QueueOffset(one.end) for one in master.reserved}
        )
        gone_before, self._gone = self._gone, {}
        deleted_here = self.store.deleted_topics()
        for topic, end in master.deleted.items():
            # A topic that was created again looks the same in the table. Only once the log is
            # here: after a promotion below, other messages may be there.
            known = max(deleted_here.get(topic, 0), self.store.log_start)
            if topic in self.topics.topics and known < end <= self.store.log_end:
                self._delete(topic, PhysicalOffset(end))
        deleted_here = self.store.deleted_topics()
        for topic, end in deleted_before.items():
            if deleted_here.get(topic) != end:
                continue
            # What the master's log does not have any more is nobody's.
            kept_from = PhysicalOffset(max(master.deleted.get(topic, 0), master.log_start))
            if end <= kept_from:
                continue
            if topic in self.topics.topics:
                self._restore(topic, end, kept_from)
            elif topic in master.deleted and gone_before.get(topic) != end:
                # It may have been created again meanwhile, which the next look shows.
                self._gone[topic] = end
            elif topic in master.deleted:
                # There is nothing between the two; a later restoration would read all of it.
                self.store.lower_deletion(topic, noted=end, deleted_until=kept_from)

    def _delete(self, topic: str, end: PhysicalOffset) -> None:
        if self._failed.get(topic) == end:
            return
        try:
            self.store.raise_deletion(topic, deleted_until=end)
        except StoreDamagedError as error:
            self._failed[topic] = end
            log.error(  # noqa: TRY400  # says it all
                "a topic was created again, and its queues keep what the master had deleted before "
                "topic=%s offset=%d reason=%s",
                topic,
                end,
                error,
            )

    def _restore(self, topic: str, end: int, kept_from: PhysicalOffset) -> None:
        if self._failed.get(topic) == end:
            return
        try:
            if not self.store.restore_topic(topic, noted=end, deleted_until=kept_from):
                # Whatever the master says next is about another deletion.
                self._failed[topic] = end
        except StoreDamagedError as error:
            self._failed[topic] = end
            log.error(  # noqa: TRY400  # says it all
                "a topic that the master has was deleted here, and its queues lack the messages "
                "before topic=%s offset=%d reason=%s",
                topic,
                end,
                error,
            )
