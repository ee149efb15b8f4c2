"""Answers to requests by message: pushed to the client that waits, and stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.requests.answers import PushAnswer
from orbitmq.protocol.requests.clients import Heartbeat
from orbitmq.protocol.requests.sending import SendAnswer, SendAnswerShort, SendReply
from orbitmq.record.properties import decode_properties
from orbitmq.transport.connection import Connection
from orbitmq.transport.rpc_client import RpcClient
from tests.integration.broker.conftest import Peer, Site, heartbeat_body, send_header
from tests.waiting import until

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
TO_ME: dict[str, Any] = {"REPLY_TO_CLIENT": "me", "CORRELATION_ID": "c-1"}


@dataclass
class Requester:
    """A client that waits for answers."""

    rpc: RpcClient
    address: str
    pushed: list[tuple[PushAnswer, bytes]] = field(default_factory=list)
    # What it says to the broker about an answer.
    code: int = ResponseCode.SUCCESS
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, _: Connection, request: Command) -> Command:
        """Take an answer."""
        self.pushed.append((PushAnswer.decode(request.fields), request.body))
        await self.answers.wait()
        return request.reply(code=self.code, remark="because")

    async def join(self) -> None:
        """Make the broker know this client."""
        body = heartbeat_body("me", group="", produces="requesters")
        await self.rpc.call(self.address, Heartbeat(), body)


@pytest.fixture
async def requester(site: Site) -> AsyncIterator[Requester]:
    made: list[Requester] = []

    async def handle(connection: Connection, request: Command) -> Command:
        return await made[0].handle(connection, request)

    async with RpcClient(handlers={PushAnswer.CODE: handle}) as rpc:
        made.append(Requester(rpc, f"127.0.0.1:{site.broker.port}"))
        made[0].answers.set()
        await made[0].join()
        yield made[0]


@pytest.mark.parametrize("kind", [SendAnswer, SendAnswerShort])
async def test_an_answer_is_pushed_as_it_was_sent_and_stored(
    site: Site, peer: Peer, requester: Requester, kind: type[SendAnswer | SendAnswerShort]
) -> None:
    header = send_header(REPLY_TOPIC, kind=kind, flag=7, system_flag=1, own="é", **TO_ME)

    reply = await peer.ask(header, b"packed")

    assert reply.code == ResponseCode.SUCCESS, reply.remark
    ((pushed, body),) = requester.pushed
    assert (pushed.topic, pushed.flag, pushed.system_flag, body) == (REPLY_TOPIC, 7, 1, b"packed")
    assert pushed.store_host == site.broker.advertised
    assert pushed.born_host.startswith("127.0.0.1:")
    properties = decode_properties((pushed.properties or "").encode())
    assert properties.pop("PUSH_REPLY_TIME") == str(pushed.store_timestamp_ms)
    assert properties == {"UNIQ_KEY": "0A0000010000", "own": "é", **TO_ME}
    sent = SendReply.decode(reply.fields)
    (stored,) = await peer.read(REPLY_TOPIC, sent.queue_offset)
    assert (stored.stored_body, stored.properties) == (b"packed", properties)


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({}, "properties[REPLY_TO_CLIENT] is null"),
        ({"REPLY_TO_CLIENT": "you"}, "channel of <you> not found"),
    ],
)
async def test_an_answer_that_reaches_nobody_is_an_error_and_stored(
    site: Site, peer: Peer, requester: Requester, properties: dict[str, Any], named: str
) -> None:
    reply = await peer.ask(send_header(REPLY_TOPIC, kind=SendAnswer, **properties), b"to whom")

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert named in reply.remark
    assert requester.pushed == []
    await site.stored(REPLY_TOPIC, 0, 1)


async def test_a_refusal_quotes_little_of_a_long_client_id(peer: Peer) -> None:
    header = send_header(REPLY_TOPIC, kind=SendAnswer, REPLY_TO_CLIENT="x" * 30_000)

    reply = await peer.ask(header, b"to whom")

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert len(reply.remark) < 1000


async def test_a_requester_that_refuses_an_answer_is_named(
    peer: Peer, requester: Requester
) -> None:
    requester.code = ResponseCode.SYSTEM_ERROR

    reply = await peer.ask(send_header(REPLY_TOPIC, kind=SendAnswer, **TO_ME), b"late")

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "push reply message to me fail: because" in reply.remark


async def test_a_requester_that_does_not_react_is_waited_for_ten_seconds(
    site: Site, peer: Peer, requester: Requester
) -> None:
    requester.answers.clear()
    asking = asyncio.create_task(
        peer.ask(send_header(REPLY_TOPIC, kind=SendAnswer, **TO_ME), b"late")
    )
    await until(lambda: len(requester.pushed) == 1)
    began_ms = site.clock.monotonic_ms()
    # Others are served meanwhile.
    await peer.make_topic("T")
    assert (await peer.send()).code == ResponseCode.SUCCESS

    await site.advance_until(asking.done)

    assert (await asking).code == ResponseCode.SYSTEM_ERROR
    assert site.clock.monotonic_ms() - began_ms >= 10_000
    requester.answers.set()


async def test_a_requester_that_does_not_react_takes_few_of_the_calls_to_clients(
    site: Site, peer: Peer, requester: Requester
) -> None:
    requester.answers.clear()
    header = send_header(REPLY_TOPIC, kind=SendAnswer, **TO_ME)
    asking = [asyncio.create_task(peer.ask(header, b"late")) for _ in range(80)]
    await until(lambda: len(requester.pushed) == 16)

    await site.advance_until(lambda: all(each.done() for each in asking))

    assert {(await each).code for each in asking} == {ResponseCode.SYSTEM_ERROR}
    assert len(requester.pushed) == 16
    # It is left alone for a while, and then gets what is for it again.
    assert "no answer from" in (await peer.ask(header, b"later")).remark
    assert len(requester.pushed) == 16
    requester.answers.set()
    await site.clock.advance(10_000)
    assert (await peer.ask(header, b"in time")).code == ResponseCode.SUCCESS


async def test_many_answers_to_one_requester_take_turns(peer: Peer, requester: Requester) -> None:
    header = send_header(REPLY_TOPIC, kind=SendAnswer, **TO_ME)

    replies = await asyncio.gather(*(peer.ask(header, b"%d" % n) for n in range(200)))

    assert {reply.code for reply in replies} == {ResponseCode.SUCCESS}
    assert len(requester.pushed) == 200


async def test_a_requester_that_leaves_while_it_is_pushed_to_is_gone(
    peer: Peer, requester: Requester
) -> None:
    requester.answers.clear()
    asking = asyncio.create_task(
        peer.ask(send_header(REPLY_TOPIC, kind=SendAnswer, **TO_ME), b"late")
    )
    await until(lambda: len(requester.pushed) == 1)

    requester.answers.set()
    requester.code = ResponseCode.SUCCESS
    await requester.rpc.stop()

    assert (await asking).code in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
    again = await peer.ask(send_header(REPLY_TOPIC, kind=SendAnswer, **TO_ME), b"later still")
    assert "channel of <me> not found" in again.remark


async def test_an_answer_without_a_body_is_pushed_but_not_stored(
    site: Site, peer: Peer, requester: Requester
) -> None:
    reply = await peer.ask(send_header(REPLY_TOPIC, kind=SendAnswer, **TO_ME))

    assert reply.code == ResponseCode.SUCCESS
    assert SendReply.decode(reply.fields).message_id == "0"
    assert [body for _, body in requester.pushed] == [b""]
    assert site.broker.store.log_end == 0


@pytest.mark.parametrize(("body", "batch"), [(b"x" * (5 << 20), False), (b"x", True)])
async def test_an_answer_that_is_too_large_or_a_batch_is_refused(
    site: Site, peer: Peer, requester: Requester, body: bytes, *, batch: bool
) -> None:
    reply = await peer.ask(send_header(REPLY_TOPIC, kind=SendAnswer, batch=batch, **TO_ME), body)

    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert requester.pushed == []
    assert site.broker.store.log_end == 0


async def test_the_connection_of_a_client_that_was_opened_last_gets_its_answers(
    site: Site, peer: Peer, requester: Requester
) -> None:
    old = await site.connect()
    await old.heartbeat("me", group="", produces="requesters")
    await requester.rpc.stop()
    # Only the other one is left, which knows nothing of answers.
    reply = await peer.ask(send_header(REPLY_TOPIC, kind=SendAnswer, **TO_ME), b"yes")

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "not found" not in reply.remark
