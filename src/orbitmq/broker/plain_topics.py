"""Plain topics: those that the hot path appends to without further checks.

Threads: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from orbitmq.model.names import BROKER_ONLY_TOPICS, is_group_topic
from orbitmq.model.topics import MULTI_TAG, Permission

if TYPE_CHECKING:
    from orbitmq.broker.statistics.counters import Counter, Counters
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.model.topics import TopicConfig


class PlainTopic:
    """What the hot path needs to know of a topic."""

    __slots__ = ("counter", "queues")

    def __init__(self, topic: TopicConfig, counter: Counter) -> None:
        self.queues = max(topic.read_queues, topic.write_queues)
        self.counter = counter


class PlainTopics:
    """Caches plain topics by their names as bytes."""

    def __init__(
        self, topics: TopicTable, counters: Counters, *, permission: Callable[[], int]
    ) -> None:
        self._topics = topics
        self._counters = counters
        # The permission of the whole broker.
        self._permission = permission
        self._known: dict[bytes, PlainTopic] = {}

    def find(self, name: bytes) -> PlainTopic | None:
        """Look up a topic; None if it is not plain, or does not exist."""
        found = self._known.get(name)
        return found if found is not None else self._learn(name)

    def forget(self, names: Iterable[str]) -> None:
        """Drop topics that changed."""
        for name in names:
            self._known.pop(name.encode(), None)

    def forget_all(self) -> None:
        """Drop all topics, since the broker's permission changed."""
        self._known.clear()

    def _learn(self, name: bytes) -> PlainTopic | None:
        text = name.decode()
        topic = self._topics.get(text)
        if topic is None or not self._permission() & Permission.WRITE or not is_plain(topic):
            return None
        found = self._known[name] = PlainTopic(topic, self._counters.put(text))
        return found


def is_plain(topic: TopicConfig) -> bool:
    """Whether a topic has no special rules for sends."""
    return (
        topic.permission & Permission.WRITE != 0
        and not is_group_topic(topic.name)
        and topic.name not in BROKER_ONLY_TOPICS
        and topic.filter_type != MULTI_TAG
        and not topic.is_in_memory
    )
