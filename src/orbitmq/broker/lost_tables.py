"""Tables of a broker that are damaged or gone, and what comes back.

A start without `topics.json` would forget every topic, and a start with its older copy the newest
ones; an operator who then removes unused topics would delete their messages. So topics are recovered
from the store's queues; settings that nothing else knows are named in the log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import msgspec

from orbitmq.model import names
from orbitmq.model.topics import STORAGE, STORAGE_MEMORY, TopicConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Set

    from orbitmq.model.queues import QueueBounds

log = logging.getLogger(__name__)

_SHOWN_MAX = 100


class _Table(Protocol):
    @property
    def is_found(self) -> bool: ...


def recovered_topics(
    queues: Iterable[QueueBounds], memory_topics: Set[str], known: Mapping[str, TopicConfig]
) -> dict[str, TopicConfig]:
    """Topics for the queues that the known topics do not have; logs which."""
    topics = _topics_for(queues, memory_topics, known)
    if topics:
        log.error(
            "topics.json is %s; topics recovered from their queues count=%d topics=%s hint=check "
            "their queues, permissions and attributes, or stop the broker and restore the file",
            "damaged" if known else "missing, and so is its copy",
            len(topics),
            _shown_with_queues(topics),
        )
    return topics


def topics_not_copied(
    queues: Iterable[QueueBounds],
    memory_topics: Set[str],
    known: Mapping[str, TopicConfig],
    *,
    new_topic_queues: int,
) -> dict[str, TopicConfig]:
    """Topics of the last master that a promoted slave has messages of, and no entry; logs which.

    A topic that is not known gets at least as many queues as new topics have: others may have had
    no message yet.
    """
    with_messages = (queue for queue in queues if queue.end > queue.start)
    topics = {
        name: topic
        if name in known or names.is_group_topic(name)
        else msgspec.structs.replace(
            topic,
            read_queues=max(topic.read_queues, new_topic_queues),
            write_queues=max(topic.write_queues, new_topic_queues),
        )
        for name, topic in _topics_for(with_messages, memory_topics, known).items()
    }
    if topics:
        log.warning(
            "topics that the last master created or changed just before are made from their queues "
            "count=%d topics=%s hint=check their queues, permissions and attributes",
            len(topics),
            _shown_with_queues(topics),
        )
    return topics


def _topics_for(
    queues: Iterable[QueueBounds], memory_topics: Set[str], known: Mapping[str, TopicConfig]
) -> dict[str, TopicConfig]:
    """Topics that lack a queue that there is; each gets as many queues as had messages."""
    topics: dict[str, TopicConfig] = {}
    for name, count in _queue_counts(queues).items():
        if names.is_system_topic(name):
            continue
        topic = known.get(name)
        if topic is None:
            attributes = {STORAGE: STORAGE_MEMORY} if name in memory_topics else {}
            topics[name] = TopicConfig(
                name=name, read_queues=count, write_queues=count, attributes=attributes
            )
        elif topic.read_queues < count:
            topics[name] = msgspec.structs.replace(
                topic, read_queues=count, write_queues=max(count, topic.write_queues)
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
    """Log which other tables a store must have had, and topics that only its queues have."""
    _report_unlisted_topics(queues, topics)
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


def _report_unlisted_topics(
    queues: Iterable[QueueBounds], topics: Mapping[str, TopicConfig]
) -> None:
    """Log topics with messages that the table does not have: nobody can read them."""
    with_messages = (queue for queue in queues if queue.end > queue.start)
    unlisted = [
        f"{name} ({count} queues)"
        for name, count in _queue_counts(with_messages).items()
        if name not in topics and not names.is_system_topic(name)
    ]
    if unlisted:
        log.warning(
            "topics.json lacks topics that have messages count=%d topics=%s hint=create them again "
            "to read the messages, or delete them with: mqadmin cleanUnusedTopic",
            len(unlisted),
            _shown(unlisted),
        )


def _queue_counts(queues: Iterable[QueueBounds]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for queue in queues:
        counts[queue.topic] = max(counts.get(queue.topic, 0), queue.queue_id + 1)
    return counts


def _shown_with_queues(topics: Mapping[str, TopicConfig]) -> str:
    return _shown(f"{name} ({topic.read_queues} queues)" for name, topic in topics.items())


def _shown(topics: Iterable[str]) -> str:
    return ", ".join(sorted(topics)[:_SHOWN_MAX])
