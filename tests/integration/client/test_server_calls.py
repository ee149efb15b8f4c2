"""Requests from brokers to their clients, over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from orbitmq import java_json
from orbitmq.client.aio.instance.client_instance import ClientInstance
from orbitmq.java_json import ObjectKeyed
from orbitmq.model.queues import MessageQueue
from orbitmq.model.versions import OUR_VERSION, version_name
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command, request
from orbitmq.protocol.headers import Header, Long
from orbitmq.protocol.requests.answers import PushAnswer
from orbitmq.protocol.requests.clients import NotifyMembersChanged
from orbitmq.protocol.requests.offsets import QueueOffsetTable, ResetConsumerOffsets
from orbitmq.protocol.requests.relays import (
    ConsumeDirectly,
    ConsumerOffsets,
    DirectResult,
    GetConsumerOffsets,
    GetGroupOffsets,
    GetRunningConsumer,
    RunningConsumer,
)
from orbitmq.protocol.requests.sending import SendReply
from orbitmq.protocol.requests.transactions import CheckTransaction
from orbitmq.record.decode import decode_records
from orbitmq.record.properties import encode_properties
from orbitmq.transport.connection import Connection
from tests.integration.broker.conftest import pull_header, send_header
from tests.integration.client.conftest import Cluster
from tests.integration.client.members import NotingConsumer, NotingProducer, instance_of
from tests.integration.conftest import PATIENCE_MS
from tests.waiting import until

ID = "127.0.0.1@test"


@dataclass
class Scene:
    """A consumer and a producer of one client, and the broker that knows them."""

    cluster: Cluster
    instance: ClientInstance
    consumer: NotingConsumer
    producer: NotingProducer
    topic: str
    group: str

    async def operator(self, header: Header, body: bytes = b"") -> Command:
        """Ask the broker, as an operator's tool does."""
        return await self.cluster.rpc.invoke(self.cluster.address(), request(header, body))

    async def from_broker(self, header: Header, body: bytes = b"") -> Command:
        """Ask the client on its connection to the broker, as the broker does."""
        asked = request(header, body)
        return await self._client().ask(asked, PATIENCE_MS)

    def tell_from_broker(self, header: Header, body: bytes = b"") -> None:
        self._client().call_oneway(request(header, body))

    def _client(self) -> Connection:
        found = self.cluster.brokers["broker-a"].tables.members.find_consumer(self.group, ID)
        assert found is not None
        return found.connection

    async def stored(self, body: bytes, **properties: Any) -> tuple[SendReply, bytes]:
        """Send a message, and read its record back."""
        header = send_header(self.topic, **properties)
        reply = await self.cluster.rpc.call(self.cluster.address(), header, body)
        sent = SendReply.decode(reply.fields)
        pulled = await self.operator(pull_header(self.topic, sent.queue_offset, hold_ms=20_000))
        return sent, pulled.body


@pytest.fixture
async def scene(cluster: Cluster, topic: str, group: str) -> AsyncIterator[Scene]:
    await cluster.make_topic(topic, queues=1)
    consumer, producer = NotingConsumer(group, [topic]), NotingProducer("producers", [topic])
    async with instance_of(cluster.namesrv) as instance:
        await instance.add_producer(producer)
        await instance.add_consumer(consumer)
        yield Scene(cluster, instance, consumer, producer, topic, group)


def queue_of(scene: Scene) -> MessageQueue:
    return MessageQueue(broker_name="broker-a", queue_id=0, topic=scene.topic)


async def test_consumers_rebalance_when_members_join(scene: Scene) -> None:
    await until(lambda: scene.consumer.rebalances > 0)
    before = scene.consumer.rebalances

    async with instance_of(scene.cluster.namesrv, instance_name="second") as second:
        await second.add_consumer(NotingConsumer(scene.group, [scene.topic]))

        await until(lambda: scene.consumer.rebalances > before)


async def test_a_consumer_is_reset_to_other_offsets(scene: Scene) -> None:
    header = ResetConsumerOffsets(
        topic=scene.topic, group=scene.group, timestamp_ms=Long(0), force=True
    )
    body = java_json.encode(QueueOffsetTable(offsets=ObjectKeyed({queue_of(scene): 7})))
    elsewhere = ResetConsumerOffsets(
        topic=scene.topic, group="elsewhere", timestamp_ms=Long(0), force=True
    )

    scene.tell_from_broker(elsewhere, body)
    scene.tell_from_broker(header)
    scene.tell_from_broker(header, body)

    expected = [(scene.topic, {}), (scene.topic, {queue_of(scene): 7})]
    await until(lambda: scene.consumer.resets == expected)


async def test_an_operator_reads_the_progress_of_members(scene: Scene) -> None:
    scene.consumer.held = {queue_of(scene): 42}

    reply = await scene.operator(GetGroupOffsets(topic=scene.topic, group=scene.group))

    found = java_json.decode(reply.body, ConsumerOffsets)
    assert found.by_client == {ID: {queue_of(scene): 42}}


async def test_an_unknown_group_has_no_offsets(scene: Scene) -> None:
    reply = await scene.from_broker(GetConsumerOffsets(topic=scene.topic, group="elsewhere"))

    assert reply.code == ResponseCode.SUCCESS
    assert reply.body == b'{"consumerTable":{},"messageQueueTable":{}}'


@pytest.mark.parametrize("with_stacks", [True, False])
async def test_an_operator_asks_what_a_consumer_is_doing(
    scene: Scene, *, with_stacks: bool
) -> None:
    asked = GetRunningConsumer(consumer_group=scene.group, client_id=ID, with_stacks=with_stacks)

    reply = await scene.operator(asked)

    running = java_json.decode(reply.body, RunningConsumer)
    assert running.properties == {
        "PROP_NAMESERVER_ADDR": f"{scene.cluster.namesrv};",
        "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
        "PROP_CLIENT_VERSION": version_name(OUR_VERSION),
    }
    assert running.stacks == ("here" if with_stacks else None)
    assert [subscription.topic for subscription in running.subscriptions] == [scene.topic]


async def test_an_operator_makes_a_consumer_consume_a_message_now(scene: Scene) -> None:
    sent, record = await scene.stored(b"now")
    asked = ConsumeDirectly(
        consumer_group=scene.group, client_id=ID, message_id=sent.message_id, topic=scene.topic
    )

    reply = await scene.operator(asked)

    result = java_json.decode(reply.body, DirectResult)
    assert str(result.outcome) == "CR_SUCCESS"
    assert scene.consumer.records == [(record, "broker-a")]


async def test_a_consumer_without_a_listener_refuses_a_message(scene: Scene) -> None:
    scene.consumer.has_listener = False
    sent, _ = await scene.stored(b"now")
    asked = ConsumeDirectly(
        consumer_group=scene.group, client_id=ID, message_id=sent.message_id, topic=scene.topic
    )

    reply = await scene.operator(asked)

    remark = f"The Consumer Group <{scene.group}> not exist in this consumer"
    assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, remark)


@pytest.mark.parametrize(
    "header",
    [
        GetRunningConsumer(consumer_group="elsewhere", client_id=ID),
        ConsumeDirectly(consumer_group="elsewhere"),
    ],
)
async def test_an_unknown_group_is_an_error(scene: Scene, header: Header) -> None:
    reply = await scene.from_broker(header)

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark == "The Consumer Group <elsewhere> not exist in this consumer"


async def test_a_producer_is_asked_for_its_transaction(scene: Scene) -> None:
    _, record = await scene.stored(b"half", PGROUP="producers")
    _, of_another = await scene.stored(b"half", PGROUP="elsewhere")
    check = CheckTransaction(half_offset=Long(3), physical_offset=Long(5), message_id="m")

    for body in (b"", of_another, record):
        scene.tell_from_broker(check, body)

    await until(lambda: len(scene.producer.checks) == 1)
    address, received, half = scene.producer.checks[0]
    assert (address, received) == (scene.cluster.address(), check)
    assert decode_records(half)[0].body == b"half"


def answer(properties: str) -> PushAnswer:
    return PushAnswer(
        producer_group="producers",
        topic="DefaultCluster_REPLY_TOPIC",
        template_topic="TBW102",
        template_queues=4,
        queue_id=0,
        system_flag=0,
        born_timestamp_ms=Long(1),
        flag=0,
        properties=properties,
        born_host="127.0.0.1:1",
        store_host="127.0.0.1:2",
        store_timestamp_ms=Long(2),
    )


async def test_the_answer_to_a_message_reaches_the_caller(scene: Scene) -> None:
    awaited = scene.instance.answers.expect("c-1")
    header = answer(encode_properties({"CORRELATION_ID": "c-1"}).decode())

    reply = await scene.from_broker(header, b"yes")

    assert (reply.code, reply.body) == (ResponseCode.SUCCESS, b"")
    assert (await awaited).body == b"yes"
    # Nobody waits any more, which the replier should know.
    again = await scene.from_broker(header, b"again")
    assert again.code == ResponseCode.SYSTEM_ERROR
    assert "'c-1' came too late" in again.remark


async def test_an_answer_that_cannot_be_decoded_is_refused(scene: Scene) -> None:
    asked = request(answer(""))
    del asked.fields["bornHost"]

    reply = await scene._client().ask(asked, PATIENCE_MS)

    assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, "process reply message fail")


async def test_an_unknown_request_is_not_supported(scene: Scene) -> None:
    reply = await scene._client().ask(Command(code=RequestCode.SEND_MESSAGE), PATIENCE_MS)

    assert reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_a_notice_that_cannot_be_decoded_is_harmless(scene: Scene) -> None:
    notice = Command(code=NotifyMembersChanged.CODE)
    scene._client().call_oneway(notice)

    reply = await scene.from_broker(GetConsumerOffsets(topic=scene.topic, group=scene.group))
    assert reply.code == ResponseCode.SUCCESS
