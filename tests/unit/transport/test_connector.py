"""One connection per address."""

from __future__ import annotations

import asyncio
import socket

import pytest

from orbitmq.clock import ManualClock, settle
from orbitmq.errors import ConnectError, SettingsError
from orbitmq.transport.connection import Connection
from orbitmq.transport.connector import Connector
from tests.integration.transport.raw_peer import raw_serving
from tests.unit.transport.pairs import Parts
from tests.waiting import until


def _connector(parts: Parts) -> Connector:
    def new_connection(address: str) -> Connection:
        connection = parts.new_connection()
        connection.address = address
        connection._on_close = lambda lost, _: connector.forget(lost)
        return connection

    connector = Connector(
        connect_timeout_ms=1000, context=None, clock=parts.clock, new_connection=new_connection
    )
    return connector


async def test_a_connection_is_made_once_kept_and_made_again() -> None:
    connector = _connector(Parts())
    async with raw_serving() as server:
        assert connector.existing(server.address) is None
        first, *others = await asyncio.gather(
            *(connector.connection(server.address) for _ in range(50))
        )
        peer = await server.accept()
        assert all(other is first for other in others)
        assert connector.existing(server.address) is first
        assert connector.connected == {server.address}

        peer.close()
        await until(lambda: not connector.connected)
        again = await connector.connection(server.address)
        await server.accept()
        connector.forget(first)

        assert again is not first
        assert connector.existing(server.address) is again
        again.close()
        assert connector.existing(server.address) is None
        await until(lambda: not connector.connected)


async def test_a_closed_connection_makes_room_for_a_new_one_at_once() -> None:
    connector = _connector(Parts())
    async with raw_serving() as server:
        old = await connector.connection(server.address)
        old.close()

        new = await connector.connection(server.address)

        assert new is not old
        assert connector.existing(server.address) is new
        new.abort()
        await until(lambda: not connector.connected)


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("no-such-host.invalid", r"[A-Z][\w ]+ \(check"),
        ("a" * 70, "."),
        ("127.0.0.1", r"Connection refused \(check"),
    ],
)
async def test_a_failed_connection_names_its_reason(host: str, reason: str) -> None:
    connector = _connector(Parts())
    with pytest.raises(ConnectError, match=f"cannot connect to {host}:1: {reason}") as caught:
        await connector.connection(f"{host}:1")

    assert caught.value.__cause__ is not None
    assert not connector.connected
    with pytest.raises(SettingsError):
        await connector.connection("nowhere")


async def test_connecting_ends_at_its_timeout_and_at_a_stop() -> None:
    parts = Parts(clock=ManualClock())
    connector = _connector(parts)
    # Linux lets one more wait than the backlog says; the next one hangs.
    async with raw_serving(backlog=0) as server:
        fillers = [socket.socket() for _ in range(2)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", server.port))
        await settle()
        hanging = asyncio.create_task(connector.connection(server.address))
        await settle()
        await parts.clock.advance(1000)
        with pytest.raises(ConnectError, match="within 1000 ms"):
            await hanging

        hanging = asyncio.create_task(connector.connection(server.address))
        await settle()
        await connector.stop()
        with pytest.raises(ConnectError, match="the client is stopping"):
            await hanging
        for filler in fillers:
            filler.close()


async def test_a_connection_lost_while_it_was_made_is_not_kept() -> None:
    parts = Parts()
    connector = _connector(parts)
    made: list[Connection] = []
    new_connection = connector._new_connection

    def cut_at_once(address: str) -> Connection:
        connection = new_connection(address)
        connection._on_open = lambda opened: opened.abort()
        made.append(connection)
        return connection

    connector._new_connection = cut_at_once
    async with raw_serving() as server:
        connection = await connector.connection(server.address)

        assert connection is made[0]
        assert connection.closed
        assert not connector.connected
        await until(lambda: connection._transport.get_extra_info("socket") is None)
