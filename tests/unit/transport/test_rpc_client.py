"""The client as a whole; its scenarios are in tests/integration/transport."""

from __future__ import annotations

import asyncio
import logging

import pytest

from orbitmq.clock import ManualClock, settle
from orbitmq.errors import (
    CallTimeoutError,
    ConnectError,
    ConnectionLostError,
    NotSupportedError,
    OrbitError,
    StateError,
    TooManyCallsError,
)
from orbitmq.protocol.command import Command
from orbitmq.protocol.requests.routing import GetClusterView
from orbitmq.transport.config import ClientConfig
from orbitmq.transport.connection import Connection
from orbitmq.transport.rpc_client import RpcClient
from tests.integration.transport.raw_peer import RawPeer, RawServer, raw_serving
from tests.integration.transport.serving import ECHO, SLOW, Gate, address_of, serving
from tests.waiting import until

# Nobody listens there, whatever else runs on the machine.
NOBODY = "127.0.0.1:1"
Outcomes = list[Command | OrbitError]


async def test_the_three_forms_of_a_call() -> None:
    async with serving() as server, RpcClient() as client:
        address = address_of(server)
        outcomes: Outcomes = []
        assert (await client.invoke(address, Command(code=ECHO, body=b"1"))).body == b"1"
        client.invoke_callback(address, Command(code=ECHO, body=b"2"), outcomes.append)
        await client.invoke_oneway(address, Command(code=ECHO))
        await until(lambda: outcomes)

        assert isinstance(outcomes[0], Command)
        assert client.connected == {address}
        with pytest.raises(NotSupportedError):
            await client.call(address, GetClusterView())


async def test_a_typed_call_returns_the_answer_of_success() -> None:
    def answer(_: Connection, request: Command) -> Command:
        return request.reply(body=b"{}")

    async with serving({GetClusterView.CODE: answer}) as server, RpcClient() as client:
        assert (await client.call(address_of(server), GetClusterView())).body == b"{}"


async def test_a_client_answers_what_its_server_asks() -> None:
    async with (
        raw_serving() as server,
        RpcClient(handlers={ECHO: lambda _, request: request.reply(remark="client")}) as client,
    ):
        connecting = asyncio.create_task(client.connection(server.address))
        peer = await server.accept()
        await connecting

        assert (await peer.ask(Command(code=ECHO))).remark == "client"


async def test_failures_reach_the_caller_in_every_form() -> None:
    address = NOBODY
    async with RpcClient() as client:
        outcomes: Outcomes = []
        with pytest.raises(ConnectError):
            await client.invoke(address, Command(code=ECHO))
        with pytest.raises(ConnectError):
            await client.invoke_oneway(address, Command(code=ECHO))
        client.invoke_callback(address, Command(code=ECHO), outcomes.append)
        await until(lambda: outcomes)

        assert isinstance(outcomes[0], ConnectError)


async def test_a_request_that_cannot_be_written_reaches_its_callback_as_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = Command(code=ECHO, fields={"x": object()})  # type: ignore[dict-item]  # a caller's bug
    async with serving() as server, RpcClient() as client:
        outcomes: Outcomes = []
        client.invoke_callback(address_of(server), broken, outcomes.append)
        await until(lambda: outcomes)

        assert "could not be sent" in str(outcomes[0])
        with pytest.raises(TypeError):
            client.invoke_callback(address_of(server), broken, outcomes.append)
        with pytest.raises(TypeError):
            await client.invoke(address_of(server), broken)
        assert client.calls.unanswered.in_flight == 0
    assert "task failed" in caplog.text


async def test_calls_over_the_bound_are_refused_in_every_form() -> None:
    gate = Gate()
    config = ClientConfig(async_calls_max=1, oneway_calls_max=1)
    async with serving({SLOW: gate.handle}) as server, RpcClient(config=config) as client:
        address = address_of(server)
        outcomes: Outcomes = []
        oneways = await asyncio.gather(
            *(client.invoke_oneway(address, Command(code=ECHO)) for _ in range(2)),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in oneways] == [type(None), TooManyCallsError]
        client.invoke_callback(address, Command(code=SLOW), outcomes.append)
        client.invoke_callback(address, Command(code=SLOW), outcomes.append)
        assert outcomes == []
        await settle()
        assert [type(outcome) for outcome in outcomes] == [TooManyCallsError]
        gate.open()
        await until(lambda: len(outcomes) == 2)


async def _behind(client: RpcClient, server: RawServer) -> RawPeer:
    """Connect, and write until writing is paused."""
    connecting = asyncio.create_task(client.connection(server.address))
    peer = await server.accept()
    connection = await connecting
    while not connection.writing_paused:
        connection.write(Command(code=ECHO, flag=2, body=bytes(100_000)).encode())
    return peer


async def test_one_deadline_covers_waiting_for_the_peer_to_read_and_for_its_answer() -> None:
    clock = ManualClock()
    async with (
        raw_serving(receive_buffer_bytes=4096) as server,
        RpcClient(clock=clock) as client,
    ):
        peer = await _behind(client, server)
        slow = asyncio.create_task(
            client.invoke(server.address, Command(code=SLOW), timeout_ms=1000)
        )
        hasty = asyncio.create_task(
            client.invoke(server.address, Command(code=SLOW), timeout_ms=500)
        )
        await settle()
        await clock.advance(600)
        with pytest.raises(CallTimeoutError, match="within 500 ms"):
            await hasty

        while (await peer.read()).code != SLOW:
            pass
        assert client.calls.unanswered.in_flight == 1
        await clock.advance(399)
        assert not slow.done()
        await clock.advance(1)

        with pytest.raises(CallTimeoutError):
            await slow


async def test_a_stop_ends_what_still_waits_for_the_peer_to_read() -> None:
    clock = ManualClock()
    client = RpcClient(clock=clock, config=ClientConfig(shutdown_grace_seconds=1))
    await client.start()
    async with raw_serving(receive_buffer_bytes=4096) as server:
        await _behind(client, server)
        outcomes: Outcomes = []
        client.invoke_callback(server.address, Command(code=ECHO), outcomes.append, timeout_ms=9e9)
        call = asyncio.create_task(
            client.invoke(server.address, Command(code=ECHO), timeout_ms=9e9)
        )
        await settle()
        stopping = asyncio.create_task(client.stop())
        await settle()
        assert not stopping.done()

        await clock.advance(1000)
        await stopping

        assert [type(outcome) for outcome in outcomes] == [ConnectionLostError]
        with pytest.raises(ConnectionLostError):
            await call
    await client.stop()
    for again in (
        client.start(),
        client.invoke(server.address, Command(code=ECHO)),
        client.invoke_oneway(server.address, Command(code=ECHO)),
    ):
        with pytest.raises(StateError, match="the client is stopped"):
            await again


class Hook:
    """Raises given errors."""

    def __init__(self, *, before: Exception | None = None, after: Exception | None = None) -> None:
        self._before = before
        self._after = after
        self.seen: list[int | None] = []

    def before_request(self, _: str, __: Command) -> None:
        if self._before:
            raise self._before

    def after_response(self, _: str, __: Command, response: Command | None) -> None:
        self.seen.append(None if response is None else response.code)
        if self._after:
            raise self._after


async def test_hooks_may_refuse_a_request_or_its_answer(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as server:
        address = address_of(server)
        async with RpcClient(hooks=[Hook(before=OrbitError("no request"))]) as client:
            with pytest.raises(OrbitError, match="no request"):
                await client.invoke(address, Command(code=ECHO))
            with pytest.raises(OrbitError, match="no request"):
                client.invoke_callback(address, Command(code=ECHO), lambda _: None)
        for error in (OrbitError("no answer"), ValueError("no answer")):
            outcomes: Outcomes = []
            async with RpcClient(hooks=[Hook(after=error)]) as client:
                with pytest.raises(type(error), match="no answer"):
                    await client.invoke(address, Command(code=ECHO))
                with pytest.raises(type(error), match="no answer"):
                    await client.invoke_oneway(address, Command(code=ECHO))
                client.invoke_callback(address, Command(code=ECHO), outcomes.append)
                await until(lambda: outcomes)  # noqa: B023
            assert "no answer" in str(outcomes[0])
    assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 1


async def test_a_connection_is_ready_for_requests_that_no_hook_has_to_see() -> None:
    async with serving() as server:
        address = address_of(server)
        async with RpcClient() as client:
            assert client.ready(address) is None
            connection = await client.connection(address)
            assert client.ready(address) is connection
            connection.pause_writing()
            assert client.ready(address) is None
            connection.resume_writing()
        assert client.ready(address) is None
        async with RpcClient(hooks=[Hook()]) as client:
            await client.connection(address)
            assert client.ready(address) is None


async def test_a_hook_sees_a_failed_call_and_cannot_hide_it() -> None:
    address = NOBODY
    hook = Hook(after=ValueError("hook"))
    async with RpcClient(hooks=[hook]) as client:
        with pytest.raises(ConnectError):
            await client.invoke(address, Command(code=ECHO))
        with pytest.raises(ConnectError):
            await client.invoke_oneway(address, Command(code=ECHO))

    assert hook.seen == [None, None]


async def test_waiting_for_a_connection_ends_at_the_timeout() -> None:
    clock = ManualClock()
    async with RpcClient(clock=clock) as client:
        waiting = asyncio.create_task(client.connection("192.0.2.1:9", timeout_ms=50))
        await settle()
        await clock.advance(50)

        with pytest.raises(ConnectError):
            await waiting
