"""A relay between clients and a server that sends back what it gets."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from orbitmq.embedded.relay import Relay

HOST = "127.0.0.1"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Connection]]


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(1000):
        writer.write(chunk)
    writer.close()


@pytest.fixture
async def relay() -> AsyncIterator[Relay]:
    server = await asyncio.start_server(_echo, HOST, 0)
    relay = Relay(chance=random.Random(1))
    await relay.start(HOST)
    relay.lead_to(HOST, server.sockets[0].getsockname()[1])
    yield relay
    await relay.stop()
    server.close()


@pytest.fixture
async def connect(relay: Relay) -> AsyncIterator[Connect]:
    opened: list[asyncio.StreamWriter] = []

    async def connect() -> Connection:
        reader, writer = await asyncio.open_connection(HOST, relay.port)
        opened.append(writer)
        return reader, writer

    yield connect
    for writer in opened:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def _ask(connection: Connection) -> bytes:
    reader, writer = connection
    writer.write(b"hello")
    return await reader.read(5)


async def _over(connection: Connection) -> None:
    """Return once the other side has ended a connection."""
    with contextlib.suppress(ConnectionResetError):
        assert await connection[0].read(1) == b""


async def test_bytes_are_passed_on_both_ways(connect: Connect) -> None:
    assert await _ask(await connect()) == b"hello"


async def test_dropped_connections_end_and_new_ones_work(relay: Relay, connect: Connect) -> None:
    connections = [await connect() for _ in range(3)]
    for connection in connections:
        await _ask(connection)

    assert relay.drop() == 3

    for connection in connections:
        await _over(connection)
    assert relay.drop(share=0) == 0
    assert await _ask(await connect()) == b"hello"


async def test_refused_connections_are_cut_at_once(relay: Relay, connect: Connect) -> None:
    relay.refuses = True
    await _over(await connect())

    relay.refuses = False

    assert await _ask(await connect()) == b"hello"


async def test_a_server_that_is_gone_ends_the_connection(relay: Relay, connect: Connect) -> None:
    relay.lead_to(HOST, 1)
    await _over(await connect())


async def test_what_is_delayed_arrives_late(relay: Relay, connect: Connect) -> None:
    connection = await connect()
    await _ask(connection)
    relay.delay_ms, relay.jitter_ms = 20, 5
    begun = asyncio.get_running_loop().time()

    assert await _ask(connection) == b"hello"

    assert asyncio.get_running_loop().time() - begun >= 0.04
