"""A producer against a broker over sockets: every form of send, and what is refused."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from orbitmq import java_json
from orbitmq.client.aio.sending.producer import Producer, inner_producer
from orbitmq.client.core.consuming.received_message import ReceivedMessage, received_messages
from orbitmq.client.core.sending.queue_selectors import by_hash
from orbitmq.client.core.sending.send_results import Durability, SendResult, SendStatus
from orbitmq.errors import (
    MessageError,
    MessageTypeError,
    NameServersUnreachableError,
    NoQueueError,
    RouteNotFoundError,
    StateError,
)
from orbitmq.model import property_names
from orbitmq.model.groups import GroupConfig
from orbitmq.model.messages import Message
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import request
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.clients import ListProducerConnections
from orbitmq.protocol.requests.groups import UpdateGroup
from orbitmq.protocol.requests.pulling import PullFlag, PullMessages
from tests.integration.client.conftest import WAIT_SECONDS, Cluster
from tests.waiting import until

LARGE = "ungefähr so groß, " * 3000


async def stored_in(cluster: Cluster, queue: MessageQueue) -> list[ReceivedMessage]:
    """Read all messages of a queue, as a consumer would get them."""
    header = PullMessages(
        consumer_group="reader",
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=Long(0),
        messages_max=32,
        system_flag=PullFlag.SUBSCRIPTION,
        commit_offset=Long(0),
        suspend_timeout_ms=Long(0),
        expression="*",
        subscription_version=Long(0),
    )
    reply = await cluster.rpc.invoke(cluster.address(queue.broker_name), request(header))
    if reply.code != ResponseCode.SUCCESS:
        return []
    return received_messages(reply.body, queue.broker_name)


async def all_stored(cluster: Cluster, queues: Sequence[MessageQueue]) -> list[ReceivedMessage]:
    return [message for queue in queues for message in await stored_in(cluster, queue)]


# --- forms of send --------------------------------------------------------------------------


async def test_a_message_arrives_with_everything_it_was_given(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    message = Message(
        topic,
        "größer",
        tags="blau",
        keys=["a1", "b2"],
        flag=-7,
        properties={"farbe": "grün"},
        sharding_key="s",
    )

    async with Producer(group, namesrv=cluster.namesrv) as producer:
        result = await producer.send(message)

    assert result.status is SendStatus.OK
    assert result.queue == MessageQueue(broker_name="broker-a", queue_id=0, topic=topic)
    assert result.queue_offset == 0
    assert result.transaction_id == result.message_id
    assert (result.region, result.trace_on) == ("DefaultRegion", True)
    [found] = await stored_in(cluster, result.queue)
    assert found.body == "größer".encode()
    assert (found.tags, found.keys, found.flag) == ("blau", ("a1", "b2"), -7)
    assert found.properties["farbe"] == "grün"
    assert found.properties[property_names.SHARDING_KEY] == "s"
    assert found.message_id == result.message_id
    assert found.offset_message_id == result.offset_message_id


async def test_messages_go_round_all_queues(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=4)

    async with Producer(group, namesrv=cluster.namesrv) as producer:
        results = [await producer.send(Message(topic, b"x")) for _ in range(8)]

    queue_ids = [result.queue.queue_id for result in results]
    assert sorted(queue_ids) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [(later - sooner) % 4 for sooner, later in itertools.pairwise(queue_ids)] == [1] * 7


async def test_a_batch_is_stored_in_one_queue_with_an_id_each(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic)
    batch = [Message(topic, f"number {n}", tags=f"t{n}") for n in range(3)]

    async with Producer(group, namesrv=cluster.namesrv) as producer:
        result = await producer.send(batch)
        again = await producer.send_async(tuple(batch), queue=result.queue)

    found = await stored_in(cluster, result.queue)
    assert [message.body for message in found] == [b"number 0", b"number 1", b"number 2"] * 2
    assert [message.tags for message in found[:3]] == ["t0", "t1", "t2"]
    assert result.message_id.split(",") == [message.message_id for message in found[:3]]
    assert result.offset_message_id.split(",") == [
        message.offset_message_id for message in found[:3]
    ]
    assert again.queue_offset == 3


async def test_a_message_goes_to_the_chosen_queue(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=8)

    async with Producer(group, namesrv=cluster.namesrv) as producer:
        queues = await producer.queues(topic)
        chosen = [await producer.send(Message(topic, b"x"), queue=queues[5]) for _ in range(3)]
        later = await producer.send_async(Message(topic, b"x"), queue=queues[5])
        await producer.send_oneway(Message(topic, b"x"), queue=queues[5])
        hashed = await producer.send(Message(topic, b"x"), selector=by_hash, argument="order-1")
        last = await producer.send(
            [Message(topic, b"x")], selector=lambda all_, _, n: all_[n], argument=-1
        )

    assert [queue.queue_id for queue in queues] == list(range(8))
    assert {result.queue for result in [*chosen, later]} == {queues[5]}
    # Java: abs("order-1".hashCode() % 8).
    assert hashed.queue == queues[6]
    assert last.queue == queues[7]
    assert len(await stored_in(cluster, queues[5])) == 5


async def test_a_send_calls_one_of_its_callbacks_and_ends_its_future(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic)
    good: list[SendResult] = []
    bad: list[BaseException] = []

    async with Producer(group, namesrv=cluster.namesrv) as producer:
        first = producer.send_async(
            Message(topic, b"x"), on_success=good.append, on_failure=bad.append
        )
        wrong = producer.send_async(
            Message(topic, b""), on_success=good.append, on_failure=bad.append
        )
        result = await first
        with pytest.raises(MessageError, match="empty body"):
            await wrong

    assert good == [result]
    assert [type(error) for error in bad] == [MessageError]


async def test_callbacks_that_fail_are_only_logged(
    cluster: Cluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.make_topic(topic)

    def broken(_: object) -> None:
        raise ValueError("broken callback")

    async with Producer(group, namesrv=cluster.namesrv) as producer:
        assert (
            await producer.send_async(Message(topic, b"x"), on_success=broken)
        ).queue_offset == 0
        unheard = producer.send_async(Message(topic, b""), on_success=broken)

    assert unheard.done()
    assert [record.message.partition(" reason=")[0] for record in caplog.records] == [
        "callback of a send failed",
        "send failed, and there is no on_failure",
    ]


async def test_one_way_messages_arrive_without_a_reply(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    queue = MessageQueue(broker_name="broker-a", queue_id=0, topic=topic)

    async with Producer(group, namesrv=cluster.namesrv) as producer:
        await producer.send_oneway(Message(topic, b"first"))
        await producer.send_oneway([Message(topic, b"second"), Message(topic, b"third")])
        await producer.send(Message(topic, b"last"))

    bodies = [message.body for message in await stored_in(cluster, queue)]
    assert bodies == [b"first", b"second", b"third", b"last"]


async def test_many_sends_at_once_all_arrive(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=4)

    async with Producer(group, namesrv=cluster.namesrv) as producer:
        results = await asyncio.gather(
            *(producer.send(Message(topic, f"{n}")) for n in range(100)),
            *(producer.send_async(Message(topic, f"{n}")) for n in range(100, 120)),
        )

    found = await all_stored(cluster, sorted({result.queue for result in results}))
    assert {message.message_id for message in found} == {result.message_id for result in results}
    assert {message.body for message in found} == {b"%d" % n for n in range(120)}


async def test_a_stop_waits_for_sends_in_flight(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic)

    async with Producer(group, namesrv=cluster.namesrv) as producer:
        first = producer.send_async(Message(topic, b"x"))
        large = producer.send_async(Message(topic, LARGE))
        await producer.stop()

    assert first.done()
    assert large.done()
    assert {first.result().status, large.result().status} == {SendStatus.OK}


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
@pytest.mark.parametrize("body", [LARGE, "x" * 5000, "small"])
async def test_large_bodies_are_compressed_and_read_back_unchanged(
    cluster: Cluster, topic: str, group: str, kind: str, body: str
) -> None:
    await cluster.make_topic(topic)

    async with Producer(group, namesrv=cluster.namesrv, compress_kind=kind) as producer:
        result = await producer.send(Message(topic, body))

    [found] = await stored_in(cluster, result.queue)
    assert found.body == body.encode()
    assert (found.size < len(body)) == (len(body) > 4096)


async def test_small_messages_are_sent_together_with_the_option(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic)

    async with Producer(
        group, namesrv=cluster.namesrv, accumulate=True, accumulate_delay_ms=500
    ) as producer:
        results = await asyncio.gather(*(producer.send(Message(topic, f"{n}")) for n in range(5)))

    assert len({result.queue for result in results}) == 1
    found = await stored_in(cluster, results[0].queue)
    assert [message.message_id for message in found] == [result.message_id for result in results]
    assert [result.queue_offset for result in results] == [0, 1, 2, 3, 4]


# --- names ----------------------------------------------------------------------------------


async def test_a_namespace_is_prefixed_to_topic_and_group(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(f"tenant%{topic}", queues=1)

    async with Producer(group, namesrv=cluster.namesrv, namespace="tenant") as producer:
        result = await producer.send(Message(topic, b"x"))
        [queue] = await producer.queues(topic)
        again = await producer.send(Message(topic, b"x"), queue=queue)
        wrapped = MessageQueue(broker_name="broker-a", queue_id=0, topic=f"tenant%{topic}")
        third = await producer.send(Message(topic, b"x"), queue=wrapped)
        assert producer.group == f"tenant%{group}"

    assert result.queue == queue == again.queue == third.queue
    assert queue.topic == topic
    found = await stored_in(cluster, wrapped)
    assert len(found) == 3
    assert found[0].properties[property_names.INSTANCE_ID] == "tenant"


async def test_a_missing_topic_is_created_by_the_first_send(
    cluster: Cluster, topic: str, group: str
) -> None:
    async with Producer(group, namesrv=cluster.namesrv, template_queues=2) as producer:
        results = [await producer.send(Message(topic, b"x")) for _ in range(4)]

    assert sorted(result.queue.queue_id for result in results) == [0, 0, 1, 1]
    config = cluster.brokers["broker-a"].topics.get(topic)
    assert config is not None
    assert config.write_queues == 2


async def test_a_topic_that_no_broker_creates_is_an_error_with_a_hint(
    cluster: Cluster, topic: str, group: str
) -> None:
    async with Producer(group, namesrv=cluster.namesrv, template_queues=0) as producer:
        with pytest.raises(RouteNotFoundError, match=f"{topic}.*create the topic") as raised:
            await producer.send(Message(topic, b"x"))
        with pytest.raises(RouteNotFoundError):
            await producer.send_async(Message(topic, b"x"))
        with pytest.raises(RouteNotFoundError):
            await producer.send_oneway(Message(topic, b"x"))
        with pytest.raises(RouteNotFoundError):
            await producer.queues(topic)

    assert cluster.namesrv in str(raised.value)


# --- the lifecycle of a producer -----------------------------------------------------------------


async def test_a_producer_is_known_to_brokers_while_it_runs(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic)
    known = cluster.brokers["broker-a"].tables.members.producers

    async with Producer(group, namesrv=cluster.namesrv) as producer:
        await producer.send(Message(topic, b"x"))
        await until(lambda: group in known)
        client_id = producer.client_id
        reply = await cluster.rpc.call(
            cluster.address(), ListProducerConnections(producer_group=group)
        )

    assert client_id in reply.body.decode()
    assert group not in known


async def test_calls_in_a_wrong_state_name_the_state(
    cluster: Cluster, topic: str, group: str
) -> None:
    producer = Producer(group, namesrv=cluster.namesrv)
    message = Message(topic, b"x")

    with pytest.raises(StateError, match=rf"producer of group '{group}' is not started.*start\(\)"):
        await producer.send(message)
    with pytest.raises(StateError, match="not started"):
        await producer.send_async(message)
    with pytest.raises(StateError, match="not started"):
        await producer.send_oneway(message)
    await producer.start()
    with pytest.raises(StateError, match="already started"):
        await producer.start()
    await producer.stop()
    await producer.stop()
    for use in (producer.send, producer.send_async, producer.send_oneway):
        with pytest.raises(StateError, match=r"is stopped.*make a new one"):
            await use(message)
    with pytest.raises(StateError, match="is stopped"):
        await producer.start()


async def test_a_producer_that_was_never_started_can_be_stopped(group: str) -> None:
    await Producer(group, namesrv="127.0.0.1:1").stop()


async def test_a_group_joins_an_instance_only_once(cluster: Cluster, group: str) -> None:
    options: dict[str, Any] = {"namesrv": cluster.namesrv, "instance_name": "shared"}
    async with Producer(group, **options), Producer(f"{group}-2", **options):
        again = Producer(group, **options)
        with pytest.raises(StateError, match=f"already has a producer of the group '{group}'"):
            await again.start()
        with pytest.raises(StateError, match="is stopped"):
            await again.send(Message("t", b"x"))


async def test_the_inner_producer_of_an_instance_sends_like_any_other(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    await cluster.make_topic(f"%RETRY%{group}", queues=1)
    await cluster.rpc.call(
        cluster.address(), UpdateGroup(), java_json.encode(GroupConfig(name=group))
    )
    retried = Message(f"%RETRY%{group}", b"again").with_reserved(
        {property_names.RETRIES: "3", property_names.RETRIES_MAX: "16"}
    )

    async with Producer(group, namesrv=cluster.namesrv) as producer:
        instance = producer._instance
        assert instance is not None
        inner = await instance.inner_producer(inner_producer)
        assert inner is await instance.inner_producer(inner_producer)
        assert inner.group == "CLIENT_INNER_PRODUCER"
        assert (await inner.send(Message(topic, b"x"))).status is SendStatus.OK
        result = await inner.send(retried)

    [found] = await stored_in(cluster, result.queue)
    assert found.reconsume_times == 3
    assert property_names.RETRIES not in found.properties


# --- refusals ------------------------------------------------------------------------


async def test_a_wrong_queue_is_refused_and_the_error_lists_the_right_ones(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=2)
    message = Message(topic, b"x")
    wrong: Any = 1

    async with Producer(group, namesrv=cluster.namesrv) as producer:
        for queue, named in [
            (MessageQueue(broker_name="broker-a", queue_id=9, topic=topic), "broker-a:9 takes no"),
            (MessageQueue(broker_name="nobody", queue_id=0, topic=topic), "nobody:0"),
            (MessageQueue(broker_name="broker-a", queue_id=0, topic="other"), "of topic 'other'"),
        ]:
            with pytest.raises(NoQueueError, match=f"{named}.*broker-a:0, broker-a:1"):
                await producer.send(message, queue=queue)
            with pytest.raises(NoQueueError, match=named):
                await producer.send_async(message, selector=lambda *_, it=queue: it)
        with pytest.raises(MessageTypeError, match=r"queue.*MessageQueue"):
            await producer.send(message, queue=wrong)
        with pytest.raises(MessageTypeError, match="the result of the selector"):
            await producer.send(message, selector=lambda *_: wrong)
        queues = await producer.queues(topic)
        with pytest.raises(MessageError, match="both a queue and a selector"):
            await producer.send(message, queue=queues[0], selector=by_hash)
        with pytest.raises(MessageError, match="argument='order-1' without a selector"):
            await producer.send(message, argument="order-1")
        with pytest.raises(MessageError, match="without a selector"):
            await producer.send_oneway(message, argument="order-1")
        with pytest.raises(ZeroDivisionError):
            await producer.send(message, selector=lambda *_: 1 / 0)  # type: ignore[arg-type]  # wrong on purpose


async def test_a_queue_added_later_is_found(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=1)
    added = MessageQueue(broker_name="broker-a", queue_id=3, topic=topic)

    async with Producer(group, namesrv=cluster.namesrv) as producer:
        await producer.send(Message(topic, b"x"))
        await cluster.make_topic(topic, queues=4)
        result = await producer.send(Message(topic, b"x"), queue=added)

    assert result.queue == added


async def test_a_name_server_that_does_not_listen_is_named_in_time(group: str, topic: str) -> None:
    async with (
        Producer(group, namesrv="127.0.0.1:1") as producer,
        asyncio.timeout(WAIT_SECONDS / 2),
    ):
        with pytest.raises(NameServersUnreachableError, match=r"127\.0\.0\.1:1.*namesrv"):
            await producer.send(Message(topic, b"x"))


@pytest.mark.parametrize(
    ("mode", "durability"),
    [("SYNC_FLUSH", Durability.DISK), ("ASYNC_FLUSH", Durability.MEMORY)],
)
async def test_our_broker_says_how_safe_a_message_is(
    cluster: Cluster, topic: str, mode: str, durability: Durability
) -> None:
    await cluster.stop_broker()
    await cluster.start_broker(flushDiskType=mode)
    await cluster.make_topic(topic)
    async with Producer("producers", namesrv=cluster.namesrv) as producer:
        one = await producer.send(Message(topic, "plain"))
        batch = await producer.send([Message(topic, "a"), Message(topic, "b")])
        special = await producer.send(Message(topic, "special", delay_level=1))

    assert {one.durability, batch.durability, special.durability} == {durability}
