"""The server as a whole; its scenarios are in tests/integration/transport."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.clock import ManualClock, settle
from orbitmq.errors import OrbitError, StateError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.transport.connection import Connection
from orbitmq.transport.request_loop import RequestLoop
from orbitmq.transport.rpc_server import RpcServer
from tests.integration.transport.raw_peer import RawPeer
from tests.integration.transport.serving import (
    ECHO,
    LOCAL,
    SLOW,
    Gate,
    assert_free,
    echo,
    serving,
)


async def test_a_server_serves_until_it_is_stopped_and_never_again() -> None:
    server = RpcServer({ECHO: echo}, config=LOCAL)
    await server.start()
    async with await RawPeer.connect(server.port) as peer:
        assert (await peer.ask(Command(code=ECHO))).code == 0
        assert len(server.connections) == 1
        await server.stop()
        assert await peer.rest() == b""

    await server.stop()
    with pytest.raises(StateError, match="the server is stopped"):
        await server.start()


async def test_a_custom_processor_passes_the_rest_to_the_handlers() -> None:
    class Fast:
        """Answers what begins with a certain byte, and leaves the rest."""

        def __init__(self, requests: RequestLoop) -> None:
            self.requests = requests

        def process(self, connection: Connection, chunk: bytes) -> tuple[int, bytes]:
            if chunk.startswith(b"fast"):
                return len(b"fast"), b"FAST"
            return self.requests.process(connection, chunk)

    gate = Gate()
    async with (
        serving({SLOW: gate.handle}, make_processor=Fast) as server,
        await RawPeer.connect(server.port) as peer,
    ):
        await peer.send(Command(code=SLOW))
        await gate.wait_entered()
        stopping = asyncio.create_task(server.stop())
        await settle()
        assert not stopping.done()

        # Requests are now refused, whatever the processor would have answered.
        answer = await peer.ask(Command(code=ECHO))
        assert answer.code == ResponseCode.SYSTEM_BUSY
        gate.open()
        assert (await peer.read()).code == 0
        await stopping


async def test_ten_refusals_a_second_are_logged_and_the_rest_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(_: Connection, __: Command) -> Command:
        raise OrbitError("the disk is full")

    clock = ManualClock()
    async with (
        serving({ECHO: refuse}, clock=clock) as server,
        await RawPeer.connect(server.port) as peer,
    ):
        for _ in range(25):
            assert (await peer.ask(Command(code=ECHO))).remark == "the disk is full"
        await clock.advance(1000)

    assert caplog.text.count("reason=the disk is full") == 10
    assert "further requests refused count=15" in caplog.text


async def test_a_stop_waits_for_work_that_a_processor_deferred() -> None:
    charges: list[tuple[Connection, int]] = []

    class Parking:
        def process(self, connection: Connection, chunk: bytes) -> tuple[int, bytes]:
            charges.append((connection, connection.deferred.begin(len(chunk))))
            return len(chunk), b""

    clock = ManualClock()
    async with (
        serving(make_processor=lambda _: Parking(), clock=clock) as server,
        await RawPeer.connect(server.port) as peer,
    ):
        await peer.send(Command(code=ECHO))
        while not charges:
            await settle()
        stopping = asyncio.create_task(server.stop())
        await settle()
        assert not stopping.done()

        connection, charge = charges[0]
        connection.write(Command(code=0, flag=1, remark="late").encode())
        connection.deferred.end(charge)

        await stopping
        assert (await peer.read()).remark == "late"


async def test_requests_that_outlast_the_grace_are_cancelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, gate = ManualClock(), Gate()
    async with (
        serving({SLOW: gate.handle}, clock=clock) as server,
        await RawPeer.connect(server.port) as peer,
    ):
        await peer.send(Command(code=SLOW))
        await gate.wait_entered()
        stopping = asyncio.create_task(server.stop())
        await settle()

        await clock.advance(LOCAL.shutdown_grace_seconds * 1000)
        await stopping

        assert await peer.rest() == b""
        assert_free(server)
    assert "stopped with requests in flight count=1" in caplog.text
