"""All connections of an owner: events, idleness, the end."""

from __future__ import annotations

import asyncio
import logging

import pytest

from orbitmq.clock import ManualClock, settle
from orbitmq.protocol.command import Command
from orbitmq.transport.connection import Connection
from orbitmq.transport.connections import ConnectionListener, Connections
from tests.integration.transport.raw_peer import RawPeer, RawServer, raw_serving
from tests.integration.transport.serving import ECHO, Events
from tests.unit.transport.pairs import Parts
from tests.waiting import until


def _connections(clock: ManualClock, listener: ConnectionListener | None = None) -> Connections:
    return Connections(
        idle_seconds_max=120,
        send_buffer_bytes=0,
        receive_buffer_bytes=0,
        clock=clock,
        listener=listener,
    )


async def _open(
    connections: Connections, parts: Parts, server: RawServer
) -> tuple[Connection, RawPeer]:
    connection = parts.new_connection()
    connection._on_open = connections.opened
    connection._on_close = connections.closed
    await asyncio.get_running_loop().create_connection(lambda: connection, "127.0.0.1", server.port)
    return connection, await server.accept()


async def test_the_listener_is_notified_of_opened_and_closed_connections() -> None:
    clock, events = ManualClock(), Events()
    connections = _connections(clock, events)
    async with raw_serving() as server:
        one, peer = await _open(connections, Parts(clock=clock), server)
        two, _ = await _open(connections, Parts(clock=clock), server)
        assert set(connections) == {one, two}
        assert len(connections) == 2

        peer.reset()
        await until(lambda: len(connections) == 1)
        assert events.seen == ["open", "open", "close ConnectionResetError"]
        await connections.stop(1000)

        assert len(connections) == 0


async def test_only_idle_connections_are_closed_after_the_listener_is_notified() -> None:
    clock, events = ManualClock(), Events()
    connections = _connections(clock, events)
    connections.start()
    await settle()
    async with raw_serving() as server:
        _, idle = await _open(connections, Parts(clock=clock), server)
        _, busy = await _open(connections, Parts(clock=clock), server)
        await clock.advance(60_000)
        await busy.ask(Command(code=ECHO))

        await clock.advance(60_000)
        assert await idle.rest() == b""
        await until(lambda: len(connections) == 1)

        assert events.seen == ["open", "open", "idle", "close"]
        await clock.advance(60_000)
        assert await busy.rest() == b""
        await connections.stop(0)


async def test_an_error_of_a_listener_is_only_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Events):
        def on_open(self, connection: Connection) -> None:
            super().on_open(connection)
            raise ValueError("open")

    connections = _connections(ManualClock(), Broken())
    async with raw_serving() as server:
        connection, _ = await _open(connections, Parts(), server)
        assert not connection.closed
        connections.abort()
        await connections.stop(1000)

    assert [r.levelno for r in caplog.records] == [logging.ERROR]


async def test_a_connection_whose_socket_options_cannot_be_set_is_aborted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections = _connections(ManualClock(), events := Events())

    def refuse(*_: object, **__: object) -> None:
        raise OSError("Invalid argument")

    async with raw_serving() as server:
        # As on macOS when the peer is gone already.
        monkeypatch.setattr(Connection, "set_socket_options", refuse)
        connection, peer = await _open(connections, Parts(), server)

        await peer.rest()
        await until(lambda: len(connections) == 0)
        assert connection.closed
        assert events.seen == ["open", "close"]


async def test_stopping_waits_for_unsent_bytes_and_aborts_what_takes_too_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    connections = _connections(clock)
    connections.start()
    async with raw_serving(receive_buffer_bytes=4096) as server:
        stuck, _ = await _open(connections, Parts(clock=clock), server)
        reading, peer = await _open(connections, Parts(clock=clock), server)
        for connection in (stuck, reading):
            while not connection.writing_paused:
                connection.write(bytes(100_000))
        written = reading._written_bytes

        stopping = asyncio.create_task(connections.stop(1000))
        assert len(await peer.rest()) == written
        await until(lambda: len(connections) == 1)
        await clock.advance(999)
        assert not stopping.done()
        await clock.advance(1)
        await stopping

        assert len(connections) == 0
    assert caplog.text.count("connection aborted with unsent bytes") == 1
