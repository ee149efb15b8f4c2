"""A relay between clients and a server that sends back what it gets."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from orbitmq.embedded.relay import Relay
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import Command, decode_frame

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
    relay.set_target(HOST, server.sockets[0].getsockname()[1])
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
    relay.set_target(HOST, 1)
    await _over(await connect())


async def test_what_is_delayed_arrives_late(relay: Relay, connect: Connect) -> None:
    connection = await connect()
    await _ask(connection)
    relay.delay_ms, relay.jitter_ms = 20, 5
    begun = asyncio.get_running_loop().time()

    assert await _ask(connection) == b"hello"

    assert asyncio.get_running_loop().time() - begun >= 0.04


async def _send(connection: Connection, code: int) -> None:
    connection[1].write(Command(code=code, body=b"x").encode())


async def _answered(connection: Connection) -> int:
    """The code of the next frame that comes back."""
    length = await connection[0].readexactly(4)
    rest = await connection[0].readexactly(int.from_bytes(length, "big"))
    return decode_frame(length + rest).code


async def test_requests_that_are_held_arrive_when_they_are_released(
    relay: Relay, connect: Connect
) -> None:
    held, other = await connect(), await connect()
    relay.hold(RequestCode.MOVE_ROWS)

    await _send(held, RequestCode.STAGE_ROWS)
    await _send(held, RequestCode.MOVE_ROWS)
    assert await _answered(held) == RequestCode.STAGE_ROWS
    answer = asyncio.ensure_future(_answered(held))
    # Far longer than it takes.
    for _ in range(20):
        await _send(other, RequestCode.STAGE_ROWS)
        await _answered(other)
    assert not answer.done()
    relay.release(RequestCode.MOVE_ROWS)

    assert await answer == RequestCode.MOVE_ROWS
    await _send(held, RequestCode.MOVE_ROWS)
    assert await _answered(held) == RequestCode.MOVE_ROWS


async def test_a_frame_that_comes_in_pieces_is_passed_on_whole(
    relay: Relay, connect: Connect
) -> None:
    reader, writer = await connect()
    relay.hold(RequestCode.MOVE_ROWS)
    frame = Command(code=RequestCode.STAGE_ROWS, body=b"x" * 200_000).encode()

    writer.write(frame + frame[:100])
    assert await reader.readexactly(len(frame)) == frame
    writer.write(frame[100:])

    assert await reader.readexactly(len(frame)) == frame
    relay.release(RequestCode.STAGE_ROWS)  # nothing of the kind was held


async def test_what_is_no_frame_passes_while_requests_are_held(
    relay: Relay, connect: Connect
) -> None:
    relay.hold(RequestCode.MOVE_ROWS)
    connection = await connect()

    assert await _ask(connection) == b"hello"
    assert await _ask(connection) == b"hello"
