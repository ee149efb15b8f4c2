"""Tables of a broker that are gone with their copies, and what comes back.

A start without `topics.json` would forget every topic, and an operator who then removes unused
topics would delete their messages. So topics are recovered from the store's queues; settings that
nothing else knows are named in the log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from orbitmq.broker.topics.attributes import STORAGE, STORAGE_MEMORY
from orbitmq.model import names
from orbitmq.model.topics import TopicConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Set

    from orbitmq.model.queues import QueueBounds

log = logging.getLogger(__name__)

_SHOWN_MAX = 100


class _Table(Protocol):
    @property
    def is_found(self) -> bool: ...


def recovered_topics(
    queues: Iterable[QueueBounds], memory_topics: Set[str]
) -> dict[str, TopicConfig]:
    """Topics for the queues of a store, with as many queues as had messages; logs which."""
    counts: dict[str, int] = {}
    for queue in queues:
        counts[queue.topic] = max(counts.get(queue.topic, 0), queue.queue_id + 1)
    topics = {
        name: TopicConfig(
            name=name,
            read_queues=count,
            write_queues=count,
            attributes={STORAGE: STORAGE_MEMORY} if name in memory_topics else {},
        )
        for name, count in counts.items()
    }
    if topics:
        shown = [f"{name} ({counts[name]} queues)" for name in sorted(topics)[:_SHOWN_MAX]]
        log.error(
            "topics.json is missing, and so is its copy; topics recovered from their queues "
            "count=%d topics=%s hint=check their queues, permissions and attributes, or stop the "
            "broker and restore the file",
            len(topics),
            ", ".join(shown),
        )
    return topics


def report_lost(
    *,
    queues: Iterable[QueueBounds],
    topics: Mapping[str, TopicConfig],
    groups: _Table,
    offsets: _Table,
    delays: _Table,
) -> None:
    """Log which other tables a store must have had, and has no more."""
    # A group that consumed has a retry topic.
    consumed = any(names.is_retry_topic(name) for name in topics)
    delayed = any(queue.topic == names.SCHEDULE_TOPIC for queue in queues)
    for table, file, was_there, lost in (
        (groups, "subscriptionGroup.json", consumed, "groups are created again with defaults"),
        (offsets, "consumerOffset.json", consumed, "groups start where new groups do"),
        (delays, "delayOffset.json", delayed, "delayed messages are delivered again"),
    ):
        if was_there and not table.is_found:
            log.error(
                "%s is missing, and so is its copy: %s hint=stop the broker and restore the file, "
                "unless it was removed on purpose",
                file,
                lost,
            )
