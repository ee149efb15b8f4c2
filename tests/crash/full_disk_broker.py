"""A broker on a full disk: `python -m tests.crash.full_disk_broker ROOT killed|stopped`.

ROOT lies on a small file system of its own. A broker stores messages there and is killed, or it
stops and loses its tables. Then the disk has no room for another byte or file. The broker starts
again, serves what it has, refuses more, and accepts it once there is room. Prints the refusal.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from orbitmq.protocol.codes import ResponseCode
from orbitmq.transport.rpc_client import RpcClient
from tests.integration.broker.conftest import Peer
from tests.integration.cli.test_namesrv import COMMAND
from tests.waiting import until_reached

TOPIC = "numbers"
COUNT = 30
TABLES = ("topics.json", "subscriptionGroup.json")
SELDOM, OFTEN = "60000", "50"
_WAIT_SECONDS = 60
_FILES_MAX = 10_000


class Disk:
    """The file system, which can be filled up."""

    def __init__(self, root: Path) -> None:
        self._folder = root / "ballast"
        self._folder.mkdir()

    def fill(self) -> None:
        """Take every byte, and every file that it can hold."""
        with (self._folder / "bytes").open("wb", buffering=0) as file:
            size = 1 << 16
            while size:
                try:
                    file.write(bytes(size))
                except OSError:
                    size //= 2
        try:
            for number in range(_FILES_MAX):
                (self._folder / str(number)).touch()
        except OSError:
            return
        raise AssertionError("the file system must have a bound on files")

    def make_room(self) -> None:
        """Give all of it back."""
        for path in self._folder.iterdir():
            path.unlink()


class Running:
    """A broker process, and what it logs."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.log = ""
        self._started = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self.log += line.decode()
            if b"broker started" in line:
                self._started.set()
        self._started.set()

    async def address(self) -> str:
        """Wait for the start, and return where it listens."""
        async with asyncio.timeout(_WAIT_SECONDS):
            await self._started.wait()
        assert "broker started" in self.log, self.log
        return self.log.rpartition("address=")[2].split()[0]

    async def end(self, number: signal.Signals) -> None:
        """End it, and return once it has ended."""
        self.process.send_signal(number)
        async with asyncio.timeout(_WAIT_SECONDS):
            await self._reading
            await self.process.wait()


@asynccontextmanager
async def broker(
    root: Path, *, ends_by: signal.Signals, queues_ms: str
) -> AsyncIterator[tuple[Running, Peer]]:
    """A broker, from its start to its end; it writes its queues every `queues_ms`."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "broker",
        "--host=127.0.0.1",
        "--port=0",
        f"--store={root / 'store'}",
        "--set=mappedFileSizeCommitLog=1048576",
        "--set=maxHashSlotNum=100",
        "--set=maxIndexNum=400",
        "--set=flushConsumerOffsetInterval=1000",
        f"--set=flushIntervalConsumeQueue={queues_ms}",
        stderr=PIPE,
    )
    running = Running(process)
    try:
        async with RpcClient() as rpc:
            yield running, Peer(await running.address(), rpc)
            await running.end(ends_by)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def store_messages(root: Path, case: str) -> None:
    """Store messages, and leave what the case needs."""
    ends_by, queues_ms = signal.SIGTERM, OFTEN
    if case == "killed":
        ends_by, queues_ms = signal.SIGKILL, SELDOM
    async with broker(root, ends_by=ends_by, queues_ms=queues_ms) as (_, peer):
        await peer.make_topic(TOPIC, read=1, write=1)
        for number in range(COUNT):
            reply = await peer.send(TOPIC, b"%d" % number)
            assert reply.code == 0, reply.remark
    if case == "stopped":
        for path in (root / "store" / "config").iterdir():
            path.unlink()


async def scenario(root: Path, case: str) -> str:
    """Store, fill the disk, start, refuse, make room, continue; returns the refusal."""
    disk = Disk(root)
    await store_messages(root, case)
    disk.fill()
    async with broker(root, ends_by=signal.SIGTERM, queues_ms=OFTEN) as (running, peer):
        end = COUNT
        # The log may have room for some, until entries of the queue find none.
        while not (refused := await peer.send(TOPIC, b"%d" % end)).code:
            end += 1
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE, refused
        bodies = [message.body for message in await peer.read(TOPIC)]
        assert bodies == [b"%d" % number for number in range(len(bodies))]
        assert len(bodies) >= COUNT

        disk.make_room()
        async with asyncio.timeout(_WAIT_SECONDS):
            while (reply := await peer.send(TOPIC, b"%d" % end)).code:
                assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE, reply
        assert reply.fields["queueOffset"] == str(end)
        config = root / "store" / "config"
        await until_reached(
            lambda: all((config / name).is_file() for name in TABLES),
            timeout_s=_WAIT_SECONDS,
            what="the tables are written",
        )
        (message,) = await peer.read(TOPIC, end)
        assert message.body == b"%d" % end
    assert "Traceback" not in running.log, running.log
    assert not (root / "store" / "abort").exists()
    return refused.remark


if __name__ == "__main__":
    sys.stdout.write(asyncio.run(scenario(Path(sys.argv[1]), sys.argv[2])) + "\n")
