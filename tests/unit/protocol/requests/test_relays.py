"""Requests to consumers: names on the wire, and answers as Java and Go write them."""

from __future__ import annotations

import pytest

from orbitmq import java_json
from orbitmq.errors import ProtocolError
from orbitmq.java_json import ObjectKeyed
from orbitmq.model.queues import MessageQueue
from orbitmq.model.subscriptions import Subscription
from orbitmq.protocol.headers import Header
from orbitmq.protocol.requests.relays import (
    ConsumeDirectly,
    ConsumerOffsets,
    ConsumeSpeed,
    DirectOutcome,
    DirectResult,
    GetConsumerOffsets,
    GetGroupOffsets,
    GetRunningConsumer,
    PopQueueProgress,
    QueueProgress,
    RunningConsumer,
)

QUEUE = MessageQueue(broker_name="b", queue_id=0, topic="T")
QUEUE_JSON = b'{"brokerName":"b","queueId":0,"topic":"T"}'


@pytest.mark.parametrize(
    ("header", "code", "fields"),
    [
        (GetConsumerOffsets(topic="T", group="g"), 221, {"topic": "T", "group": "g"}),
        (
            GetGroupOffsets(topic="T", group="g", client_id="c"),
            223,
            {"topic": "T", "group": "g", "clientAddr": "c"},
        ),
        (
            GetRunningConsumer(consumer_group="g", client_id="c", with_stacks=True),
            307,
            {"consumerGroup": "g", "clientId": "c", "jstackEnable": "true"},
        ),
        (
            ConsumeDirectly(
                consumer_group="g",
                client_id="c",
                message_id="id",
                broker_name="b",
                topic="T",
                topic_unit_flag=0,
                group_unit_flag=0,
            ),
            309,
            {
                "consumerGroup": "g",
                "clientId": "c",
                "msgId": "id",
                "brokerName": "b",
                "topic": "T",
                "topicSysFlag": "0",
                "groupSysFlag": "0",
            },
        ),
    ],
)
def test_a_request_has_its_code_and_javas_field_names(
    header: Header, code: int, fields: dict[str, str]
) -> None:
    assert code == header.CODE
    assert header.encode() == fields
    assert type(header).decode(fields) == header


def test_a_consumer_is_asked_by_its_id() -> None:
    with pytest.raises(ProtocolError, match="field 'clientId' of GetRunningConsumer is missing"):
        GetRunningConsumer.decode({"consumerGroup": "g"})


def test_offsets_of_one_and_of_every_member_come_back() -> None:
    text = (
        b'{"consumerTable":{"c":{' + QUEUE_JSON + b":5}},"
        b'"messageQueueTable":{' + QUEUE_JSON + b":6}}"
    )
    offsets = ConsumerOffsets(
        by_client={"c": ObjectKeyed({QUEUE: 5})}, queues=ObjectKeyed({QUEUE: 6})
    )

    assert java_json.encode(offsets) == text
    assert java_json.decode(text, ConsumerOffsets) == offsets


def test_a_running_consumer_is_written_as_java_writes_it() -> None:
    text = (
        b'{"mqPopTable":{' + QUEUE_JSON + b':{"droped":false,"lastPopTimestamp":3,'
        b'"waitAckCount":1}},"mqTable":{' + QUEUE_JSON + b':{"cachedMsgCount":2,'
        b'"cachedMsgMaxOffset":9,"cachedMsgMinOffset":8,"cachedMsgSizeInMiB":1,"commitOffset":8,'
        b'"droped":true,"lastConsumeTimestamp":7,"lastLockTimestamp":4,"lastPullTimestamp":6,'
        b'"locked":true,"transactionMsgCount":1,"transactionMsgMaxOffset":8,'
        b'"transactionMsgMinOffset":8,"tryUnlockTimes":5}},'
        b'"properties":{"PROP_CLIENT_VERSION":"V5_3_3"},"statusTable":{"T":{"consumeFailedMsgs":1,'
        b'"consumeFailedTPS":0.1,"consumeOKTPS":0.2,"consumeRT":0.3,"pullRT":0.4,"pullTPS":0.5}},'
        b'"subscriptionSet":[{"classFilterMode":false,"codeSet":[],"expressionType":"TAG",'
        b'"subString":"*","subVersion":0,"tagsSet":[],"topic":"T"}],"userConsumerInfo":{}}'
    )
    running = RunningConsumer(
        pop_queues=ObjectKeyed({QUEUE: PopQueueProgress(last_pop_ms=3, waiting_acks=1)}),
        queues=ObjectKeyed(
            {
                QUEUE: QueueProgress(
                    cached_messages=2,
                    cached_max_offset=9,
                    cached_min_offset=8,
                    cached_mib=1,
                    commit_offset=8,
                    dropped=True,
                    last_consume_ms=7,
                    last_lock_ms=4,
                    last_pull_ms=6,
                    locked=True,
                    consuming_messages=1,
                    consuming_max_offset=8,
                    consuming_min_offset=8,
                    unlock_attempts=5,
                )
            }
        ),
        properties={"PROP_CLIENT_VERSION": "V5_3_3"},
        speeds={
            "T": ConsumeSpeed(
                failed_messages=1,
                failed_per_second=0.1,
                consumed_per_second=0.2,
                consume_ms=0.3,
                pull_ms=0.4,
                pulled_per_second=0.5,
            )
        },
        subscriptions=[Subscription(topic="T", expression="*")],
    )

    assert java_json.encode(running) == text
    assert java_json.decode(text, RunningConsumer) == running


def test_a_running_consumer_of_another_release_may_leave_members_out() -> None:
    text = b'{"jstack":"main","mqTable":{},"properties":{},"statusTable":{},"subscriptionSet":[]}'

    assert java_json.decode(text, RunningConsumer) == RunningConsumer(stacks="main")


@pytest.mark.parametrize("outcome", [b'"CR_LATER"', b"1"])
def test_a_listener_ends_with_javas_names_or_gos_positions(outcome: bytes) -> None:
    text = b'{"autoCommit":true,"consumeResult":' + outcome + b',"order":false,"spentTimeMills":1}'

    result = java_json.decode(text, DirectResult)

    assert result == DirectResult(outcome=DirectOutcome("CR_LATER"), spent_ms=1)
    assert java_json.encode(result) == (
        b'{"autoCommit":true,"consumeResult":"CR_LATER","order":false,"spentTimeMills":1}'
    )
