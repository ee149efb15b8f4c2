"""Statistics over the wire, as tools get them."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq import java_json
from orbitmq.broker.handlers.statistics import StatisticsRequests
from orbitmq.broker.statistics.samples import Samples
from orbitmq.errors import RequestRefusedError, TopicMissingError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import request
from orbitmq.protocol.requests.key_values import KeyValueTable
from orbitmq.protocol.requests.routing import TopicList
from orbitmq.protocol.requests.statistics import (
    BrokerConsumeStats,
    ConsumeStats,
    CounterReply,
    GetBrokerConsumeStats,
    GetConsumeStats,
    GetCounter,
    GetRuntime,
    GetSubscription,
    GetTimeSpans,
    ListConsumedTopics,
    QueueTimeSpans,
    Replication,
    SubscriptionReply,
)
from tests.unit.broker.groups.clients import consumer, heartbeat, new_connection, subscription
from tests.unit.broker.parts import BrokerParts, broker_parts

TOOL = new_connection()


def _handlers(parts: BrokerParts, samples: Samples | None = None) -> StatisticsRequests:
    samples = samples or parts.samples()
    return StatisticsRequests(
        cluster_name="c",
        address="10.0.0.9:10911",
        topics=parts.topics,
        groups=parts.groups,
        members=parts.members,
        progress=parts.progress,
        samples=samples,
        replication=Replication,
        runtime=parts.runtime(samples),
    )


async def test_a_group_is_measured_in_all_topics_it_consumes(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        samples = parts.samples()
        for topic in ("orders", "bills"):
            await parts.make_topic(topic)
            await parts.put(2, topic=topic)
            parts.offsets.commit("g", topic, 0, 1)
            parts.counters.read(topic, "g").add(10, 100)
        parts.offsets.commit("g", "deleted", 0, 1)
        await parts.clock.advance(10_000)
        samples.sample()

        asked = request(GetConsumeStats(consumer_group="g"))
        reply = await _handlers(parts, samples).measure_group(TOOL, asked)

        stats = java_json.decode(reply.body, ConsumeStats)
        assert {queue.topic for queue in stats.queues} == {"orders", "bills"}
        assert len(stats.queues) == 4
        assert stats.consumed_per_second == 2
        assert (
            sum(queue.broker_offset - queue.consumer_offset for queue in stats.queues.values()) == 2
        )


async def test_a_list_of_topics_is_measured_whatever_the_members_subscribe_to(
    tmp_path: Path,
) -> None:
    async with broker_parts(tmp_path) as parts:
        for topic in ("orders", "bills"):
            await parts.make_topic(topic, 1)
        parts.join(heartbeat("id", consumer("g", subscription("orders"))))
        handlers = _handlers(parts)

        async def topics(asked: GetConsumeStats) -> set[str]:
            reply = await handlers.measure_group(TOOL, request(asked))
            return {queue.topic for queue in java_json.decode(reply.body, ConsumeStats).queues}

        listed = GetConsumeStats(consumer_group="g", topic_list="orders;bills;")
        assert await topics(listed) == {"orders", "bills"}
        assert await topics(GetConsumeStats(consumer_group="g", topic="orders")) == {"orders"}
        assert await topics(GetConsumeStats(consumer_group="g", topic="bills")) == set()


async def test_all_groups_are_measured_with_their_lag(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        await parts.make_group()
        await parts.make_topic("orders", order=True)
        await parts.make_topic("bills")
        for topic, count in (("orders", 3), ("bills", 4)):
            await parts.put(count, topic=topic)
            parts.offsets.commit("g", topic, 0, 1)
            parts.offsets.note_pull("g", topic, 0, "client", 2)
        handlers = _handlers(parts)

        async def measured(*, ordered: bool) -> BrokerConsumeStats:
            asked = request(GetBrokerConsumeStats(ordered_topics_only=ordered))
            reply = await handlers.measure_groups(TOOL, asked)
            return java_json.decode(reply.body, BrokerConsumeStats)

        stats, of_ordered = await measured(ordered=False), await measured(ordered=True)
        assert (stats.lag, stats.in_flight) == (5, 2)
        assert (of_ordered.lag, of_ordered.in_flight) == (2, 1)
        assert stats.broker_address == "10.0.0.9:10911"
        assert [len(group["g"]) for group in stats.groups if "g" in group] == [2]


async def test_time_spans_are_those_of_the_queues_of_a_topic_that_exists(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        await parts.make_topic()
        await parts.put(1)
        await parts.clock.advance(20)

        reply = await _handlers(parts).measure_times(
            TOOL, request(GetTimeSpans(topic="orders", group="g"))
        )

        spans = java_json.decode(reply.body, QueueTimeSpans).queues
        assert [span.delay_ms for span in spans] == [20, 0]
        with pytest.raises(TopicMissingError):
            await _handlers(parts).measure_times(
                TOOL, request(GetTimeSpans(topic="none", group="g"))
            )


async def test_topics_and_subscriptions_of_a_group_are_shown(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        parts.offsets.commit("g", "orders", 0, 1)
        parts.join(heartbeat("id", consumer("g", subscription("orders", "a || b"))))
        handlers = _handlers(parts)

        listed = handlers.list_topics(TOOL, request(ListConsumedTopics(group="g")))
        shown = handlers.show_subscription(
            TOOL, request(GetSubscription(group="g", topic="orders"))
        )
        unknown = handlers.show_subscription(
            TOOL, request(GetSubscription(group="h", topic="orders"))
        )

        topics = java_json.decode(listed.body, TopicList)
        assert (topics.topics, topics.broker_address) == (["orders"], "10.0.0.9:10911")
        found = java_json.decode(shown.body, SubscriptionReply).subscription
        assert found is not None
        assert found.expression == "a || b"
        assert java_json.decode(unknown.body, SubscriptionReply).subscription is None


async def test_counters_are_shown_under_the_names_of_rocketmq(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        samples = parts.samples()
        parts.counters.put("orders").add(20, 4000)
        parts.counters.read("orders", "g").add(10, 1000)
        parts.counters.send_back("orders", "g").add(5, 500)
        await parts.clock.advance(10_000)
        samples.sample()
        handlers = _handlers(parts, samples)

        def minute(name: str, key: str) -> tuple[int, float, float]:
            reply = handlers.show_counter(TOOL, request(GetCounter(name=name, key=key)))
            window = java_json.decode(reply.body, CounterReply).minute
            return window.sum, window.per_second, window.average

        assert minute("TOPIC_PUT_NUMS", "orders") == (20, 2, 1)
        assert minute("TOPIC_PUT_SIZE", "orders") == (4000, 400, 200)
        assert minute("GROUP_GET_NUMS", "orders@g") == (10, 1, 1)
        assert minute("GROUP_GET_SIZE", "orders@g") == (1000, 100, 100)
        assert minute("SNDBCK_PUT_NUMS", "orders@g") == (5, 0.5, 1)
        assert minute("BROKER_PUT_NUMS", "c") == (20, 2, 1)
        assert minute("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", "c") == (10, 1, 1)


@pytest.mark.parametrize(
    ("name", "key"),
    [("NO_SUCH_NUMS", "orders"), ("TOPIC_PUT_NUMS", "none"), ("BROKER_PUT_NUMS", "other")],
)
async def test_an_unknown_counter_is_refused(tmp_path: Path, name: str, key: str) -> None:
    async with broker_parts(tmp_path) as parts:
        handlers = _handlers(parts)

        with pytest.raises(
            RequestRefusedError, match=f"The stats <{name}> <{key}> not exist"
        ) as no:
            handlers.show_counter(TOOL, request(GetCounter(name=name, key=key)))

        assert no.value.code == ResponseCode.SYSTEM_ERROR


async def test_the_state_of_the_broker_is_one_table_of_strings(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        reply = await _handlers(parts).show_runtime(TOOL, request(GetRuntime()))

        table = java_json.decode(reply.body, KeyValueTable).table
        assert table["brokerActive"] == "true"
        assert table["commitLogMaxOffset"] == "0"


async def test_every_request_has_its_handler(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        assert set(_handlers(parts).by_code()) == {208, 317, 315, 303, 343, 345, 28, 907}
