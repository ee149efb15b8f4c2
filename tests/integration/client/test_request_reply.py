"""Requests by message and their replies, over real brokers."""

from __future__ import annotations

import asyncio
import logging
import math
from pathlib import Path
from typing import Any

import pytest

from orbitmq.client import Message, Reply
from orbitmq.client import Producer as BlockingProducer
from orbitmq.client import PushConsumer as BlockingPushConsumer
from orbitmq.client.aio.sending.producer import Producer
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.clock import ManualClock
from orbitmq.errors import (
    MessageError,
    MessageTypeError,
    ReplyNotDeliveredError,
    RequestTimeoutError,
    RouteNotFoundError,
    StateError,
)
from orbitmq.model import property_names
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.queries import ReadMessage
from tests.integration.client.conftest import WAIT_SECONDS, Cluster
from tests.integration.client.consuming import Seen, consumer_of, send
from tests.integration.client.scripted_servers import ScriptedBroker, scripted_cluster, silent
from tests.integration.client.threads import blocking, no_thread_is_left
from tests.waiting import until

__all__ = ["no_thread_is_left"]

PATIENCE_MS = WAIT_SECONDS * 1000


async def shout(message: ReceivedMessage) -> Reply:
    """Reply with the body in capitals."""
    return Reply(message.body.upper(), tags="loud", keys=["k"], properties={"own": "é"}, flag=7)


def shout_from_a_thread(message: ReceivedMessage) -> Reply:
    """Reply from a plain function."""
    return Reply(message.body.upper())


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_request_gets_the_reply_that_a_listener_returns(
    cluster: Cluster, topic: str, group: str, *, ordered: bool
) -> None:
    await cluster.make_topic(topic, queues=1)
    consumer = consumer_of(cluster, group, on_message=shout, ordered=ordered)
    consumer.subscribe(topic)
    async with consumer, Producer(namesrv=cluster.namesrv) as producer:
        reply = await producer.request(Message(topic, b"hello"), timeout_ms=PATIENCE_MS)

    assert reply.body == b"HELLO"
    assert (reply.topic, reply.tags, reply.keys) == ("DefaultCluster_REPLY_TOPIC", "loud", ("k",))
    assert (reply.properties["own"], reply.flag) == ("é", 7)
    assert reply.properties[property_names.REPLY_TTL_MS] == str(PATIENCE_MS)
    assert int(reply.properties[property_names.REPLY_ARRIVED_MS]) >= reply.born_ms
    assert reply.born_host[0] == "127.0.0.1"
    assert not reply.queue.broker_name


async def test_requests_in_flight_get_their_own_replies(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic)
    bodies = [b"request %d" % number for number in range(50)]
    held: list[ReceivedMessage] = []
    all_held = asyncio.Event()

    async def hold(message: ReceivedMessage) -> Reply:
        held.append(message)
        if len(held) == len(bodies):
            all_held.set()
        await all_held.wait()
        return Reply(message.body.upper())

    consumer = consumer_of(cluster, group, on_message=hold, concurrency=len(bodies))
    consumer.subscribe(topic)
    async with consumer, Producer(namesrv=cluster.namesrv) as producer:
        replies = await asyncio.gather(
            *(producer.request(Message(topic, body), timeout_ms=PATIENCE_MS) for body in bodies)
        )
        assert not len(producer._instance.answers)  # type: ignore[union-attr]  # it runs

    assert [reply.body for reply in replies] == [body.upper() for body in bodies]


async def test_blocking_clients_request_and_reply(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=1)

    def work() -> bytes:
        consumer = BlockingPushConsumer(
            group, on_message=shout_from_a_thread, namesrv=cluster.namesrv, consume_from="first"
        )
        consumer.subscribe(topic)
        with consumer, BlockingProducer(namesrv=cluster.namesrv) as producer:
            return producer.request(Message(topic, b"hello"), timeout_ms=PATIENCE_MS).body

    assert await blocking(work) == b"HELLO"


async def test_a_program_replies_later_with_a_producer(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    consumer.subscribe(topic)
    async with (
        consumer,
        Producer("asking", namesrv=cluster.namesrv) as producer,
        Producer("replying", namesrv=cluster.namesrv) as replying,
    ):
        asking = asyncio.create_task(
            producer.request(Message(topic, b"hello"), timeout_ms=PATIENCE_MS)
        )
        await seen.count(1)
        (request,) = seen.messages
        result = await replying.reply(request, b"x" * 100_000)

        assert request.wants_reply
        assert (await asking).body == b"x" * 100_000
        assert (await asking).system_flag & 1  # compressed on its way
        assert result.queue.topic == "DefaultCluster_REPLY_TOPIC"
        # The broker has stored it, too.
        stored = await cluster.rpc.call(
            cluster.address(),
            ReadMessage(physical_offset=Long(int(result.offset_message_id[-16:], 16))),
        )
        assert stored.body

        with pytest.raises(ReplyNotDeliveredError, match=r"not the first one"):
            await replying.reply(request, b"again")


async def test_the_replier_learns_that_the_requester_waits_no_more(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    consumer.subscribe(topic)
    async with consumer, Producer("replying", namesrv=cluster.namesrv) as replying:
        async with Producer("asking", namesrv=cluster.namesrv) as producer:
            # Long enough for the first look-ups.
            with pytest.raises(RequestTimeoutError, match=r"within 1000 ms; a broker has stored"):
                await producer.request(Message(topic, b"hello"), timeout_ms=1000)
            await seen.count(1)
            with pytest.raises(ReplyNotDeliveredError, match=r"too late"):
                await replying.reply(seen.messages[0], b"late")

        with pytest.raises(ReplyNotDeliveredError, match=r"channel of <.*> not found"):
            await replying.reply(seen.messages[0], b"too late for anybody")


async def test_a_message_is_done_although_its_reply_finds_nobody(
    cluster: Cluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.make_topic(topic, queues=1)
    seen = Seen()
    asked = asyncio.Event()

    async def late(message: ReceivedMessage) -> Reply:
        seen.add(message)
        if message.wants_reply:
            await asked.wait()
        return Reply(b"late")

    consumer = consumer_of(cluster, group, on_message=late)
    consumer.subscribe(topic)
    with caplog.at_level(logging.WARNING, "orbitmq.client"):
        async with consumer:
            async with Producer(namesrv=cluster.namesrv) as producer:
                with pytest.raises(RequestTimeoutError):
                    await producer.request(Message(topic, b"asks"), timeout_ms=1000)
            asked.set()
            await until(lambda: "reply not delivered" in caplog.text)
            # Nobody waits for a reply to this one.
            await send(cluster, topic, b"plain")
            await seen.count(2)

    assert seen.bodies == [b"asks", b"plain"]
    assert caplog.text.count("reply not delivered") == 1


async def test_the_first_of_several_repliers_is_heard_and_the_others_are_logged_once(
    cluster: Cluster, topic: str, group: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    await cluster.make_topic(topic, queues=1)
    bodies = [b"request %d" % number for number in range(20)]
    replied = Seen()

    async def reply(message: ReceivedMessage) -> Reply:
        replied.add(message)
        return Reply(message.body.upper())

    consumers = [
        consumer_of(
            cluster, group, on_message=reply, message_model="BROADCASTING", instance_name=name,
            local_offset_dir=tmp_path,
        )
        for name in ("one", "two")
    ]  # fmt: skip
    for consumer in consumers:
        consumer.subscribe(topic)
    with caplog.at_level(logging.WARNING, "orbitmq.client"):
        async with consumers[0], consumers[1], Producer(namesrv=cluster.namesrv) as producer:
            replies = [
                await producer.request(Message(topic, body), timeout_ms=PATIENCE_MS)
                for body in bodies
            ]
            await replied.count(2 * len(bodies))

    assert [reply.body for reply in replies] == [body.upper() for body in bodies]
    # Each consumer logs one, and counts the others.
    assert 1 <= caplog.text.count("reply not delivered times=1 ") <= 2
    assert caplog.text.count("reply not delivered") <= 2


async def test_a_request_that_fails_at_first_is_replied_to_by_its_retry(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.stop_broker()
    await cluster.start_broker(messageDelayLevel="0s 0s 0s 0s")
    await cluster.make_topic(topic, queues=1)
    attempts = Seen()

    async def second_time(message: ReceivedMessage) -> Reply:
        attempts.add(message)
        if message.reconsume_times == 0:
            raise ValueError("not yet")
        return Reply(message.body.upper())

    consumer = consumer_of(cluster, group, on_message=second_time)
    consumer.subscribe(topic)
    async with consumer, Producer(namesrv=cluster.namesrv) as producer:
        reply = await producer.request(Message(topic, b"hello"), timeout_ms=PATIENCE_MS)

    assert reply.body == b"HELLO"
    assert [message.wants_reply for message in attempts.messages] == [True, True]


async def test_a_request_that_no_broker_acknowledges_ends_with_its_own_time() -> None:
    async with scripted_cluster(ScriptedBroker("a", silent)) as cluster:
        clock = ManualClock()
        async with Producer(namesrv=cluster.namesrv, clock=clock) as producer:
            asking = asyncio.create_task(producer.request(Message("t", b"x"), timeout_ms=150))
            await until(lambda: len(cluster["a"].sends) == 1)
            await clock.advance(200)

            with pytest.raises(RequestTimeoutError, match="no broker has acknowledged it") as error:
                await asking
            assert not error.value.sent


async def test_a_request_may_wait_for_ever(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=1)
    consumer = consumer_of(cluster, group, on_message=shout)
    consumer.subscribe(topic)
    async with consumer, Producer(namesrv=cluster.namesrv) as producer:
        reply = await producer.request(Message(topic, b"hello"), timeout_ms=math.inf)

    assert reply.properties[property_names.REPLY_TTL_MS] == str(2**63 - 1)


async def test_a_reply_reaches_a_requester_that_knew_only_another_broker(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.start_broker("broker-b")
    await cluster.make_topic(topic, queues=1, broker="broker-a")
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    consumer.subscribe(topic)
    async with (
        consumer,
        Producer("asking", namesrv=cluster.namesrv) as producer,
        Producer("replying", namesrv=cluster.namesrv) as replying,
    ):
        asking = asyncio.create_task(
            producer.request(Message(topic, b"hello"), timeout_ms=PATIENCE_MS)
        )
        await seen.count(1)
        # As Java's clients, which choose any broker of the cluster.
        members = cluster.brokers["broker-b"].tables.members
        assert members.find_client(producer._instance.client_id) is not None  # type: ignore[union-attr]  # it runs
        # The broker that delivered the request forgets the requester.
        client = cluster.brokers["broker-a"].tables.members.find_client(
            producer._instance.client_id  # type: ignore[union-attr]  # it runs
        )
        assert client is not None
        cluster.brokers["broker-a"].tables.members.connection_lost(client.connection)

        result = await replying.reply(seen.messages[0], b"by the other")

        assert (await asking).body == b"by the other"
        assert result.queue.broker_name == "broker-b"


async def test_a_requester_is_found_again_after_its_connections_broke(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    consumer = consumer_of(cluster, group, on_message=shout)
    consumer.subscribe(topic)
    async with consumer, Producer(namesrv=cluster.namesrv) as producer:
        for _ in range(3):
            reply = await producer.request(Message(topic, b"hello"), timeout_ms=PATIENCE_MS)
            assert reply.body == b"HELLO"
            await cluster.cut_connections()


async def test_replies_are_pushed_but_not_stored_when_that_is_off(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.stop_broker()
    await cluster.start_broker(storeReplyMessageEnable="false")
    await cluster.make_topic(topic, queues=1)
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    consumer.subscribe(topic)
    async with (
        consumer,
        Producer("asking", namesrv=cluster.namesrv) as producer,
        Producer("replying", namesrv=cluster.namesrv) as replying,
    ):
        asking = asyncio.create_task(
            producer.request(Message(topic, b"hello"), timeout_ms=PATIENCE_MS)
        )
        await seen.count(1)
        result = await replying.reply(seen.messages[0], b"yes")

        assert (await asking).body == b"yes"
    assert result.offset_message_id == "0"


async def test_tenants_of_a_cluster_request_and_reply(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(f"tenant%{topic}", queues=1)
    consumer = consumer_of(cluster, group, on_message=shout, namespace="tenant")
    consumer.subscribe(topic)
    async with consumer, Producer(namesrv=cluster.namesrv, namespace="tenant") as producer:
        reply = await producer.request(Message(topic, b"hello"), timeout_ms=PATIENCE_MS)

    assert reply.body == b"HELLO"


@pytest.mark.parametrize(
    ("reply", "named"),
    [(b"", "empty body"), (b"x" * 5_000_000, "5000000 bytes")],
)
async def test_an_invalid_reply_is_refused_before_it_is_sent(
    cluster: Cluster, topic: str, group: str, reply: bytes, named: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    consumer.subscribe(topic)
    async with consumer, Producer(namesrv=cluster.namesrv) as producer:
        asking = asyncio.create_task(
            producer.request(Message(topic, b"hello"), timeout_ms=PATIENCE_MS)
        )
        await seen.count(1)

        with pytest.raises(MessageError, match=named):
            await producer.reply(seen.messages[0], reply)

        await producer.reply(seen.messages[0], b"valid")
        assert (await asking).body == b"valid"


async def test_a_message_that_is_no_request_cannot_be_replied_to(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, b"plain")
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    consumer.subscribe(topic)
    async with consumer, Producer(namesrv=cluster.namesrv) as producer:
        await seen.count(1)

        assert not seen.messages[0].wants_reply
        with pytest.raises(MessageError, match=r"no REPLY_TO_CLIENT, CORRELATION_ID"):
            await producer.reply(seen.messages[0], b"why")


async def test_a_request_ends_when_its_producer_stops(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    consumer.subscribe(topic)
    async with consumer:
        async with Producer(namesrv=cluster.namesrv) as producer:
            asking = asyncio.create_task(
                producer.request(Message(topic, b"hello"), timeout_ms=PATIENCE_MS)
            )
            await seen.count(1)
        with pytest.raises(StateError, match="stopped before the reply"):
            await asking


async def test_bad_requests_are_refused(cluster: Cluster, topic: str) -> None:
    not_a_message: Any = [Message(topic, b"in a list")]
    async with Producer(namesrv=cluster.namesrv, template_queues=0) as producer:
        with pytest.raises(MessageTypeError, match="the request"):
            await producer.request(not_a_message)
        with pytest.raises(MessageError, match="timeout_ms"):
            await producer.request(Message(topic, b"x"), timeout_ms=0)
        with pytest.raises(MessageError, match="cannot be delayed"):
            await producer.request(Message(topic, b"x", delay_level=1))
        with pytest.raises(MessageTypeError, match="of type NoneType"):
            await producer.reply(None, b"x")  # type: ignore[arg-type]  # refused
        with pytest.raises(RouteNotFoundError):
            await producer.request(Message(topic, b"x"), timeout_ms=PATIENCE_MS)

        assert not len(producer._instance.answers)  # type: ignore[union-attr]  # it runs


async def test_a_listener_of_lists_cannot_return_a_reply(
    cluster: Cluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.make_topic(topic, queues=1)
    consumer = consumer_of(cluster, group, on_messages=lambda _: Reply(b"to whom"))
    consumer.subscribe(topic)
    async with consumer:
        await send(cluster, topic, b"one")
        await until(lambda: "a Reply to a list of messages" in caplog.text)
