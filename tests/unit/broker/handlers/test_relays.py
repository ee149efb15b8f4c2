"""Requests relayed to consumers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitmq import java_json
from orbitmq.broker.handlers.relays import RelayRequests
from orbitmq.disk import off_loop
from orbitmq.errors import RequestRefusedError
from orbitmq.java_json import ObjectKeyed
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import request
from orbitmq.protocol.requests.relays import (
    ConsumeDirectly,
    ConsumerOffsets,
    GetGroupOffsets,
    GetRunningConsumer,
)
from tests.unit.broker.groups.clients import consumer, heartbeat, new_connection, subscription
from tests.unit.broker.parts import BrokerParts, broker_parts
from tests.unit.store.stores import message
from tests.unit.transport.pairs import Parts, connected

TOOL = new_connection()
BODY = heartbeat("id", consumer("g", subscription("orders")))
QUEUE = MessageQueue(broker_name="b", queue_id=0, topic="orders")


def _relays(parts: BrokerParts) -> RelayRequests:
    return RelayRequests(
        broker_name=lambda: "b",
        store=parts.store,
        topics=parts.topics,
        groups=parts.groups,
        members=parts.members,
    )


async def test_the_running_state_of_a_consumer_is_relayed(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts, connected(Parts()) as (connection, peer):
        parts.join(BODY, connection=connection)
        asked = request(GetRunningConsumer(consumer_group="g", client_id="id", with_stacks=True))
        asked.opaque = 77

        answering = asyncio.create_task(_relays(parts).show_running(TOOL, asked))
        question = await peer.read()
        answer = question.reply(remark="fine", body=b"{}")
        answer.fields = {"more": "1"}
        await peer.send(answer)
        reply = await answering

        assert question.code == RequestCode.GET_CONSUMER_RUNNING_INFO
        assert question.fields == {
            "consumerGroup": "g",
            "clientId": "id",
            "jstackEnable": "true",
        }
        assert (reply.opaque, reply.remark, reply.body) == (77, "fine", b"{}")
        assert reply.fields == {"more": "1"}


async def test_a_consumer_gets_the_record_with_the_given_id(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts, connected(Parts()) as (connection, peer):
        await parts.make_topic()
        await parts.make_group()
        parts.join(BODY, connection=connection)
        receipt = await off_loop(parts.store.put, message(b"again"))
        asked = request(
            ConsumeDirectly(
                consumer_group="g", client_id="id", message_id=receipt.message_id, topic="orders"
            )
        )

        answering = asyncio.create_task(_relays(parts).consume_directly(TOOL, asked))
        question = await peer.read()
        await peer.send(question.reply(body=b'{"consumeResult":"CR_SUCCESS"}'))
        reply = await answering

        assert question.body == parts.store.record_at(receipt.physical_offset)
        assert question.fields["brokerName"] == "b"
        assert (question.fields["topicSysFlag"], question.fields["groupSysFlag"]) == ("0", "0")
        assert reply.body == b'{"consumeResult":"CR_SUCCESS"}'


async def test_a_deleted_message_is_not_relayed(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        parts.join(BODY)
        gone = ConsumeDirectly(
            consumer_group="g", client_id="id", message_id="7F00000100002A9F00000000000F4240"
        )

        with pytest.raises(RequestRefusedError, match="no message at 1000000"):
            await _relays(parts).consume_directly(TOOL, request(gone))


async def test_a_consumer_that_does_not_answer_in_ten_seconds_is_a_timeout(
    tmp_path: Path,
) -> None:
    transport = Parts()
    async with broker_parts(tmp_path) as parts, connected(transport) as (connection, peer):
        parts.join(BODY, connection=connection)
        asked = request(GetRunningConsumer(consumer_group="g", client_id="id"))
        answering = asyncio.create_task(_relays(parts).show_running(TOOL, asked))
        await peer.read()

        await transport.clock.advance(10_001)

        with pytest.raises(RequestRefusedError, match="Timeout") as refused:
            await answering
        assert refused.value.code == ResponseCode.CONSUME_MSG_TIMEOUT


async def test_a_consumer_that_is_offline_or_too_old_is_not_asked(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        parts.join(BODY, version=61)
        relays = _relays(parts)

        async def why_not(client_id: str) -> str:
            asked = request(GetRunningConsumer(consumer_group="g", client_id=client_id))
            with pytest.raises(RequestRefusedError) as refused:
                await relays.show_running(TOOL, asked)
            assert refused.value.code == ResponseCode.SYSTEM_ERROR
            return str(refused.value)

        assert await why_not("other") == "The Consumer <g> <other> not online"
        assert "too low" in await why_not("id")


async def test_a_consumer_whose_connection_breaks_is_an_error(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts, connected(Parts()) as (connection, peer):
        parts.join(BODY, connection=connection)
        asked = request(GetRunningConsumer(consumer_group="g", client_id="id"))
        answering = asyncio.create_task(_relays(parts).show_running(TOOL, asked))
        await peer.read()

        connection.abort("cut")

        with pytest.raises(RequestRefusedError, match="Exception") as refused:
            await answering
        assert refused.value.code == ResponseCode.SYSTEM_ERROR


async def test_offsets_are_gathered_from_the_members_that_answer(tmp_path: Path) -> None:
    transport = Parts()
    async with (
        broker_parts(tmp_path) as parts,
        connected(Parts()) as (connection, peer),
        connected(transport) as (other, silent_peer),
    ):
        parts.join(BODY, connection=connection)
        silent = heartbeat("silent", consumer("g", subscription("orders")))
        parts.join(silent, connection=other)
        asked = request(GetGroupOffsets(topic="orders", group="g"))

        answering = asyncio.create_task(_relays(parts).show_offsets(TOOL, asked))
        question = await peer.read()
        await silent_peer.read()
        held = ConsumerOffsets(queues=ObjectKeyed({QUEUE: 7}))
        await peer.send(question.reply(body=java_json.encode(held)))
        await transport.clock.advance(5001)
        reply = await answering

        assert question.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        assert question.fields == {"topic": "orders", "group": "g"}
        assert java_json.decode(reply.body, ConsumerOffsets).by_client == {"id": {QUEUE: 7}}


async def test_one_member_may_be_asked_for_its_offsets(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts, connected(Parts()) as (connection, peer):
        parts.join(heartbeat("other", consumer("g", subscription("orders"))))
        parts.join(BODY, connection=connection)
        asked = request(GetGroupOffsets(topic="orders", group="g", client_id="id"))

        answering = asyncio.create_task(_relays(parts).show_offsets(TOOL, asked))
        question = await peer.read()
        await peer.send(question.reply(body=b'{"messageQueueTable":{}}'))

        offsets = java_json.decode((await answering).body, ConsumerOffsets)
        assert offsets.by_client == {"id": {}}


async def test_offsets_of_a_group_without_members_or_with_old_ones_are_refused(
    tmp_path: Path,
) -> None:
    async with broker_parts(tmp_path) as parts:
        asked = request(GetGroupOffsets(topic="orders", group="g"))

        with pytest.raises(RequestRefusedError, match="No Any Consumer online"):
            await _relays(parts).show_offsets(TOOL, asked)
        parts.join(BODY, version=27)
        with pytest.raises(RequestRefusedError, match="does not support this feature"):
            await _relays(parts).show_offsets(TOOL, asked)

        assert set(_relays(parts).by_code()) == {307, 309, 223}
