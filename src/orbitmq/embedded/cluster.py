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
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, Self

from orbitmq.broker.replication.config import BrokerRole
from orbitmq.client.aio.admin import Admin
from orbitmq.client.sync.background_loop import BackgroundLoop
from orbitmq.clock import ForwardClock, SystemClock, time_limit
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
SLAVES_MAX: Final = 3
# Far above what slaves take to copy what a test stores.
_COPIED_MS_MAX: Final = 60_000
_LOOK_MS: Final = 10
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # we create our own folder in it
# Enough for tests, and quick to create.
_SMALL_FILES: Final = {
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
}


class Cluster:
    """A name server and brokers `broker-a`, `broker-b`, … of one cluster, and slaves of each.

    Slaves are `broker-a-slave-1`, …; each broker keeps its name when another one becomes master.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        slaves: int = 0,
        directory: Path | str | None = None,
        in_memory: bool = False,
        network_faults: bool = False,
        seed: int = 0,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare a cluster.

        `slaves` is how many slaves each broker has; sends wait for one of them, unless `options`
        has another `brokerRole`. `directory` stores the messages, and a later cluster can open it again; without it, they
        are deleted with this cluster. `in_memory` stores them in shared memory if the system has
        it. `network_faults` puts a relay in front of each broker, which `faults` needs to drop and
        delay connections. `options` are options of the brokers, by RocketMQ's names.
        """
        if not 1 <= brokers <= BROKERS_MAX:
            raise SettingsError(
                f"a cluster cannot have {brokers} brokers", hint=f"choose 1 to {BROKERS_MAX}"
            )
        if not 0 <= slaves <= SLAVES_MAX:
            raise SettingsError(
                f"a broker cannot have {slaves} slaves", hint=f"choose 0 to {SLAVES_MAX}"
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
        self._slaves = slaves
        role = {"brokerRole": BrokerRole.SYNC_MASTER} if slaves else {}
        self._options = {**_SMALL_FILES, **role, **(options or {})}
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
        # Slaves last: messages of a master that stops may still wait for them.
        self._opened.push_async_callback(self._stop_brokers)
        for slave in range(self._slaves + 1):
            for name in self._names:
                await self._start_broker(name, slave, folder)
        await self._until_copied(self._names)

    async def _stop_brokers(self) -> None:
        for broker in sorted(self._brokers.values(), key=lambda one: one.is_slave):
            await broker.stop()

    async def _start_broker(self, name: str, slave: int, folder: Path) -> None:
        relay = None
        if self._network_faults:
            relay = Relay(chance=self.faults.chance)
            await relay.start(HOST)
            self._opened.push_async_callback(relay.stop)
        broker = LocalBroker(
            name,
            slave=slave,
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
        self._brokers[broker.name] = broker
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
        """The names of the brokers, without slaves."""
        return list(self._names)

    def _is_registered(self, group: str, address: str) -> bool:
        assert self._name_server is not None
        return address in self._name_server.routes.addresses_of(group).values()

    def create_topic(self, name: str, *, queues: int = 4, attributes: str = "") -> None:
        """Create a topic with this many queues on each running master, and its slaves."""

        async def create() -> None:
            masters = self._masters()
            for broker in masters:
                await broker.create_topic(self._rpc, name, queues=queues, attributes=attributes)
            await self._until_copied([broker.group for broker in masters])

        self._loop.call(create())

    def ensure_topic(self, name: str, *, queues: int = 1) -> None:
        """Create a topic unless it exists."""

        async def is_known() -> bool:
            assert self._name_server is not None
            return name in self._name_server.routes.topics()

        if not self._loop.call(is_known()):
            self.create_topic(name, queues=queues)

    def message_count(self, topic: str) -> int:
        """How many messages of a topic consumers can see, on all running masters."""

        async def count() -> int:
            return sum(broker.message_count(topic) for broker in self._masters())

        return self._loop.call(count())

    def advance(self, *, seconds: float) -> None:
        """Move the time forward, for the servers and for clients that use `clock`."""
        self.clock.advance(seconds * 1000)

    def broker(self, name: str | None = None) -> LocalBroker:
        """Find a broker by name; by default, the first one."""
        return find_broker(self._brokers, name or self._names[0])

    # --- slaves ---------------------------------------------------------------------------------

    def master(self, name: str | None = None) -> str:
        """The name of the broker that is the master of a group now; by default, of the first one."""
        group = self.broker(name).group
        for broker in self._masters():
            if broker.group == group:
                return broker.name
        raise StateError(
            f"{group} has no master now", hint="restart a broker of it, or promote a slave"
        )

    def promote(self, name: str | None = None, *, force: bool = False) -> str:
        """Make a slave the master, as `orbitmq broker promote` does; returns its name.

        `name` is that of the slave, or of a broker whose slave with the longest log is chosen.
        `force` does it even if the master is running.
        """
        broker = self.broker(name)

        async def promote() -> str:
            async with Admin(namesrv=self.namesrv) as admin:
                slave = broker.address if broker.is_slave else None
                plan = await admin.promotion.plan(broker.group, slave=slave)
                done = await admin.promotion.promote(plan, force=force)
            return next(
                one.name
                for one in self._brokers.values()
                if one.is_running and one.address == done.address
            )

        return self._loop.call(promote())

    def wait_for_slaves(self) -> None:
        """Wait until slaves that run have all that their masters have: messages, topics, offsets."""
        self._loop.call(self._until_copied([broker.group for broker in self._masters()]))

    def _masters(self) -> list[LocalBroker]:
        return [broker for broker in self._brokers.values() if broker.is_master]

    async def _until_copied(self, groups: Collection[str]) -> None:
        """Wait until the running slaves of some groups have what their masters have."""
        waiting = [
            broker
            for broker in self._brokers.values()
            if broker.is_running and broker.group in groups and not broker.is_master
        ]
        clock = SystemClock()
        try:
            async with time_limit(clock, _COPIED_MS_MAX):
                while waiting := [one for one in waiting if not await self._is_copied(one)]:
                    await clock.sleep_ms(_LOOK_MS)
        except TimeoutError as error:
            names = ", ".join(one.name for one in waiting)
            raise StateError(
                f"slaves did not copy their masters within {_COPIED_MS_MAX // 1000} s: {names}",
                hint="the log of orbitmq.broker.replication says why",
            ) from error

    async def _is_copied(self, slave: LocalBroker) -> bool:
        master = next((one for one in self._masters() if one.group == slave.group), None)
        # While roles change, a group has no master, or two brokers that are none.
        return master is slave or (
            master is not None and slave.is_slave and await slave.copies(master)
        )
