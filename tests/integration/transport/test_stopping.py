"""Starting and stopping: requests in flight finish, nothing new is accepted, within a grace."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

import pytest

from orbitmq.clock import ManualClock, settle
from orbitmq.errors import ConnectionLostError, SettingsError, StateError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.transport.config import ClientConfig, ServerConfig, TlsClientConfig
from orbitmq.transport.connection import Connection
from orbitmq.transport.rpc_client import RpcClient
from orbitmq.transport.rpc_server import RpcServer
from tests.integration.conftest import PATIENCE_MS
from tests.integration.transport.raw_peer import RawPeer, raw_serving
from tests.integration.transport.serving import (
    ECHO,
    LARGE,
    LOCAL,
    SLOW,
    Gate,
    address_of,
    assert_free,
    serving,
)
from tests.waiting import until


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_a_stopping_server_finishes_requests_in_flight_and_accepts_nothing_new(
    *, tls: bool
) -> None:
    gate = Gate()
    async with (
        serving({SLOW: gate.handle}) as server,
        RpcClient(tls=TlsClientConfig(enable=tls)) as client,
    ):
        address = address_of(server)
        port = server.port
        call = asyncio.create_task(client.invoke(address, Command(code=SLOW)))
        await gate.wait_entered()

        stopping = asyncio.create_task(server.stop())
        await settle()
        late = await client.invoke(address, Command(code=ECHO))
        assert late.code == ResponseCode.SYSTEM_BUSY
        assert "stopping" in late.remark
        with socket.socket() as new:
            assert new.connect_ex(("127.0.0.1", port)) != 0
        assert not stopping.done()
        gate.open()

        assert (await call).code == 0
        await stopping
        assert_free(server)
        await until(lambda: not client.connected)


async def test_a_handler_that_waits_for_its_clients_answer_is_finished_too() -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def ask_back(connection: Connection, request: Command) -> Command:
        own = await connection.ask(Command(code=ECHO), PATIENCE_MS)
        return request.reply(remark=own.remark)

    async def answer(_: Connection, request: Command) -> Command:
        entered.set()
        await go_on.wait()
        return request.reply(remark="from the client")

    async with (
        serving({SLOW: ask_back}) as server,
        RpcClient(handlers={ECHO: answer}) as client,
    ):
        call = asyncio.create_task(client.invoke(address_of(server), Command(code=SLOW)))
        await entered.wait()
        stopping = asyncio.create_task(server.stop())
        await settle()

        go_on.set()

        assert (await call).remark == "from the client"
        await stopping


async def test_a_handler_that_does_not_end_is_cancelled_after_the_grace() -> None:
    clock, gate = ManualClock(), Gate()
    server = RpcServer({SLOW: gate.handle, ECHO: gate.handle}, config=LOCAL, clock=clock)
    await server.start()
    async with await RawPeer.connect(server.port) as peer:
        await peer.send(Command(code=SLOW))
        await gate.wait_entered()
        stopping = asyncio.create_task(server.stop())
        await settle()
        await clock.advance(LOCAL.shutdown_grace_seconds * 1000 - 1)
        assert not stopping.done()

        await clock.advance(1)
        await stopping

        assert await peer.rest() == b""
    assert_free(server)


async def test_a_grace_of_zero_leaves_nothing_even_of_work_that_never_started() -> None:
    gate = Gate()
    config = ServerConfig(bind_address="127.0.0.1", shutdown_grace_seconds=0)
    for turns in range(8):
        server = RpcServer({SLOW: gate.handle}, config=config)
        await server.start()
        async with await RawPeer.connect(server.port) as peer:
            await peer.send(Command(code=SLOW))
            await settle(turns)

            await server.stop()

            await peer.rest()
        assert_free(server)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_replies_already_written_reach_a_peer_that_reads_them_during_the_stop(
    *, tls: bool
) -> None:
    async with (
        serving() as server,
        RpcClient(tls=TlsClientConfig(enable=tls)) as client,
    ):
        calls = [
            asyncio.create_task(
                client.invoke(address_of(server), Command(code=LARGE, fields={"bytes": "5000000"}))
            )
            for _ in range(3)
        ]
        await until(lambda: any(connection._written_bytes for connection in server.connections))

        await server.stop()

        finished = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(finished[0], Command)
        assert len(finished[0].body) == 5_000_000


async def test_a_peer_that_does_not_read_is_disconnected_after_the_grace() -> None:
    clock = ManualClock()
    async with (
        serving(clock=clock) as server,
        await RawPeer.connect(server.port, receive_buffer_bytes=4096) as peer,
    ):
        await peer.send(*[Command(code=LARGE, fields={"bytes": "8000000"})] * 3)
        await until(lambda: any(c.writing_paused for c in server.connections))
        stopping = asyncio.create_task(server.stop())
        await settle()
        assert not stopping.done()

        await clock.advance(LOCAL.shutdown_grace_seconds * 1000)

        await stopping


async def test_stopping_twice_concurrently_is_one_stop() -> None:
    gate = Gate()
    async with serving({SLOW: gate.handle}) as server, RpcClient() as client:
        call = asyncio.create_task(client.invoke(address_of(server), Command(code=SLOW)))
        await gate.wait_entered()

        stops = [asyncio.create_task(server.stop()) for _ in range(3)]
        await settle()
        assert not any(stop.done() for stop in stops)
        gate.open()
        await asyncio.gather(*stops)
        await server.stop()

        assert (await call).code == 0
        await asyncio.gather(client.stop(), client.stop())


async def test_a_cancelled_stop_aborts_the_connections() -> None:
    gate = Gate()
    async with serving({SLOW: gate.handle}) as server:
        async with await RawPeer.connect(server.port) as peer:
            await peer.send(Command(code=SLOW))
            await gate.wait_entered()
            stopping = asyncio.create_task(server.stop())
            await settle()

            stopping.cancel()

            assert await peer.rest() == b""
            await asyncio.wait({stopping})
        gate.open()
        await until(lambda: server.kept_bytes.taken == 0)
        await server._connections._idle_sweep.stop()


async def test_a_stopped_part_cannot_be_restarted() -> None:
    server, client = RpcServer({}, config=LOCAL), RpcClient()
    await server.start()
    await client.start()
    with pytest.raises(StateError, match="already started"):
        await server.start()
    with pytest.raises(StateError, match="already started"):
        await client.start()
    await server.stop()
    await client.stop()

    with pytest.raises(StateError, match="stopped"):
        await server.start()
    with pytest.raises(StateError, match="stopped"):
        await client.start()
    with pytest.raises(StateError, match="does not listen"):
        assert server.port


async def test_a_part_that_was_never_started_can_be_stopped() -> None:
    server, client = RpcServer({}), RpcClient()

    await server.stop()
    await client.stop()

    with pytest.raises(StateError, match="stopped"):
        await server.start()


async def test_a_port_in_use_is_a_clear_error() -> None:
    async with serving() as server:
        config = ServerConfig(bind_address="127.0.0.1", listen_port=server.port)
        second = RpcServer({}, config=config)

        with pytest.raises(SettingsError, match=f"127.0.0.1:{server.port}: Address already in use"):
            await second.start()

        await second.stop()


@pytest.mark.parametrize("address", ["192.0.2.1", "no-such-host.invalid"])
async def test_an_address_of_another_machine_is_a_clear_error(address: str) -> None:
    server = RpcServer({}, config=ServerConfig(bind_address=address))

    with pytest.raises(SettingsError, match="cannot listen"):
        await server.start()


async def test_a_port_is_free_again_as_soon_as_the_server_has_stopped(own_port: int) -> None:
    config = replace(LOCAL, listen_port=own_port)
    async with serving(config=config) as first, await RawPeer.connect(own_port) as peer:
        await peer.ask(Command(code=ECHO))
        await first.stop()
        async with serving(config=config) as second, await RawPeer.connect(own_port) as other:
            assert second.port == own_port
            assert (await other.ask(Command(code=ECHO))).code == 0


async def test_a_server_stops_while_connections_are_being_admitted() -> None:
    for turns in range(12):
        async with serving() as server:
            silent = await RawPeer.connect(server.port)
            speaking = await RawPeer.connect(server.port)
            greeting = await RawPeer.connect(server.port)
            await speaking.send(Command(code=ECHO))
            await greeting.send(b"\x16\x03\x01\x02\x00\x01\x00")
            await settle(turns)

            await server.stop()

            for peer in (silent, speaking, greeting):
                await peer.rest()
                peer.close()


async def test_a_stopping_client_waits_for_pending_answers() -> None:
    gate = Gate()
    async with serving({SLOW: gate.handle}) as server:
        client = RpcClient()
        await client.start()
        outcomes: list[object] = []
        call = asyncio.create_task(client.invoke(address_of(server), Command(code=SLOW)))
        await gate.wait_entered()
        client.invoke_callback(address_of(server), Command(code=SLOW), outcomes.append)
        await gate.wait_entered(2)
        stopping = asyncio.create_task(client.stop())
        await settle()
        assert not stopping.done()
        with pytest.raises(StateError):
            await client.invoke(address_of(server), Command(code=ECHO))

        gate.open()
        await stopping

        assert (await call).code == 0
        assert len(outcomes) == 1


async def test_a_stopping_client_gives_up_after_its_grace() -> None:
    clock = ManualClock()
    config = ClientConfig(shutdown_grace_seconds=2)
    async with raw_serving() as server:
        client = RpcClient(clock=clock, config=config)
        await client.start()
        call = asyncio.create_task(
            client.invoke(server.address, Command(code=SLOW), timeout_ms=60_000)
        )
        await (await server.accept()).read()
        stopping = asyncio.create_task(client.stop())
        await settle()
        await clock.advance(1_999)
        assert not stopping.done()

        await clock.advance(1)
        await stopping

        with pytest.raises(ConnectionLostError):
            await call
        assert client.calls.unanswered.in_flight == 0
