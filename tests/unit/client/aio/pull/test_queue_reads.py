"""Single reads of a queue: the request that a broker gets, and its replies."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.client.aio.instance.broker_calls import PullStatus
from orbitmq.client.aio.pull.queue_reads import PullResult, QueueReads
from orbitmq.client.core.subscriptions import by_sql, subscription_of
from orbitmq.errors import BrokerUnknownError, NotSupportedError, RemoteError
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.requests.pulling import PullFlag
from tests.unit.client.aio.scripted_broker import QUEUE, TOPIC, scripted_broker

EVERYTHING = subscription_of(TOPIC, "*", version_ms=7)
TIMEOUT_MS = 60_000


async def read(reads: QueueReads, *, tags: str = "*", offset: int = 3) -> PullResult:
    subscription = subscription_of(TOPIC, tags, version_ms=7)
    return await reads.read(QUEUE, subscription, offset, messages_max=10, timeout_ms=TIMEOUT_MS)


async def test_messages_come_with_the_next_offset() -> None:
    async with scripted_broker() as (broker, instance):
        broker.found(3, 4)

        result = await read(QueueReads(instance, "group"))

    assert [message.body for message in result.messages] == [b"at 3", b"at 4"]
    assert [message.queue for message in result.messages] == [QUEUE, QUEUE]
    assert result[0] is PullStatus.FOUND
    assert result[2:] == (5, 0, 100)


async def test_a_pull_carries_what_is_asked_for() -> None:
    async with scripted_broker() as (broker, instance):
        broker.found(3)
        broker.found(4)
        reads = QueueReads(instance, "group")

        await read(reads, tags="paid || sent")
        condition = subscription_of(TOPIC, by_sql("a > 3"), version_ms=7)
        await reads.read(QUEUE, condition, 4, messages_max=5, hold_ms=20_000, timeout_ms=TIMEOUT_MS)

    (code, by_tag), (_, by_condition) = broker.pulls
    assert code == RequestCode.PULL_MESSAGE
    assert (by_tag.consumer_group, by_tag.topic, by_tag.queue_id) == ("group", TOPIC, 1)
    assert (by_tag.queue_offset, by_tag.messages_max) == (3, 10)
    assert (by_tag.expression, by_tag.expression_type) == ("paid || sent", "TAG")
    assert by_tag.system_flag == PullFlag.SUBSCRIPTION
    assert by_tag.subscription_version == 0
    assert (by_condition.expression, by_condition.expression_type) == ("a > 3", "SQL92")
    assert by_condition.system_flag == PullFlag.SUBSCRIPTION | PullFlag.SUSPEND
    assert by_condition.suspend_timeout_ms == 20_000
    assert by_condition.subscription_version == 7


async def test_a_lite_pull_has_a_code_of_its_own() -> None:
    async with scripted_broker() as (broker, instance):
        broker.found(3)

        await read(QueueReads(instance, "group", lite=True))

    ((code, pull),) = broker.pulls
    assert code == RequestCode.LITE_PULL_MESSAGE
    assert pull.system_flag == PullFlag.SUBSCRIPTION | PullFlag.LITE_PULL


async def test_a_broker_that_does_not_know_lite_pulls_gets_the_older_code() -> None:
    async with scripted_broker(knows_lite_pulls=False) as (broker, instance):
        broker.found(3)
        broker.found(4)
        reads = QueueReads(instance, "group", lite=True)

        first = await read(reads)
        second = await read(reads, offset=4)

    assert [message.queue_offset for message in (*first.messages, *second.messages)] == [3, 4]
    assert [code for code, _ in broker.pulls] == [RequestCode.PULL_MESSAGE] * 2


async def test_several_queues_may_learn_at_once_that_a_broker_does_not_know_lite_pulls() -> None:
    async with scripted_broker(knows_lite_pulls=False) as (broker, instance):
        broker.found(3)
        broker.found(3)
        reads = QueueReads(instance, "group", lite=True)

        both = await asyncio.gather(read(reads), read(reads))

    assert [result.status for result in both] == [PullStatus.FOUND] * 2
    assert [code for code, _ in broker.pulls] == [RequestCode.PULL_MESSAGE] * 2


async def test_a_broker_that_knows_neither_code_is_an_error() -> None:
    async with scripted_broker(knows_lite_pulls=False) as (broker, instance):
        broker.fail(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no")

        with pytest.raises(NotSupportedError):
            await read(QueueReads(instance, "group", lite=True))


async def test_a_tag_that_only_shares_its_hash_is_left_out() -> None:
    async with scripted_broker() as (broker, instance):
        # Both strings have the same hash in Java.
        broker.found(3, tags="BB")

        result = await read(QueueReads(instance, "group"), tags="Aa")

    assert result.status is PullStatus.FOUND
    assert result.messages == []
    assert result.next_offset == 4


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.PULL_NOT_FOUND, PullStatus.NO_NEW),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, PullStatus.NO_MATCH),
        (ResponseCode.PULL_OFFSET_MOVED, PullStatus.OFFSET_ILLEGAL),
    ],
)
async def test_a_reply_without_messages_has_its_reason(code: int, status: PullStatus) -> None:
    async with scripted_broker() as (broker, instance):
        broker.nothing(code, next_offset=50)

        result = await read(QueueReads(instance, "group"))

    assert result == PullResult(status, [], 50, 0, 100)


async def test_the_next_read_goes_to_the_broker_that_was_suggested() -> None:
    async with scripted_broker() as (broker, instance):
        broker.found(3, suggested=1)
        broker.found(4, suggested=1)
        broker.found(5)
        reads = QueueReads(instance, "group")

        await read(reads)
        before = instance.rpc.connected
        await read(reads, offset=4)
        reads.forget(QUEUE)
        await read(reads, offset=5)

        slave = f"localhost:{broker.server.port}"
        assert slave not in before
        assert instance.rpc.connected == {broker.address, slave}


async def test_a_refusal_of_the_broker_is_raised() -> None:
    async with scripted_broker() as (broker, instance):
        broker.fail(ResponseCode.NO_PERMISSION, "the topic may not be read")

        with pytest.raises(RemoteError, match="the topic may not be read"):
            await read(QueueReads(instance, "group"))


async def test_a_broker_in_no_route_is_an_error() -> None:
    nowhere = MessageQueue(broker_name="broker-z", queue_id=0, topic=TOPIC)
    async with scripted_broker() as (_, instance):
        with pytest.raises(BrokerUnknownError, match="broker-z"):
            await QueueReads(instance, "group").read(
                nowhere, EVERYTHING, 0, messages_max=1, timeout_ms=TIMEOUT_MS
            )
