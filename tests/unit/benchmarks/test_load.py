"""The load generator counts what is right and stops at what is wrong."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from benchmarks.load import Frames, LoadError, Slice, Workload, load
from orbitmq.protocol.command import Command
from orbitmq.protocol.frame import Encoding
from orbitmq.transport.config import ServerConfig
from orbitmq.transport.connection import Connection
from orbitmq.transport.request_loop import Handler
from orbitmq.transport.rpc_server import RpcServer

CODE = 105
BODY = b"eight by"

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

LoadOn = Callable[[Handler, Encoding], Awaitable[Slice]]


@pytest.fixture
async def load_on(tmp_path: Path) -> AsyncIterator[LoadOn]:
    """Puts a server with one handler under a hundred calls."""
    started: list[RpcServer] = []

    async def load_it(handler: Handler, encoding: Encoding) -> Slice:
        server = RpcServer(
            {CODE: handler}, config=ServerConfig(bind_address="127.0.0.1", listen_port=0)
        )
        started.append(server)
        await server.start()
        requests = [
            Command(code=CODE, fields={"topic": topic}, encoding=encoding)
            for topic in ("one", "two")
        ]
        return await load(
            port=server.port,
            server_pid=os.getpid(),
            workload=Workload(name="test", connections=3, in_flight=4, encoding=encoding),
            frames=Frames(requests, tmp_path / "frames"),
            seconds=20,
            calls_max=100,
        )

    yield load_it
    for server in started:
        await server.stop()


@pytest.mark.parametrize("encoding", list(Encoding))
async def test_every_call_is_counted_once_when_the_server_answers_well(
    load_on: LoadOn, encoding: Encoding
) -> None:
    topics: list[str] = []

    def answer(_: Connection, request: Command) -> Command:
        topics.append(request.fields["topic"])
        return request.reply(body=BODY)

    shown = await load_on(answer, encoding)

    assert shown.calls == 100
    assert shown.body_bytes == len(BODY)
    assert 0 < shown.p50_us <= shown.p99_us < shown.seconds * 1e6 * 1.04
    # Each of the three connections makes a first call that does not count.
    assert len(topics) == 103
    assert set(topics) == {"one", "two"}


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


async def test_a_connection_closed_by_the_server_ends_the_run(load_on: LoadOn) -> None:
    def close(connection: Connection, _: Command) -> None:
        connection.abort()

    with pytest.raises(LoadError, match=r"closed a connection|recv|send"):
        await load_on(close, Encoding.JSON)
