"""Plain topics: those that the hot path appends to without asking any further.

Threads: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from orbitmq.broker.topics.attributes import is_kept_in_memory
from orbitmq.model.names import BROKER_ONLY_TOPICS, is_group_topic
from orbitmq.model.topics import MULTI_TAG, Permission

if TYPE_CHECKING:
    from orbitmq.broker.statistics.counters import Counter, Counters
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.model.topics import TopicConfig


class PlainTopic:
    """What the hot path knows of a topic."""

    __slots__ = ("counter", "queues")

    def __init__(self, topic: TopicConfig, counter: Counter) -> None:
        self.queues = max(topic.read_queues, topic.write_queues)
        self.counter = counter


class PlainTopics:
    """Remembers which topics are plain, by their names as bytes."""

    def __init__(
        self, topics: TopicTable, counters: Counters, *, permission: Callable[[], int]
    ) -> None:
        self._topics = topics
        self._counters = counters
        # What the broker as a whole allows.
        self._permission = permission
        self._known: dict[bytes, PlainTopic] = {}

    def find(self, name: bytes) -> PlainTopic | None:
        """Look a topic up; None when sends to it are special, or it does not exist."""
        found = self._known.get(name)
        return found if found is not None else self._learn(name)

    def forget(self, names: Iterable[str]) -> None:
        """Look at topics again, since they changed."""
        for name in names:
            self._known.pop(name.encode(), None)

    def forget_all(self) -> None:
        """Look at every topic again, since what the broker allows changed."""
        self._known.clear()

    def _learn(self, name: bytes) -> PlainTopic | None:
        text = name.decode()
        topic = self._topics.get(text)
        if topic is None or not self._permission() & Permission.WRITE or not is_plain(topic):
            return None
        found = self._known[name] = PlainTopic(topic, self._counters.put(text))
        return found


def is_plain(topic: TopicConfig) -> bool:
    """Whether no rule but those of every send holds for a topic."""
    return (
        topic.permission & Permission.WRITE != 0
        and not is_group_topic(topic.name)
        and topic.name not in BROKER_ONLY_TOPICS
        and topic.filter_type != MULTI_TAG
        and not is_kept_in_memory(topic)
    )
