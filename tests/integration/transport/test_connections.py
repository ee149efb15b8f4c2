"""Connections over their life: events, idleness, limits on how many."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import socket

import pytest

from orbitmq.clock import ManualClock, settle
from orbitmq.protocol.command import Command
from orbitmq.transport.config import ClientConfig, ServerConfig, TlsMode, TlsServerConfig
from orbitmq.transport.connection import Connection
from orbitmq.transport.rpc_client import RpcClient
from tests.integration.transport.raw_peer import RawPeer, raw_serving
from tests.integration.transport.serving import ECHO, SLOW, Events, Gate, address_of, serving
from tests.waiting import until

BOTH_FIRST_BYTES = pytest.mark.parametrize("mode", [TlsMode.DISABLED, TlsMode.PERMISSIVE])


async def test_a_listener_is_notified_of_open_and_close_on_both_sides() -> None:
    theirs, ours = Events(), Events()
    async with serving(listener=theirs) as server:
        async with RpcClient(listener=ours) as client:
            await client.invoke(address_of(server), Command(code=ECHO))
            assert (theirs.seen, ours.seen) == (["open"], ["open"])
        await until(lambda: len(theirs.seen) == 2)

    assert (theirs.seen, ours.seen) == (["open", "close"], ["open", "close"])


async def test_a_listener_gets_the_reason_of_a_broken_connection() -> None:
    events = Events()
    async with serving(listener=events) as server:
        peer = await RawPeer.connect(server.port)
        await peer.ask(Command(code=ECHO))
        peer.reset()
        await until(lambda: len(events.seen) == 2)

    assert events.seen == ["open", "close ConnectionResetError"]


async def test_a_listener_that_raises_is_logged_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Events):
        def on_open(self, connection: Connection) -> None:
            super().on_open(connection)
            raise ValueError("open")

        def on_idle(self, connection: Connection) -> None:
            super().on_idle(connection)
            raise ValueError("idle")

        def on_close(self, connection: Connection, error: Exception | None) -> None:
            super().on_close(connection, error)
            raise ValueError("close")

    clock, events = ManualClock(), Broken()
    async with serving(listener=events, clock=clock) as server:
        async with (
            await RawPeer.connect(server.port) as one,
            await RawPeer.connect(server.port) as other,
        ):
            assert (await one.ask(Command(code=ECHO))).code == 0
            assert (await other.ask(Command(code=ECHO))).code == 0
            await clock.advance(120_000)
            assert await one.rest() == b""
            assert await other.rest() == b""
        await until(lambda: len(events.seen) == 6)

    assert sorted(events.seen) == ["close", "close", "idle", "idle", "open", "open"]
    assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 6


@BOTH_FIRST_BYTES
async def test_a_connection_idle_for_120_seconds_is_closed_and_a_busy_one_stays(
    mode: TlsMode,
) -> None:
    clock, events = ManualClock(), Events()
    async with (
        serving(listener=events, clock=clock, tls=TlsServerConfig(mode=mode)) as server,
        await RawPeer.connect(server.port) as idle,
        await RawPeer.connect(server.port) as busy,
    ):
        await idle.ask(Command(code=ECHO))
        for _ in range(11):
            await busy.ask(Command(code=ECHO))
            await clock.advance(10_000)
        await clock.advance(9_999)
        assert events.seen == ["open", "open"]

        await busy.ask(Command(code=ECHO))
        await clock.advance(1)
        assert await idle.rest() == b""
        await until(lambda: len(events.seen) == 4)

        assert events.seen == ["open", "open", "idle", "close"]
        assert (await busy.ask(Command(code=ECHO))).code == 0


@BOTH_FIRST_BYTES
async def test_a_connection_that_never_sends_a_byte_is_closed_after_120_seconds(
    mode: TlsMode,
) -> None:
    clock = ManualClock()
    async with serving(clock=clock, tls=TlsServerConfig(mode=mode)) as server:
        async with await RawPeer.connect(server.port) as silent:
            await until(lambda: server._acceptor.admitting + len(server.connections) == 1)
            await settle()
            await clock.advance(119_999)
            assert server._acceptor.admitting + len(server.connections) == 1

            await clock.advance(10_001)

            assert await silent.rest() == b""
        await until(lambda: server._acceptor.admitting + len(server.connections) == 0)


async def test_what_a_server_sends_keeps_a_connection_alive() -> None:
    clock = ManualClock()
    async with (
        serving(clock=clock) as server,
        await RawPeer.connect(server.port) as peer,
    ):
        await peer.ask(Command(code=ECHO))
        (connection,) = server.connections
        for _ in range(30):
            connection.call_oneway(Command(code=ECHO))
            assert (await peer.read()).is_oneway
            await clock.advance(10_000)

        assert (await peer.ask(Command(code=ECHO))).code == 0


async def test_a_client_closes_its_idle_connection_and_makes_a_new_one_when_needed() -> None:
    clock, events = ManualClock(), Events()
    async with serving() as server, RpcClient(clock=clock, listener=events) as client:
        await client.invoke(address_of(server), Command(code=ECHO))

        await clock.advance(120_000)
        await until(lambda: not client.connected)
        assert events.seen == ["open", "idle", "close"]

        assert (await client.invoke(address_of(server), Command(code=ECHO))).code == 0


async def test_a_connection_above_the_limit_is_closed_until_another_one_ends() -> None:
    config = ServerConfig(connections_max=3)
    async with serving(config=config) as server:
        peers = [await RawPeer.connect(server.port) for _ in range(3)]
        for peer in peers:
            await peer.ask(Command(code=ECHO))

        async with await RawPeer.connect(server.port) as refused:
            assert await refused.rest() == b""

        peers.pop().close()
        await until(lambda: len(server.connections) == 2)
        async with await RawPeer.connect(server.port) as admitted:
            assert (await admitted.ask(Command(code=ECHO))).code == 0
        for peer in peers:
            peer.close()


async def test_1000_idle_connections_are_closed_and_others_are_served_meanwhile() -> None:
    clock = ManualClock()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    async with serving(clock=clock) as server:
        peers = [await RawPeer.connect(server.port) for _ in range(1000)]
        for peer in peers[:500]:
            await peer.send(Command(code=ECHO))
        async with await RawPeer.connect(server.port) as other:
            assert (await other.ask(Command(code=ECHO))).code == 0
            await until(lambda: len(server.connections) == 501)
            await until(lambda: server._acceptor.admitting == 500)

            await clock.advance(130_000)
            for peer in peers[::50]:
                await peer.rest()
            await until(lambda: not server.connections and not server._acceptor.admitting)
        for peer in peers:
            peer.close()


async def test_a_server_out_of_file_descriptors_pauses_and_resumes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    async with serving(clock=clock) as server:
        # A first connection, since Python's imports need file descriptors too.
        async with await RawPeer.connect(server.port) as first:
            await first.ask(Command(code=ECHO))
        await until(lambda: not server.connections)
        waiting = socket.socket()
        waiting.setblocking(False)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        # Every descriptor below the limit is in use and none is released, so that accepting fails.
        gc.collect()
        taken = [socket.socket()]
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0].fileno() + 50, hard))
        try:
            while True:
                try:
                    taken.append(socket.socket())
                except OSError:
                    break
            await asyncio.get_running_loop().sock_connect(waiting, ("127.0.0.1", server.port))
            await until(lambda: "accepting paused" in caplog.text)
            await settle(100)
            assert caplog.text.count("accepting paused") == 1
        finally:
            for held in taken:
                held.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

        await clock.advance(1000)

        async with RawPeer(waiting) as peer:
            assert (await peer.ask(Command(code=ECHO))).code == 0


async def test_a_client_that_vanishes_while_its_request_is_handled_costs_nothing() -> None:
    gate = Gate()
    async with serving({SLOW: gate.handle}) as server:
        for _ in range(10):
            peer = await RawPeer.connect(server.port)
            await peer.send(Command(code=SLOW))
            await until(lambda: server.kept_bytes.taken > 0)
            peer.reset()
        await until(lambda: not server.connections)

        gate.open()
        await until(lambda: server.kept_bytes.taken == 0)


async def test_a_closing_connection_with_unsent_bytes_is_aborted_when_the_client_stops() -> None:
    config = ClientConfig(shutdown_grace_seconds=0, send_buffer_bytes=65536)
    events = Events()
    async with raw_serving(receive_buffer_bytes=4096) as server:
        async with RpcClient(config=config, listener=events) as client:
            connecting = asyncio.create_task(client.connection(server.address))
            await server.accept()
            old = await connecting
            while not old.writing_paused:
                old.call_oneway(Command(code=ECHO, body=bytes(500_000)))
            old.close()
            connecting = asyncio.create_task(client.connection(server.address))
            await server.accept()
            assert await connecting is not old
            assert events.seen == ["open", "open"]

        assert sorted(events.seen) == ["close", "close", "open", "open"]
