"""A cluster of real processes: a name server, masters and their slaves, and a link for every pair.

Nobody reaches a server but over a link of their own: what a name server tells of addresses is
replaced on the way by those of links. Only auditors, who must see the truth, ask servers directly.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orbitmq.store.config import FlushMode
from tests.interop import wire
from tests.interop.ours import OrbitBroker, OrbitNameServer
from tests.replication.links import Link
from tests.waiting import beside, until_reached

CLIENTS, NAME_SERVER = "clients", "names"
START_TIMEOUT_S: Final = 60
PERSIST_INTERVAL_MS: Final = 500
OPTIONS: Final = {
    # Small files, so that each life fills several.
    "mappedFileSizeCommitLog": str(1 << 20),
    "flushConsumerOffsetInterval": str(PERSIST_INTERVAL_MS),
    # A broker whose registrations were lost is back soon.
    "registerNameServerPeriod": "10000",
}


REPLICATION_OPTIONS: Final = {
    # What is cut off is noticed within a schedule, and sends do not wait longer than producers do.
    "haSendHeartbeatInterval": "300",
    "haHousekeepingInterval": "1500",
    "slaveTimeout": "500",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How many servers a cluster has, and how they replicate."""

    masters: int = 1
    slaves: int = 0
    sync: bool = False
    flush: FlushMode = FlushMode.SYNC

    def __str__(self) -> str:
        role = "SYNC_MASTER" if self.sync else "ASYNC_MASTER"
        slaves = f"{self.slaves} slave{'' if self.slaves == 1 else 's'}"
        return f"{self.masters} x {role} with {slaves}, {self.flush.value}"


@dataclass(frozen=True, slots=True)
class Server:
    """A master or a slave, as a process."""

    name: str
    broker_id: int
    process: OrbitBroker

    @property
    def broker(self) -> str:
        """The name that a master shares with its slaves."""
        return self.process.name

    @property
    def address(self) -> str:
        """Where it listens itself."""
        return self.process.address

    @property
    def replication_address(self) -> str:
        """Where it listens for slaves."""
        host, _, port = self.address.rpartition(":")
        return f"{host}:{int(port) + 1}"

    @property
    def is_master(self) -> bool:
        """Whether it was started as a master."""
        return self.broker_id == 0


class Cluster:
    """The processes, and the links between them and to their clients."""

    def __init__(self, folder: Path, shape: Shape, *, seed: int) -> None:
        self.shape = shape
        self._folder = folder
        self._seed = seed
        self.name_server = OrbitNameServer(folder / NAME_SERVER)
        self.links: dict[str, Link] = {}
        self.servers: dict[str, Server] = {}

    @property
    def namesrv(self) -> str:
        """The address for clients."""
        return self.links[_between(CLIENTS, NAME_SERVER)].address

    def masters(self) -> list[Server]:
        """The servers that take sends."""
        return [server for server in self.servers.values() if server.is_master]

    def server_at(self, address: str) -> str:
        """Name the server that listens at an address, its own or that of a link to it."""
        for server in self.servers.values():
            if address == server.address:
                return server.name
        for link in self.links.values():
            if address == link.address:
                return self.server_at(link.target)
        return address

    async def start(self) -> None:
        """Start everything; returns once every server is registered."""
        self.name_server.process.start()
        await self._link(CLIENTS, NAME_SERVER, self.name_server.address)
        for number in range(self.shape.masters):
            for broker_id in range(self.shape.slaves + 1):
                await self._add("abcdefgh"[number], broker_id)
        for server in self.servers.values():
            await self._link_server(server)
        await asyncio.gather(beside(self.name_server.wait_ready), self._start(self.masters()))
        # They find their masters at once.
        slaves = [server for server in self.servers.values() if not server.is_master]
        await self._start(slaves)
        for slave in slaves:
            process = slave.process.process
            await beside(process.wait_printed, "log is copied", timeout_s=START_TIMEOUT_S)

    async def _start(self, servers: Sequence[Server]) -> None:
        for server in servers:
            server.process.process.start()
        await asyncio.gather(*(beside(server.process.wait_ready) for server in servers))

    async def stop(self) -> None:
        """Kill everything."""
        for server in self.servers.values():
            await beside(server.process.process.kill)
        await beside(self.name_server.process.kill)
        for link in self.links.values():
            await link.stop()

    def links_to(self, server: Server) -> list[Link]:
        """The links over which others reach a server."""
        addresses = {server.address, server.replication_address}
        return [link for link in self.links.values() if link.target in addresses]

    async def create_topic(self, topic: str, *, queues: int) -> None:
        """Create a topic on all masters."""
        for server in self.masters():
            await beside(server.process.create_topic, topic, queues=queues)

    async def is_up(self, server: Server) -> None:
        """Wait until a server that was started answers."""

        def answers() -> bool:
            if not server.process.process.is_running():
                raise ChildProcessError(
                    f"{server.name} ended at start\n{server.process.process.tail()}"
                )
            try:
                return wire.ask(server.address, wire.GET_RUNTIME, timeout_s=5).code == wire.SUCCESS
            except OSError:
                return False

        await until_reached(answers, timeout_s=START_TIMEOUT_S, what=f"{server.name} answers")

    async def _add(self, broker: str, broker_id: int) -> None:
        name = f"{broker}-{broker_id}"
        to_names = await self._link(name, NAME_SERVER, self.name_server.address)
        options = {"flushDiskType": self.shape.flush.value}
        if self.shape.slaves:
            master_role = "SYNC_MASTER" if self.shape.sync else "ASYNC_MASTER"
            options |= REPLICATION_OPTIONS
            options["brokerId"] = str(broker_id)
            options["brokerRole"] = "SLAVE" if broker_id else master_role
        process = OrbitBroker(broker, self._folder / name, [to_names.address], OPTIONS | options)
        self.servers[name] = Server(name, broker_id, process)

    async def _link_server(self, server: Server) -> None:
        """Link a server to its clients and to the others of its broker."""
        link = await self._link(CLIENTS, server.name, server.address)
        self.links[_between(CLIENTS, NAME_SERVER)].rename({server.address: link.address})
        for peer in self.servers.values():
            if peer.broker != server.broker or peer is server:
                continue
            asking = await self._link(peer.name, server.name, server.address)
            copying = await self._link(
                peer.name, f"{server.name}'s log", server.replication_address
            )
            self.links[_between(peer.name, NAME_SERVER)].rename(
                {server.address: asking.address, server.replication_address: copying.address}
            )

    async def _link(self, opener: str, target: str, address: str) -> Link:
        name = _between(opener, target)
        link = self.links[name] = Link(name, address, seed=self._seed)
        await link.start()
        return link


def _between(opener: str, target: str) -> str:
    return f"{opener} to {target}"


@asynccontextmanager
async def running(folder: Path, shape: Shape, *, seed: int) -> AsyncIterator[Cluster]:
    """Run a cluster."""
    cluster = Cluster(folder, shape, seed=seed)
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.stop()
