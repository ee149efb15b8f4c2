"""A broker group in this process: a name server, a master and slaves, on sockets and on disk."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from orbitmq import java_json
from orbitmq.broker.app import Broker, load_settings
from orbitmq.broker.ports import find_port
from orbitmq.broker.replicated import ReplicatedBroker
from orbitmq.broker.replication.log_stream import PIECE, REPORT
from orbitmq.clock import Clock, settle
from orbitmq.embedded.local_broker import copy_running_store
from orbitmq.nameserver import app as name_server_app
from orbitmq.protocol.command import Command, request
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.offsets import CommitOffset
from orbitmq.protocol.requests.replication import (
    PromoteBroker,
    PromoteReply,
    ReadStanding,
    Standing,
)
from orbitmq.protocol.requests.statistics import GetReplication, Replication
from orbitmq.protocol.requests.topics import UpdateTopic
from orbitmq.transport.rpc_client import RpcClient
from tests.integration.broker.conftest import pull_header, send_header
from tests.waiting import WAIT_SECONDS, until

if TYPE_CHECKING:
    from orbitmq.clock import Clock

FILE_BYTES = 1 << 20
_OPTIONS = {
    "bindAddress": "127.0.0.1",
    "brokerIP1": "127.0.0.1",
    "mappedFileSizeCommitLog": str(FILE_BYTES),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "timerWheelEnable": "false",
    # The shortest that there is: a master that is replaced learns of it with its next report.
    "registerNameServerPeriod": "10000",
}


class HandSlave:
    """A slave moved by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def report(self, offset: int) -> None:
        """Report what it has."""
        self._writer.write(REPORT.pack(offset))
        await self._writer.drain()

    async def piece(self) -> tuple[int, bytes]:
        """Receive a piece of the log, and its offset."""
        offset, size = PIECE.unpack(await self._reader.readexactly(PIECE.size))
        return offset, await self._reader.readexactly(size)

    async def follow(self) -> None:
        """Report everything that it receives, until it is cancelled or disconnected."""
        while True:
            offset, content = await self.piece()
            await self.report(offset + len(content))

    async def ended(self) -> bool:
        """Whether the master closes the connection, whatever it sends before."""
        while await self._reader.read(65_536):
            pass
        return True

    def close(self) -> None:
        """Disconnect."""
        self._writer.close()


class Group:
    """Brokers of one name; each has a folder and keeps its port across restarts."""

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "group-a",
        beside: Group | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Prepare it; `beside` is a group whose name server it shares."""
        self.folder = folder
        self.name = name
        self._beside = beside
        self._clock = clock
        self.rpc = RpcClient()
        self._running: dict[int, ReplicatedBroker] = {}
        self._ports: dict[int, int] = {}
        self._options: dict[int, dict[str, str]] = {}
        # The master, while it is a process of its own.
        self._apart: subprocess.Popen[bytes] | None = None
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._name_server: name_server_app.NameServer
        if self._beside is not None:
            self._name_server = self._beside._name_server
        else:
            self._name_server = name_server_app.NameServer(
                name_server_app.load_settings(
                    flags={
                        "bindAddress": "127.0.0.1",
                        "listenPort": "0",
                        "kvConfigPath": str(self.folder / "kvConfig.json"),
                    }
                )
            )
            await self._name_server.start()
            self._opened.push_async_callback(self._name_server.stop)
        await self.rpc.start()
        self._opened.push_async_callback(self.rpc.stop)
        self._opened.push_async_callback(self._stop_all)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    async def _stop_all(self) -> None:
        if self._apart is not None:
            await self.kill(0)
        # Slaves last: a master that stops waits for them.
        for broker_id in sorted(self._running):
            await self.stop(broker_id)

    @property
    def brokers(self) -> dict[int, Broker]:
        """The brokers by the ids that they were configured with, whatever their role is now."""
        return {number: running.broker for number, running in self._running.items()}

    @property
    def namesrv(self) -> str:
        """The address of the name server."""
        return f"127.0.0.1:{self._name_server.port}"

    # --- brokers --------------------------------------------------------------------------------

    async def start(self, broker_id: int = 0, **options: str) -> Broker:
        """Start a broker, with the options of its last start unless others are given."""
        flags = self._flags(broker_id, options)
        running = ReplicatedBroker(load_settings(flags=flags), clock=self._clock)
        await running.start()
        self._ports[broker_id] = running.broker.port
        self._running[broker_id] = running
        return running.broker

    def _flags(self, broker_id: int, options: Mapping[str, str]) -> dict[str, str]:
        chosen = options or self._options.get(broker_id, {})
        self._options[broker_id] = dict(chosen)
        flags = {
            **_OPTIONS,
            "brokerName": self.name,
            "namesrvAddr": self.namesrv,
            "brokerId": str(broker_id),
            "storePathRootDir": str(self.folder / str(broker_id)),
            "listenPort": str(self._ports.get(broker_id, 0)),
            **chosen,
        }
        if broker_id:
            flags["brokerRole"] = "SLAVE"
        return flags

    async def start_apart(self, **options: str) -> None:
        """Start the master in a process of its own; `kill` sends it SIGKILL."""
        self._ports[0] = find_port("127.0.0.1")
        settings = (f"--set={key}={value}" for key, value in self._flags(0, options).items())
        command = [str(Path(sys.executable).with_name("orbitmq")), "broker", *settings]
        self.folder.mkdir(exist_ok=True)
        with (self.folder / "master.log").open("wb") as log:
            self._apart = await asyncio.to_thread(
                subprocess.Popen, command, stdout=log, stderr=subprocess.STDOUT
            )
        await until(lambda: self.master_in_routes() is not None)

    async def until_in_sync(self) -> None:
        """Wait until the master counts a slave as near."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                reply = await self.rpc.call(self.address(), GetReplication())
                if java_json.decode(reply.body, Replication).in_sync_slaves:
                    return
                await settle()

    async def stop(self, broker_id: int) -> None:
        """Stop a broker cleanly."""
        await self._running.pop(broker_id).stop()

    async def pair(
        self, *, slaves: int = 1, options: Mapping[str, str] | None = None
    ) -> tuple[Broker, ...]:
        """Start a master and slaves, and wait until all are connected."""
        started = [await self.start(number, **(options or {})) for number in range(slaves + 1)]
        await self.until_linked(slaves)
        return tuple(started)

    async def until_linked(self, slaves: int = 1, *, master: int = 0) -> None:
        """Wait until the master has this many slaves."""
        await until(lambda: len(self.brokers[master].replication.copies) == slaves)

    async def until_copied(self, broker_id: int = 1, *, master: int = 0) -> None:
        """Wait until a slave shows all that its master shows, and knows its epoch."""

        def is_copied() -> bool:
            above, below = self.brokers[master], self.brokers[broker_id]
            # A broker has no store while it starts in another role.
            if not hasattr(below, "store") or below.reign.epochs.epoch != above.reign.epochs.epoch:
                return False
            return below.store.visible == above.store.visible == above.store.log_end

        await until(is_copied)

    async def until_has_topic(self, name: str, broker_id: int = 1) -> None:
        """Wait until a slave has the entry of a topic, which follows apart from its messages."""
        await until(lambda: self.brokers[broker_id].tables.topics.get(name) is not None)

    async def until_role(self, broker_id: int, role: str) -> None:
        """Wait until a broker has started in a role, and answers as such."""
        await until(lambda: self.brokers[broker_id].is_serving_as(role))

    async def promote(self, broker_id: int, *, epoch: int = 1, **fields: Any) -> PromoteReply:
        """Promote a slave, and wait until it is the master."""
        reply = await self.ask_to_promote(broker_id, epoch=epoch, **fields)
        await self.until_role(broker_id, fields.get("role") or "ASYNC_MASTER")
        return reply

    async def ask_to_promote(
        self, broker_id: int, *, epoch: int = 1, **fields: Any
    ) -> PromoteReply:
        """Ask a slave to become the master, which it has yet to start as."""
        asked = PromoteBroker(broker_name=self.name, epoch=Long(epoch), **fields)
        reply = await self.rpc.call(self.address(broker_id), asked, timeout_ms=30_000)
        return PromoteReply.decode(reply.fields)

    async def standing(self, broker_id: int) -> Standing:
        """What a broker says of its place in the group."""
        reply = await self.rpc.call(self.address(broker_id), ReadStanding())
        return msgspec.json.decode(reply.body, type=Standing)

    async def kill(self, broker_id: int) -> None:
        """End a broker as a kill does: its files stay as they are now."""
        if self._apart is not None and not broker_id:
            self._apart.kill()
            await asyncio.to_thread(self._apart.wait)
            self._apart = None
            return
        running = self._running.pop(broker_id)
        folder = self.folder / str(broker_id)
        image = folder.with_name(f"{broker_id}.killed")
        await running.abort()
        await asyncio.to_thread(copy_running_store, folder, image)
        await running.stop()
        await asyncio.to_thread(shutil.rmtree, folder)
        image.rename(folder)

    async def until_missed(self, broker_id: int) -> None:
        """Wait until the name server has noticed that a broker is gone."""
        routes = self._name_server.routes
        await until(lambda: broker_id not in routes.addresses_of(self.name))

    def master_in_routes(self) -> str | None:
        """The master that the name server shows."""
        return self._name_server.routes.addresses_of(self.name).get(0)

    async def connect_slave(self) -> HandSlave:
        """Connect to the master's log as a slave that does what the test says."""
        port = self._ports[0] + 1
        slave = HandSlave(*await asyncio.open_connection("127.0.0.1", port))
        self._opened.callback(slave.close)
        return slave

    # --- requests -------------------------------------------------------------------------------

    def address(self, broker_id: int = 0) -> str:
        """Where a broker takes requests."""
        if self._apart is not None and not broker_id:
            return f"127.0.0.1:{self._ports[0]}"
        return self.brokers[broker_id].advertised

    async def create_topic(
        self, name: str = "T", queues: int = 1, broker_id: int = 0, **fields: Any
    ) -> None:
        await self.rpc.call(
            self.address(broker_id),
            UpdateTopic(
                topic=name,
                template_topic="TBW102",
                read_queues=queues,
                write_queues=queues,
                permission=6,
                filter_type="SINGLE_TAG",
                **fields,
            ),
        )

    async def send(self, body: bytes = b"body", broker_id: int = 0, **fields: Any) -> Command:
        """Send a message; returns the answer, whatever its code."""
        asked = request(send_header(**fields), body)
        return await self.rpc.invoke(self.address(broker_id), asked, timeout_ms=30_000)

    async def pull(self, broker_id: int, offset: int = 0, **fields: Any) -> Command:
        """Pull messages; returns the answer, whatever its code."""
        asked = request(pull_header(offset=offset, **fields))
        return await self.rpc.invoke(self.address(broker_id), asked)

    async def commit(self, topic: str, offset: int, broker_id: int = 0) -> None:
        """Commit an offset of group g in queue 0."""
        await self.rpc.call(
            self.address(broker_id),
            CommitOffset(consumer_group="g", topic=topic, queue_id=0, commit_offset=Long(offset)),
        )

    def log_of(self, broker_id: int) -> bytes:
        """All bytes of a broker's log."""
        store = self.brokers[broker_id].store
        parts: list[bytes] = []
        at: int = store.log_start
        while at < store.log_end:
            size = min(FILE_BYTES - at % FILE_BYTES, store.log_end - at)
            parts.append(store.parts.log.pread(at, size) or b"")
            at += size
        return b"".join(parts)
