"""Progress and lag of consumer groups.

Threads: any. Store times are read from the log, so measure many queues off the event loop. Each
access to a table is a single look-up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.java_json import ObjectKeyed
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.requests.statistics import ConsumeProgress, QueueTimeSpan

if TYPE_CHECKING:
    from orbitmq.broker.groups.committed_offsets import CommittedOffsets
    from orbitmq.broker.groups.members import Members
    from orbitmq.clock import Clock
    from orbitmq.model.topics import TopicConfig
    from orbitmq.store.message_store import MessageStore

QueueProgress = ObjectKeyed[MessageQueue, ConsumeProgress]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """The lag of a group in a topic."""

    # Messages not committed; of these, delivered; and not delivered.
    messages: int
    in_flight: int
    ready: int
    # Age of the oldest message that is not committed; and of the oldest not delivered.
    waits_ms: int
    queued_ms: int


@dataclass(slots=True, eq=False, kw_only=True)
class ProgressMeter:
    """Measures progress: compares committed offsets with the queues."""

    broker_name: Callable[[], str]
    store: MessageStore
    members: Members
    offsets: CommittedOffsets
    clock: Clock

    def topics_of(self, group: str) -> list[str]:
        """The topics in which a group committed offsets; while online, only subscribed ones."""
        return self.still_subscribed(group, self.committed_topics(group))

    def committed_topics(self, group: str) -> list[str]:
        """The topics in which a group committed offsets."""
        return self.offsets.topics_of(group)

    def still_subscribed(self, group: str, topics: list[str]) -> list[str]:
        """Filter out topics that an online group no longer subscribes to."""
        online = self.members.groups.get(group)
        if online is None or not online.subscriptions:
            return topics
        return [topic for topic in topics if topic in online.subscriptions]

    def by_queue(self, group: str, topic: TopicConfig, queues: int) -> QueueProgress:
        """The progress of a group in each queue of a topic."""
        progress: QueueProgress = ObjectKeyed()
        for queue_id in range(queues):
            committed = self.offsets.get(group, topic.name, queue_id) or 0
            committed = max(committed, self._lost_until(topic, queue_id))
            pulled = self.offsets.pulled(group, topic.name, queue_id) or 0
            last_ms = self._store_ms(topic.name, queue_id, committed - 1) if committed else None
            progress[self._queue(topic.name, queue_id)] = ConsumeProgress(
                broker_offset=self.store.end_of(topic.name, queue_id),
                consumer_offset=committed,
                last_timestamp_ms=last_ms or 0,
                pull_offset=max(committed, pulled),
            )
        return progress

    def time_spans(self, group: str, topic: TopicConfig) -> list[QueueTimeSpan]:
        """When each queue's messages were stored, and how long unconsumed ones have waited."""
        spans: list[QueueTimeSpan] = []
        for queue_id in range(topic.write_queues):
            end = self.store.end_of(topic.name, queue_id)
            oldest_ms = self.store.earliest_ms(topic.name, queue_id)
            committed = self.offsets.get(group, topic.name, queue_id)
            consumed_ms: int | None = oldest_ms
            if committed:
                consumed_ms = self._store_ms(topic.name, queue_id, committed - 1)
            next_ms = None
            if (committed or 0) < end:
                next_ms = self._store_ms(topic.name, queue_id, committed or 0)
            newest_ms = self._store_ms(topic.name, queue_id, end - 1) if end else None
            spans.append(
                QueueTimeSpan(
                    queue=self._queue(topic.name, queue_id),
                    oldest_ms=oldest_ms,
                    newest_ms=-1 if newest_ms is None else newest_ms,
                    consumed_until_ms=-1 if consumed_ms is None else consumed_ms,
                    delay_ms=0 if next_ms is None else self.clock.now_ms() - next_ms,
                )
            )
        return spans

    def lag(self, group: str, topic: TopicConfig) -> Lag:
        """The lag of a group in a topic; 0 in queues it never committed nor pulled."""
        messages = in_flight = ready = 0
        waiting_ms: list[int] = []
        queued_ms: list[int] = []
        for queue_id in range(topic.write_queues):
            end = self.store.end_of(topic.name, queue_id)
            committed = self.offsets.get(group, topic.name, queue_id)
            pulled = self.offsets.pulled(group, topic.name, queue_id)
            if committed is None:
                committed = end if pulled is None else pulled
            committed = max(committed, self._lost_until(topic, queue_id))
            pulled = max(committed, pulled or 0)
            messages += max(end - committed, 0)
            in_flight += pulled - committed
            ready += max(end - pulled, 0)
            for offset, times_ms in ((committed, waiting_ms), (pulled, queued_ms)):
                if offset < end:
                    store_ms = self._store_ms(topic.name, queue_id, offset)
                    if store_ms is not None:
                        times_ms.append(store_ms)
        now_ms = self.clock.now_ms()
        return Lag(
            messages=messages,
            in_flight=in_flight,
            ready=ready,
            waits_ms=max(now_ms - min(waiting_ms), 0) if waiting_ms else 0,
            queued_ms=max(now_ms - min(queued_ms), 0) if queued_ms else 0,
        )

    def _lost_until(self, topic: TopicConfig, queue_id: int) -> int:
        """Where a queue in memory starts: after a promotion its numbers jump, by trillions."""
        return self.store.start_of(topic.name, queue_id) if topic.is_in_memory else 0

    def _store_ms(self, topic: str, queue_id: int, offset: int) -> int | None:
        return self.store.store_ms_of(topic, queue_id, offset)

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic=topic, broker_name=self.broker_name(), queue_id=queue_id)
