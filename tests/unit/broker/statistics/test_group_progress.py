"""Progress of groups, measured on a real store."""

from __future__ import annotations

from pathlib import Path

from orbitmq.broker.statistics.group_progress import Lag
from orbitmq.model.queues import MessageQueue
from orbitmq.model.topics import TopicConfig
from tests.unit.broker.groups.clients import consumer, heartbeat, subscription
from tests.unit.broker.parts import broker_parts


async def test_each_queue_shows_its_committed_pulled_and_end_offsets(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        await parts.make_topic()
        stored_ms = parts.clock.now_ms()
        await parts.put(5)
        await parts.clock.advance(1000)
        await parts.put(1, queue_id=1)
        parts.offsets.commit("g", "orders", 0, 2)
        parts.offsets.note_pull("g", "orders", 0, "client", 4)

        queues = parts.progress.by_queue("g", parts.topics.require("orders"), 2)

        shown = queues[MessageQueue(broker_name="b", queue_id=0, topic="orders")]
        assert (shown.broker_offset, shown.consumer_offset, shown.pull_offset) == (5, 2, 4)
        assert shown.last_timestamp_ms == stored_ms
        other = queues[MessageQueue(broker_name="b", queue_id=1, topic="orders")]
        assert (other.broker_offset, other.consumer_offset, other.last_timestamp_ms) == (1, 0, 0)


async def test_lag_counts_uncommitted_and_undelivered_messages(
    tmp_path: Path,
) -> None:
    async with broker_parts(tmp_path) as parts:
        await parts.make_topic()
        await parts.put(3)
        await parts.clock.advance(1000)
        await parts.put(2)
        parts.offsets.commit("g", "orders", 0, 2)
        parts.offsets.note_pull("g", "orders", 0, "client", 4)
        await parts.clock.advance(500)

        lag = parts.progress.lag("g", parts.topics.require("orders"))

        assert lag == Lag(messages=3, in_flight=2, ready=1, waits_ms=1500, queued_ms=500)


async def test_a_queue_that_a_group_never_read_has_no_lag(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        await parts.make_topic()
        await parts.put(3)

        lag = parts.progress.lag("g", parts.topics.require("orders"))

        assert lag == Lag(messages=0, in_flight=0, ready=0, waits_ms=0, queued_ms=0)


async def test_numbers_that_a_promotion_skipped_in_memory_are_no_lag(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        topic = TopicConfig(name="orders", attributes={"orbitmq.storage": "memory"})
        parts.store.begin_reign(1, {"orders"})
        parts.store.keep_in_memory("orders")
        parts.offsets.commit("g", "orders", 0, 5)
        await parts.put(2)

        (shown,) = parts.progress.by_queue("g", topic, 1).values()

        assert shown.broker_offset - shown.consumer_offset == 2
        assert parts.progress.lag("g", topic).messages == 2


async def test_time_spans_show_how_long_the_next_message_has_waited(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        await parts.make_topic()
        first_ms = parts.clock.now_ms()
        await parts.put(1)
        await parts.clock.advance(1000)
        await parts.put(1)
        await parts.clock.advance(50)
        parts.offsets.commit("g", "orders", 0, 1)

        first, empty = parts.progress.time_spans("g", parts.topics.require("orders"))

        assert (first.oldest_ms, first.newest_ms) == (first_ms, first_ms + 1000)
        assert (first.consumed_until_ms, first.delay_ms) == (first_ms, 50)
        assert (empty.oldest_ms, empty.newest_ms, empty.delay_ms) == (-1, -1, 0)


async def test_topics_that_members_no_longer_subscribe_to_are_omitted(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        for topic in ("orders", "old"):
            parts.offsets.commit("g", topic, 0, 1)

        assert sorted(parts.progress.topics_of("g")) == ["old", "orders"]
        parts.join(heartbeat("id", consumer("g", subscription("orders"))))

        assert parts.progress.topics_of("g") == ["orders"]
        assert sorted(parts.progress.committed_topics("g")) == ["old", "orders"]
