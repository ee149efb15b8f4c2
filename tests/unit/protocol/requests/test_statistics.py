"""Requests for figures: names on the wire, and bodies as Java writes them."""

from __future__ import annotations

import pytest

from orbitmq import java_json
from orbitmq.errors import ProtocolError
from orbitmq.java_json import ObjectKeyed
from orbitmq.model.queues import MessageQueue
from orbitmq.model.subscriptions import Subscription
from orbitmq.protocol.headers import Header
from orbitmq.protocol.requests.statistics import (
    BrokerConsumeStats,
    ConsumeProgress,
    ConsumeStats,
    Counter,
    CounterWindow,
    GetBrokerConsumeStats,
    GetConsumeStats,
    GetCounter,
    GetRuntime,
    GetSubscription,
    GetTimeSpans,
    ListConsumedTopics,
    QueueTimeSpan,
    QueueTimeSpans,
    SubscriptionReply,
)

QUEUE = MessageQueue(broker_name="b", queue_id=0, topic="T")
STATS_JSON = (
    b'{"consumeTps":0.5,"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:'
    b'{"brokerOffset":9,"consumerOffset":5,"lastTimestamp":7,"pullOffset":6}}}'
)
STATS = ConsumeStats(
    consumed_per_second=0.5,
    queues=ObjectKeyed(
        {
            QUEUE: ConsumeProgress(
                broker_offset=9, consumer_offset=5, last_timestamp_ms=7, pull_offset=6
            )
        }
    ),
)


@pytest.mark.parametrize(
    ("header", "code", "fields"),
    [
        (GetConsumeStats(consumer_group="g"), 208, {"consumerGroup": "g"}),
        (
            GetConsumeStats(consumer_group="g", topic="T", topic_list="T;U;"),
            208,
            {"consumerGroup": "g", "topic": "T", "topicList": "T;U;"},
        ),
        (GetBrokerConsumeStats(ordered_topics_only=True), 317, {"isOrder": "true"}),
        (
            GetCounter(name="TOPIC_PUT_NUMS", key="T"),
            315,
            {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"},
        ),
        (GetTimeSpans(topic="T", group="g"), 303, {"topic": "T", "group": "g"}),
        (ListConsumedTopics(group="g"), 343, {"group": "g"}),
        (GetSubscription(group="g", topic="T"), 345, {"group": "g", "topic": "T"}),
        (GetRuntime(), 28, {}),
    ],
)
def test_a_request_has_its_code_and_javas_field_names(
    header: Header, code: int, fields: dict[str, str]
) -> None:
    assert code == header.CODE
    assert header.encode() == fields
    assert type(header).decode(fields) == header


@pytest.mark.parametrize(
    ("topic", "topic_list", "topics"),
    [
        (None, None, []),
        ("", "", []),
        ("T", None, ["T"]),
        ("T", "", ["T"]),
        (None, "T;U;", ["T", "U"]),
        (None, ";;T", ["T"]),
    ],
)
def test_topics_are_named_alone_or_as_a_list(
    topic: str | None, topic_list: str | None, topics: list[str]
) -> None:
    header = GetConsumeStats(consumer_group="g", topic=topic, topic_list=topic_list)

    assert header.topics == topics


def test_a_counter_is_asked_for_by_name_and_key() -> None:
    with pytest.raises(ProtocolError, match="field 'statsKey' of GetCounter is missing"):
        GetCounter.decode({"statsName": "TOPIC_PUT_NUMS"})


def test_progress_is_written_as_java_writes_it() -> None:
    assert java_json.encode(STATS) == STATS_JSON
    assert java_json.decode(STATS_JSON, ConsumeStats) == STATS


def test_progress_of_every_group_comes_back() -> None:
    text = (
        b'{"brokerAddr":"1.2.3.4:10911","consumeStatsList":[{"g":[' + STATS_JSON + b"]}],"
        b'"totalDiff":4,"totalInflightDiff":1}'
    )
    stats = BrokerConsumeStats(
        broker_address="1.2.3.4:10911", groups=[{"g": [STATS]}], lag=4, in_flight=1
    )

    assert java_json.encode(stats) == text
    assert java_json.decode(text, BrokerConsumeStats) == stats


def test_a_counter_comes_back() -> None:
    text = (
        b'{"statsDay":{"avgpt":0.0,"sum":0,"tps":0.0},"statsHour":{"avgpt":0.0,"sum":0,"tps":0.0},'
        b'"statsMinute":{"avgpt":1.5,"sum":3,"tps":0.05}}'
    )
    counter = Counter(minute=CounterWindow(average=1.5, sum=3, per_second=0.05))

    assert java_json.encode(counter) == text
    assert java_json.decode(text, Counter) == counter


def test_time_spans_come_back() -> None:
    text = (
        b'{"consumeTimeSpanSet":[{"consumeTimeStamp":3,"delayTime":4,"maxTimeStamp":5,'
        b'"messageQueue":{"brokerName":"b","queueId":0,"topic":"T"},"minTimeStamp":1}]}'
    )
    span = QueueTimeSpan(queue=QUEUE, consumed_until_ms=3, delay_ms=4, newest_ms=5, oldest_ms=1)

    assert java_json.encode(QueueTimeSpans(queues=[span])) == text
    assert java_json.decode(text, QueueTimeSpans).queues == [span]


def test_a_subscription_reply_may_hold_none() -> None:
    reply = SubscriptionReply(group="g", topic="T", subscription=Subscription(topic="T"))

    assert java_json.decode(java_json.encode(reply), SubscriptionReply) == reply
    assert java_json.encode(SubscriptionReply(group="g")) == b'{"group":"g"}'
