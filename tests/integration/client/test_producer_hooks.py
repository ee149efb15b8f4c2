"""Hooks of a producer: what they see and may forbid; and signatures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orbitmq.client.aio.sending.producer import Producer
from orbitmq.client.aio.sending.send_hooks import SendContext
from orbitmq.client.core.sending.send_plan import SendMode
from orbitmq.client.core.sending.send_results import SendStatus
from orbitmq.clock import ManualClock
from orbitmq.errors import OrbitError, SendError
from orbitmq.model.messages import Message
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.signing import verify
from tests.integration.client.scripted_servers import (
    ScriptedBroker,
    ScriptedCluster,
    failed,
    scripted_cluster,
)
from tests.waiting import until

MESSAGE = Message("t", b"x")


def producer_of(cluster: ScriptedCluster, **options: Any) -> Producer:
    return Producer("g", namesrv=cluster.namesrv, retry_pause_ms=1, **options)


class Sees:
    """Records every attempt, and the notes from before it."""

    def __init__(self) -> None:
        self.before: list[SendContext] = []
        self.after: list[tuple[SendContext, Any]] = []

    def before_send(self, context: SendContext) -> None:
        assert context.result is None
        assert context.error is None
        context.notes["mine"] = len(self.before)
        self.before.append(context)

    def after_send(self, context: SendContext) -> None:
        self.after.append((context, context.notes["mine"]))


class Forbids:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def check_forbidden(self, context: SendContext) -> None:
        if context.queue.topic == "closed":
            raise self._error


class SeesRequests:
    """Sees every request; marks sends, and refuses those to one topic."""

    def __init__(self, *, refused: str = "") -> None:
        self.seen: list[tuple[int, int | None]] = []
        self._refused = refused

    def before_request(self, _address: str, request: Command) -> None:
        if self._refused and request.fields.get("b") == self._refused:
            raise OrbitError("refused by a hook")
        request.fields["mark"] = "seen"

    def after_response(self, _address: str, request: Command, response: Command | None) -> None:
        self.seen.append((request.code, None if response is None else response.code))


async def test_hooks_see_every_attempt_and_its_outcome() -> None:
    sees = Sees()
    async with (
        scripted_cluster(ScriptedBroker("a", failed(2)), ScriptedBroker("b")) as cluster,
        # No broker counts as slow: one is avoided only because it failed.
        producer_of(cluster, hooks=[sees], namespace="tenant", clock=ManualClock()) as producer,
    ):
        results = [await producer.send(MESSAGE) for _ in range(8)]
        batch = await producer.send_async([MESSAGE, MESSAGE])
        await producer.send_oneway(MESSAGE)

    assert [context for context, _ in sees.after] == sees.before
    assert [note for _, note in sees.after] == list(range(len(sees.before)))
    [wrong] = [context for context in sees.before if context.error is not None]
    right = [context.result for context in sees.before if context.result is not None]
    assert wrong.queue.broker_name == "a"
    assert "code 2" in str(wrong.error)
    assert right == [*results, batch]
    second = sees.before[sees.before.index(wrong) + 1]
    assert (second.attempt, second.message_id) == (2, wrong.message_id)
    assert second.queue.topic == "t"
    assert (second.group, second.namespace, second.mode) == (
        "tenant%g",
        "tenant",
        SendMode.AWAITED,
    )
    assert second.address == cluster["b"].address
    assert sees.before[-2].mode is SendMode.ASYNC
    assert sees.before[-2].message == [MESSAGE, MESSAGE]
    assert sees.before[-1].mode is SendMode.ONEWAY


@pytest.mark.parametrize("error", [PermissionError("closed topic"), OrbitError("closed topic")])
async def test_a_forbidden_message_is_not_sent_and_its_caller_gets_the_hooks_error(
    error: Exception,
) -> None:
    async with (
        scripted_cluster(ScriptedBroker("a")) as cluster,
        producer_of(cluster, hooks=[Forbids(error)]) as producer,
    ):
        await producer.send(MESSAGE)
        for use in (producer.send, producer.send_async, producer.send_oneway):
            with pytest.raises(type(error)) as raised:
                await use(Message("closed", b"x"))
            assert raised.value is error

    assert len(cluster.sends) == 1


async def test_request_hooks_see_and_change_every_request() -> None:
    hook = SeesRequests(refused="closed")
    async with (
        scripted_cluster(ScriptedBroker("a")) as cluster,
        producer_of(cluster, rpc_hooks=[hook]) as producer,
    ):
        await producer.send(MESSAGE)
        await asyncio.gather(*(producer.send(MESSAGE) for _ in range(3)))
        await producer.send_async([MESSAGE])
        await producer.send_oneway(MESSAGE)
        for use in (producer.send, producer.send_async, producer.send_oneway):
            with pytest.raises(SendError, match="refused by a hook"):
                await use(Message("closed", b"x"))
        await until(lambda: len(cluster.sends) == 6)

    assert {sent.fields.get("mark") for sent in cluster.sends} == {"seen"}
    sends = [seen for seen in hook.seen if seen[0] == RequestCode.SEND_MESSAGE_V2]
    assert sends == [(310, 0)] * 4 + [(310, None)]
    assert (RequestCode.SEND_BATCH_MESSAGE, 0) in hook.seen
    assert (RequestCode.GET_ROUTEINFO_BY_TOPIC, 0) in hook.seen


async def test_requests_are_signed_with_the_keys_of_the_options() -> None:
    async with (
        scripted_cluster(ScriptedBroker("a", failed(2)), ScriptedBroker("b")) as cluster,
        producer_of(cluster, access_key="me", secret_key="secret") as producer,
    ):
        for body in (b"x", "größer".encode()):
            result = await producer.send(Message("t", body, properties={"ä": "ö"}))
            assert result.status is SendStatus.OK
        await producer.send_oneway(Message("t", b"one way"))
        # The choice of the broker depends on how fast they replied.
        await until(lambda: b"one way" in [sent.body for sent in cluster.sends])

    for sent in cluster.sends:
        assert sent.fields["AccessKey"] == "me"
        verify(sent.fields, sent.body, "secret")
