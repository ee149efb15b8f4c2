"""A whole cluster in this process: name server, brokers, a clock, and faults.

    with Cluster() as mq:
        mq.create_topic("orders")
        ...  # any client, with mq.namesrv as its name server

Threads: the servers run on one event loop in their own thread; call from any other thread.
Fork: a cluster belongs to the process that started it; children do not touch it.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from orbitmq.client.sync.background_loop import BackgroundLoop
from orbitmq.clock import ForwardClock
from orbitmq.disk import make_folder
from orbitmq.embedded.faults import Faults
from orbitmq.embedded.local_broker import LocalBroker, find_broker
from orbitmq.embedded.relay import Relay
from orbitmq.errors import SettingsError, StateError
from orbitmq.nameserver.app import NameServer, load_settings
from orbitmq.transport.addresses import format_address
from orbitmq.transport.rpc_client import RpcClient

HOST: Final = "127.0.0.1"
BROKERS_MAX: Final = 26
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # we create our own folder in it
# Enough for tests, and quick to create.
_SMALL_FILES: Final = {
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
}


class Cluster:
    """A name server and brokers `broker-a`, `broker-b`, … of one cluster."""

    def __init__(
        self,
        *,
        brokers: int = 1,
        directory: Path | str | None = None,
        in_memory: bool = False,
        network_faults: bool = False,
        seed: int = 0,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare a cluster.

        `directory` stores the messages, and a later cluster can open it again; without it, they
        are deleted with this cluster. `in_memory` stores them in shared memory if the system has
        it. `network_faults` puts a relay in front of each broker, which `faults` needs to drop and
        delay connections. `options` are options of the brokers, by RocketMQ's names.
        """
        if not 1 <= brokers <= BROKERS_MAX:
            raise SettingsError(
                f"a cluster cannot have {brokers} brokers", hint=f"choose 1 to {BROKERS_MAX}"
            )
        if directory is not None and in_memory:
            raise SettingsError(
                f"messages cannot be both in {directory} and in memory",
                hint="give either directory or in_memory",
            )
        self.clock = ForwardClock()
        self._names = [f"broker-{chr(ord('a') + number)}" for number in range(brokers)]
        self._directory = Path(directory) if directory is not None else None
        self._in_memory = in_memory
        self._network_faults = network_faults
        self._options = {**_SMALL_FILES, **(options or {})}
        self._loop = BackgroundLoop("orbitmq-cluster", owner="cluster")
        # One thread at a time starts or stops it; a failed start stops it.
        self._guard = threading.RLock()
        # On the loop too: an interrupted start ends before the stop begins.
        self._changing = asyncio.Lock()
        self._opened = contextlib.AsyncExitStack()
        self._folder: Path | None = None
        self._is_started = self._is_stopped = False
        self._name_server: NameServer | None = None
        self._brokers: dict[str, LocalBroker] = {}
        self.faults = Faults(
            self._brokers, self._loop, is_registered=self._is_registered, seed=seed
        )

    # --- starting and stopping ------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self.start()
        except KeyboardInterrupt:
            # It may arrive after the start, before anyone else could stop the cluster.
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self.start)
        except asyncio.CancelledError:
            # The thread keeps running regardless: stop what it starts.
            await asyncio.to_thread(self.stop)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    def start(self) -> None:
        """Start everything; returns once clients can connect."""
        with self._guard:
            if self._is_started:
                raise StateError("the cluster was already started", hint="create a new one")
            try:
                self._loop.start()
                self._is_started = True
                # Cleans up even if the caller never stops it.
                self._loop.stop_at_exit(self._stop_at_exit)
                self._folder = self._make_folder()
                self._loop.call(self._start_servers(self._folder))
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """Stop everything; deletes all files, except in a directory that was given."""
        if self._loop.belongs_to_parent:
            return
        with self._guard:
            if not self._is_started or self._is_stopped:
                return
            self._is_stopped = True
            try:
                self._loop.call(self._stop_servers())
            finally:
                # Servers whose start was interrupted have threads that may write until then.
                self._loop.end()
                self._remove_folder()

    async def _start_servers(self, folder: Path) -> None:
        async with self._changing:
            await self._start(folder)

    async def _stop_servers(self) -> None:
        async with self._changing:
            await self._opened.aclose()

    async def _stop_at_exit(self) -> None:
        try:
            await self._stop_servers()
        finally:
            self._remove_folder()

    async def _start(self, folder: Path) -> None:
        self._name_server = NameServer(
            load_settings(
                flags={
                    "bindAddress": HOST,
                    "listenPort": "0",
                    "kvConfigPath": str(folder / "kvConfig.json"),
                }
            ),
            clock=self.clock,
        )
        await self._name_server.start()
        self._opened.push_async_callback(self._name_server.stop)
        self._rpc = RpcClient()
        await self._rpc.start()
        self._opened.push_async_callback(self._rpc.stop)
        for name in self._names:
            await self._start_broker(name, folder)

    async def _start_broker(self, name: str, folder: Path) -> None:
        relay = None
        if self._network_faults:
            relay = Relay(chance=self.faults.chance)
            await relay.start(HOST)
            self._opened.push_async_callback(relay.stop)
        broker = LocalBroker(
            name,
            folder=folder,
            options={
                "bindAddress": HOST,
                "brokerIP1": HOST,
                "namesrvAddr": self.namesrv,
                **self._options,
            },
            clock=self.clock,
            relay=relay,
        )
        self._brokers[name] = broker
        self._opened.push_async_callback(broker.stop)
        await broker.start()

    def _make_folder(self) -> Path:
        if self._directory is not None:
            make_folder(self._directory)
            return self._directory
        parent = _SHARED_MEMORY if self._in_memory and _SHARED_MEMORY.is_dir() else None
        return Path(tempfile.mkdtemp(prefix="orbitmq-", dir=parent))

    def _remove_folder(self) -> None:
        if self._directory is None and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    # --- using it -------------------------------------------------------------------------------

    @property
    def namesrv(self) -> str:
        """The address of the name server, as clients take it."""
        if self._name_server is None:
            raise StateError("the cluster is not started", hint="use it in a with block")
        return format_address((HOST, self._name_server.port))

    @property
    def brokers(self) -> list[str]:
        """The names of the brokers."""
        return list(self._names)

    def _is_registered(self, name: str) -> bool:
        return self._name_server is not None and bool(self._name_server.routes.addresses_of(name))

    def create_topic(self, name: str, *, queues: int = 4, attributes: str = "") -> None:
        """Create a topic with this many queues on each running broker."""

        async def create() -> None:
            for broker in self._brokers.values():
                if broker.is_running:
                    await broker.create_topic(self._rpc, name, queues=queues, attributes=attributes)

        self._loop.call(create())

    def ensure_topic(self, name: str, *, queues: int = 1) -> None:
        """Create a topic unless it exists."""

        async def is_known() -> bool:
            assert self._name_server is not None
            return name in self._name_server.routes.topics()

        if not self._loop.call(is_known()):
            self.create_topic(name, queues=queues)

    def message_count(self, topic: str) -> int:
        """How many messages of a topic consumers can see, on all running brokers."""

        async def count() -> int:
            return sum(
                broker.message_count(topic)
                for broker in self._brokers.values()
                if broker.is_running
            )

        return self._loop.call(count())

    def advance(self, *, seconds: float) -> None:
        """Move the time forward, for the servers and for clients that use `clock`."""
        self.clock.advance(seconds * 1000)

    def broker(self, name: str | None = None) -> LocalBroker:
        """Find a broker by name; by default, the first one."""
        return find_broker(self._brokers, name or self._names[0])
