"""Typed calls to brokers, over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from orbitmq.client.aio.instance.broker_calls import BrokerCalls, PullStatus
from orbitmq.client.aio.instance.client_instance import ClientInstance
from orbitmq.client.core.consuming.received_message import ReceivedMessage, received_messages
from orbitmq.errors import BrokerUnknownError, ProtocolError, RemoteError
from orbitmq.model.queues import MessageQueue
from orbitmq.model.subscriptions import SQL92, Subscription
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.requests.pulling import PullMessages
from orbitmq.protocol.requests.sending import SendReply
from orbitmq.record.decode import decode_records
from orbitmq.transport.connection import Connection
from orbitmq.transport.rpc_server import RpcServer
from tests.integration.broker.conftest import pull_header, send_header
from tests.integration.client.conftest import Cluster
from tests.integration.client.members import NotingConsumer, instance_of
from tests.integration.transport.serving import LOCAL

NOWHERE = MessageQueue(broker_name="broker-z", queue_id=0, topic="nowhere")


@dataclass
class Scene:
    cluster: Cluster
    instance: ClientInstance
    queue: MessageQueue
    group: str

    @property
    def brokers(self) -> BrokerCalls:
        return self.instance.brokers

    async def send(self, body: bytes = b"body", **properties: Any) -> SendReply:
        """Store a message, and wait until it can be read."""
        header = send_header(self.queue.topic, **properties)
        reply = await self.cluster.rpc.call(self.cluster.address(), header, body)
        sent = SendReply.decode(reply.fields)
        await self.instance.rpc.call(
            self.cluster.address(), pull_header(self.queue.topic, sent.queue_offset, hold_ms=20_000)
        )
        return sent


@pytest.fixture
async def scene(cluster: Cluster, topic: str, group: str) -> AsyncIterator[Scene]:
    await cluster.make_topic(topic, queues=1)
    async with instance_of(cluster.namesrv) as instance:
        await instance.add_consumer(NotingConsumer(group, [topic]))
        yield Scene(cluster, instance, (await instance.routes.reading(topic))[0], group)


# --- messages ---------------------------------------------------------------------------------


async def test_a_pull_says_how_it_ended(scene: Scene) -> None:
    await scene.send(b"one", TAGS="a")
    topic, address = scene.queue.topic, scene.cluster.address()

    found = await scene.brokers.pull(address, pull_header(topic, 0))
    assert (found.status, found.next_offset, found.min_offset, found.max_offset) == (
        PullStatus.FOUND,
        1,
        0,
        1,
    )
    assert found.suggested_broker_id == 0
    assert [message.body for message in received_messages(found.body, "broker-a")] == [b"one"]
    nothing_new = await scene.brokers.pull(address, pull_header(topic, 1))
    assert (nothing_new.status, nothing_new.body) == (PullStatus.NO_NEW, b"")
    no_match = await scene.brokers.pull(address, pull_header(topic, 0, expression="b"))
    assert (no_match.status, no_match.next_offset) == (PullStatus.NO_MATCH, 1)
    outside = await scene.brokers.pull(address, pull_header(topic, 9))
    assert (outside.status, outside.next_offset) == (PullStatus.OFFSET_ILLEGAL, 0)
    assert outside.max_offset == 1


async def test_a_pull_that_is_refused_is_an_error(scene: Scene) -> None:
    with pytest.raises(RemoteError) as refused:
        await scene.brokers.pull(scene.cluster.address(), pull_header("never-made"))

    assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    "fields", [{}, {"nextBeginOffset": "1", "minOffset": "x", "maxOffset": "1"}]
)
async def test_a_reply_to_a_pull_without_offsets_breaks_the_protocol(
    scene: Scene, fields: dict[str, str]
) -> None:
    def answer(_: Connection, request: Command) -> Command:
        reply = request.reply()
        reply.fields = fields
        return reply

    server = RpcServer({PullMessages.CODE: answer}, config=LOCAL)
    await server.start()

    with pytest.raises(ProtocolError, match="replied to a pull with the fields"):
        await scene.brokers.pull(f"127.0.0.1:{server.port}", pull_header("T"))

    await server.stop()


async def test_a_message_is_sent_back_and_found_by_id_and_key(scene: Scene) -> None:
    sent = await scene.send(b"failed", KEYS="k-1")
    record = await scene.brokers.view_message(sent.message_id)
    (message,) = received_messages(record, "broker-a")
    assert isinstance(message, ReceivedMessage)
    assert message.body == b"failed"

    await scene.brokers.send_back(message, scene.group, delay_level=1, retries_max=16)

    delayed = await scene.brokers.max_offset(
        MessageQueue(broker_name="broker-a", queue_id=0, topic="SCHEDULE_TOPIC_XXXX")
    )
    assert delayed == 1

    async def find(key: str) -> list[bytes]:
        records = await scene.brokers.query(
            scene.cluster.address(),
            scene.queue.topic,
            key,
            messages_max=5,
            begin_ms=0,
            end_ms=2**62,
        )
        return [found.body for found in decode_records(records)]

    assert await find("k-1") == [b"failed"]
    assert await find("k-2") == []


# --- offsets ----------------------------------------------------------------------------------


async def test_offsets_of_a_queue_and_of_a_group(scene: Scene) -> None:
    brokers, queue, group = scene.brokers, scene.queue, scene.group
    assert await brokers.oldest_ms(queue) is None
    for _ in range(3):
        await scene.send()

    assert (await brokers.min_offset(queue), await brokers.max_offset(queue)) == (0, 3)
    stored_ms = await brokers.oldest_ms(queue)
    assert stored_ms is not None
    assert await brokers.offset_at(queue, stored_ms) == 0
    assert await brokers.offset_at(queue, stored_ms + 1_000_000) == 3

    await brokers.commit_offset(queue, group, 2, oneway=False)
    assert await brokers.committed_offset(queue, group) == 2
    await brokers.commit_offset(queue, group, 3)
    # One-way: there is no reply, but the broker handles the next request after it.
    assert await brokers.committed_offset(queue, group) == 3


async def test_a_group_that_committed_nothing_starts_a_short_queue_at_its_beginning(
    scene: Scene,
) -> None:
    queue = scene.queue
    missing = MessageQueue(topic=queue.topic, broker_name=queue.broker_name, queue_id=99)
    assert await scene.brokers.committed_offset(missing, "never-seen") is None
    assert await scene.brokers.committed_offset(queue, "never-seen") == 0

    await scene.send()

    assert await scene.brokers.committed_offset(queue, "never-seen") == 0


# --- groups -----------------------------------------------------------------------------------


async def test_a_queue_is_locked_for_one_client_at_a_time(scene: Scene) -> None:
    lock, unlock = scene.brokers.lock, scene.brokers.unlock
    mine, other = (scene.group, scene.instance.client_id), (scene.group, "other")

    assert await lock("broker-a", *mine, [scene.queue]) == {scene.queue}
    assert await lock("broker-a", *other, [scene.queue]) == set()
    await unlock("broker-a", *mine, [scene.queue])
    assert await lock("broker-a", *other, [scene.queue]) == {scene.queue}
    await unlock("broker-a", *other, [scene.queue], oneway=True)
    assert await lock("broker-a", *mine, [scene.queue]) == {scene.queue}


async def test_a_filter_is_checked_by_a_broker_of_the_topic(scene: Scene) -> None:
    def sql(expression: str, topic: str = scene.queue.topic) -> Subscription:
        return Subscription(topic=topic, expression=expression, expression_type=SQL92)

    await scene.brokers.check_subscription(scene.group, sql("a > 3"))
    with pytest.raises(RemoteError) as refused:
        await scene.brokers.check_subscription(scene.group, sql("a >"))
    assert refused.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    # Nothing checks the filter of a topic that does not exist yet.
    await scene.brokers.check_subscription(scene.group, sql("a >", "later"))


async def test_members_of_a_group_are_known_while_they_stay(scene: Scene) -> None:
    assert await scene.brokers.group_members(scene.queue.topic, scene.group) == ["127.0.0.1@test"]

    await scene.brokers.unregister(
        scene.cluster.address(), "127.0.0.1@test", consumer_group=scene.group
    )

    with pytest.raises(RemoteError):
        await scene.brokers.group_members(scene.queue.topic, scene.group)


# --- unknown brokers ---------------------------------------------------------------


async def test_a_broker_without_a_route_is_named(scene: Scene) -> None:
    elsewhere = MessageQueue(broker_name="broker-z", queue_id=0, topic=scene.queue.topic)
    unknown = pytest.raises(BrokerUnknownError, match=r"'broker-z'.*it is down, or has left")

    with unknown:
        await scene.brokers.max_offset(elsewhere)
    with unknown:
        await scene.brokers.committed_offset(elsewhere, scene.group)
    with unknown:
        await scene.brokers.lock("broker-z", scene.group, "c", [elsewhere])


async def test_a_queue_of_a_topic_not_looked_up_before_is_found(scene: Scene, topic: str) -> None:
    async with instance_of(scene.cluster.namesrv, instance_name="fresh") as fresh:
        assert await fresh.brokers.max_offset(scene.queue) == 0
        assert await fresh.brokers.group_members(topic, scene.group) == ["127.0.0.1@test"]
    async with instance_of(scene.cluster.namesrv, instance_name="fresh") as fresh:
        assert await fresh.brokers.committed_offset(scene.queue, scene.group) == 0


async def test_the_vip_channel_is_two_ports_below(cluster: Cluster, topic: str) -> None:
    await cluster.make_topic(topic, queues=1)
    async with instance_of(cluster.namesrv, vip_channel=True) as instance:
        queue = (await instance.routes.reading(topic))[0]

        assert await instance.brokers.max_offset(queue) == 0

        host, _, port = cluster.address().rpartition(":")
        assert instance.brokers.sending_address(cluster.address()) == f"{host}:{int(port) - 2}"
        assert instance.brokers.sending_address("[::1]:10911") == "[::1]:10909"
        assert instance.rpc.connected >= {f"{host}:{int(port) - 2}"}
