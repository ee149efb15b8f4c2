"""Plain topics: which they are, and that changes take effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.broker.plain_topics import PlainTopics, is_plain
from orbitmq.broker.statistics.counters import Counters
from orbitmq.broker.topics.topic_table import TopicTable
from orbitmq.clock import ManualClock
from orbitmq.model.topics import TopicConfig


@pytest.mark.parametrize(
    "topic",
    [
        TopicConfig(name="read-only", permission=4),
        TopicConfig(name="%RETRY%group"),
        TopicConfig(name="%DLQ%group"),
        TopicConfig(name="SCHEDULE_TOPIC_XXXX"),
        TopicConfig(name="many", filter_type="MULTI_TAG"),
        TopicConfig(name="fleeting", attributes={"orbitmq.storage": "memory"}),
    ],
    ids=lambda topic: topic.name,
)
def test_a_topic_with_rules_of_its_own_is_not_plain(topic: TopicConfig) -> None:
    assert not is_plain(topic)


async def test_a_plain_topic_is_found_with_its_queues_and_counter(tmp_path: Path) -> None:
    counters = Counters()
    topics = TopicTable(tmp_path, clock=ManualClock())
    plain = PlainTopics(topics, counters, permission=lambda: 6)
    assert plain.find(b"orders") is None

    await topics.put(TopicConfig(name="orders", read_queues=4, write_queues=8))
    found = plain.find(b"orders")

    assert found is not None
    assert found.queues == 8
    assert found.counter is counters.put("orders")
    assert plain.find(b"orders") is found


async def test_a_change_of_topic_or_broker_is_seen_after_forgetting(tmp_path: Path) -> None:
    allowed = 6
    topics = TopicTable(tmp_path, clock=ManualClock())
    plain = PlainTopics(topics, Counters(), permission=lambda: allowed)
    await topics.put(TopicConfig(name="orders"))
    assert plain.find(b"orders") is not None

    await topics.put(TopicConfig(name="orders", permission=4))
    plain.forget(["orders"])
    assert plain.find(b"orders") is None

    await topics.put(TopicConfig(name="orders"))
    assert plain.find(b"orders") is not None
    allowed = 4
    plain.forget_all()
    assert plain.find(b"orders") is None
