"""The load generator counts what is right and stops at what is wrong."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from benchmarks.load import SERIAL_MARK, LoadError, Slice, Workload, load, write_frames
from orbitmq.protocol.command import Command
from orbitmq.protocol.frame import Encoding
from orbitmq.transport.config import ServerConfig
from orbitmq.transport.connection import Connection
from orbitmq.transport.request_loop import Handler
from orbitmq.transport.rpc_server import RpcServer

CODE = 105
BODY = b"eight by"

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

LoadOn = Callable[..., Awaitable[Slice]]


@pytest.fixture
async def load_on(tmp_path: Path) -> AsyncIterator[LoadOn]:
    """Puts a server with one handler under a hundred calls."""
    started: list[RpcServer] = []

    async def load_it(handler: Handler, encoding: Encoding, *, records: int = 0) -> Slice:
        server = RpcServer(
            {CODE: handler}, config=ServerConfig(bind_address="127.0.0.1", listen_port=0)
        )
        started.append(server)
        await server.start()
        requests = [
            Command(code=CODE, fields={"topic": topic, "id": SERIAL_MARK}, encoding=encoding)
            for topic in ("one", "three")
        ]
        return await load(
            port=server.port,
            server_pid=os.getpid(),
            workload=Workload(name="test", connections=3, in_flight=4, encoding=encoding),
            frames=write_frames(requests, tmp_path / "frames"),
            seconds=100,
            calls_max=100,
            first_serial=7,
            records=records,
        )

    yield load_it
    for server in started:
        await server.stop()


@pytest.mark.parametrize("encoding", list(Encoding))
async def test_every_call_is_counted_once_when_the_server_answers_well(
    load_on: LoadOn, encoding: Encoding
) -> None:
    topics: list[str] = []
    serials: set[int] = set()

    def answer(_: Connection, request: Command) -> Command:
        topics.append(request.fields["topic"])
        serials.add(int(request.fields["id"], 16))
        return request.reply(body=BODY)

    shown = await load_on(answer, encoding)

    assert shown.calls == 100
    assert shown.body_bytes == len(BODY)
    assert 0 < shown.latency.p50_us <= shown.latency.p99_us < shown.seconds * 1e6 * 1.04
    # Each of the three connections makes a first call that does not count.
    assert shown.first_calls == 3
    assert len(topics) == 103
    assert set(topics) == {"one", "three"}
    assert serials == set(range(7, 110))


def _other_opaque(request: Command) -> Command:
    reply = request.reply(body=BODY)
    reply.opaque += 1
    return reply


def _without_flag(request: Command) -> Command:
    reply = request.reply(body=BODY)
    reply.flag = 0
    return reply


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (lambda request: request.reply(code=1, body=BODY), "code 1"),
        (_other_opaque, "opaque"),
        (_without_flag, "response flag"),
    ],
)
async def test_a_wrong_answer_ends_the_run(
    load_on: LoadOn, encoding: Encoding, answer: Callable[[Command], Command], complaint: str
) -> None:
    with pytest.raises(LoadError, match=complaint):
        await load_on(lambda _, request: answer(request), encoding)


async def test_a_body_of_another_length_ends_the_run(load_on: LoadOn) -> None:
    bodies = iter([BODY] * 50 + [BODY + b"!"] * 100)

    with pytest.raises(LoadError, match="a body of 9 bytes after one of 8"):
        await load_on(lambda _, request: request.reply(body=next(bodies)), Encoding.JSON)


async def test_a_body_must_hold_the_records_asked_for(load_on: LoadOn) -> None:
    # As far as is looked at: the size, and what every record begins with.
    record = struct.pack(">II", 100, 0xDAA320A7) + bytes(92)

    shown = await load_on(
        lambda _, request: request.reply(body=record * 2), Encoding.JSON, records=2
    )

    assert shown.body_bytes == 2 * len(record)
    with pytest.raises(LoadError, match="2 records where 3 were asked for"):
        await load_on(lambda _, request: request.reply(body=record * 2), Encoding.JSON, records=3)
    with pytest.raises(LoadError, match="record is cut off"):
        await load_on(lambda _, request: request.reply(body=record[:40]), Encoding.JSON, records=1)


async def test_a_connection_closed_by_the_server_ends_the_run(load_on: LoadOn) -> None:
    def close(connection: Connection, _: Command) -> None:
        connection.abort()

    with pytest.raises(LoadError, match=r"closed a connection|recv|send"):
        await load_on(close, Encoding.JSON)
