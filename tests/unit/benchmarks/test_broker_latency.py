"""The generator of deliveries takes every message once and in order, and nothing else."""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from benchmarks.broker_latency import PROGRAM
from benchmarks.broker_requests import pull_request, send_request
from benchmarks.load import LoadError, compiled, run, write_frames
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import Command
from orbitmq.transport.config import ServerConfig
from orbitmq.transport.connection import Connection
from orbitmq.transport.rpc_server import RpcServer

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

QUEUES = 2
RATE = 1_000
SECONDS = 0.1


class SmallBroker:
    """Keeps messages of queues, and lets pulls wait for them."""

    def __init__(self) -> None:
        self.queues: dict[int, list[bytes]] = defaultdict(list)
        self.grown = asyncio.Condition()
        # What is added to the number of every message but the first.
        self.wrong_by = 0
        self.is_ending = False

    async def send(self, _: Connection, request: Command) -> Command:
        """Keep a message, as far as the generator looks at it."""
        queue = self.queues[int(request.fields["e"])]
        number = len(queue) + (self.wrong_by if queue else 0)
        head = struct.pack(">II12xq60x", 88 + len(request.body), 0xDAA320A7, number)
        async with self.grown:
            queue.append(head + request.body)
            self.grown.notify_all()
        return request.reply()

    async def pull(self, _: Connection, request: Command) -> Command:
        """Answer with what is there from the offset asked for on, as soon as something is."""
        queue = self.queues[int(request.fields["queueId"])]
        offset = int(request.fields["queueOffset"])
        async with self.grown:
            await self.grown.wait_for(lambda: len(queue) > offset or self.is_ending)
        return request.reply(body=b"".join(queue[offset:]))

    async def end(self) -> None:
        """Let no pull wait any longer."""
        async with self.grown:
            self.is_ending = True
            self.grown.notify_all()


@pytest.fixture
async def broker() -> AsyncIterator[tuple[SmallBroker, int]]:
    """A broker and its port."""
    small = SmallBroker()
    server = RpcServer(
        {RequestCode.SEND_MESSAGE_V2: small.send, RequestCode.PULL_MESSAGE: small.pull},
        config=ServerConfig(bind_address="127.0.0.1", listen_port=0),
    )
    await server.start()
    yield small, server.port
    await small.end()
    await server.stop()


async def _deliver(port: int, folder: Path) -> dict[str, object]:
    queues = range(QUEUES)
    sends = write_frames([send_request("orders", n, 128) for n in queues], folder / "sends")
    pulls = write_frames([pull_request("orders", n, None, 32) for n in queues], folder / "pulls")
    made = await run(
        [compiled(PROGRAM), port, RATE, SECONDS, sends, pulls, "0,0", 0],
        server_pid=os.getpid(),
        seconds=SECONDS,
        what="test",
    )
    printed: dict[str, object] = msgspec.json.decode(made.printed)
    return printed


async def test_every_message_is_taken_once(broker: tuple[SmallBroker, int], tmp_path: Path) -> None:
    small, port = broker

    printed = await _deliver(port, tmp_path)

    assert printed["messages"] == RATE * SECONDS
    assert [len(small.queues[number]) for number in range(QUEUES)] == [50, 50]


async def test_a_message_out_of_order_ends_the_run(
    broker: tuple[SmallBroker, int], tmp_path: Path
) -> None:
    small, port = broker
    small.wrong_by = 1

    with pytest.raises(LoadError, match="record 2 came where 1 should"):
        await _deliver(port, tmp_path)
