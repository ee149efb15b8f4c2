"""A cluster of real processes: a name server, masters and their slaves, and a link for every pair.

Nobody reaches a server but over a link of their own: what a name server tells of addresses is
replaced on the way by those of links. Only auditors, who must see the truth, ask servers directly.
"""

from __future__ import annotations

import asyncio
from collections import Counter
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
_TO: Final = " to "
_LOG: Final = "'s log"
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
    # Whether slaves are promoted.
    promotes: bool = False

    def __str__(self) -> str:
        role = "SYNC_MASTER" if self.sync else "ASYNC_MASTER"
        slaves = f"{self.slaves} slave{'' if self.slaves == 1 else 's'}"
        promoted = ", promoted" if self.promotes else ""
        return f"{self.masters} x {role} with {slaves}{promoted}, {self.flush.value}"


@dataclass(frozen=True, slots=True)
class Server:
    """A broker of a group, as a process; promotions change its role."""

    name: str
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


class Cluster:
    """The processes, and the links between them and to their clients."""

    def __init__(self, folder: Path, shape: Shape, *, seed: int) -> None:
        self.shape = shape
        self._folder = folder
        self._seed = seed
        self.name_server = OrbitNameServer(folder / NAME_SERVER)
        self.links: dict[str, Link] = {}
        self.servers: dict[str, Server] = {}
        # By broker name.
        self._masters: dict[str, Server] = {}
        # Servers that may or may not follow the last promoted one yet: what they show is of one
        # past or the other.
        self.turning: set[str] = set()
        # How many promotions a group has seen, each counted before it can be noticed.
        self.reigns: Counter[str] = Counter()

    @property
    def role(self) -> str:
        """The role of its masters."""
        return "SYNC_MASTER" if self.shape.sync else "ASYNC_MASTER"

    @property
    def namesrv(self) -> str:
        """The address for clients."""
        return self.links[_between(CLIENTS, NAME_SERVER)].address

    def masters(self) -> list[Server]:
        """The servers that take sends."""
        return list(self._masters.values())

    def master_of(self, broker: str) -> Server:
        """The server of a group that takes sends."""
        return self._masters[broker]

    def slaves_of(self, broker: str) -> list[Server]:
        """The other servers of a group."""
        master = self._masters[broker]
        return [each for each in self.servers.values() if each.broker == broker and each != master]

    def group_of(self, server: Server) -> list[Server]:
        """The servers of a group, this one among them; none if it has no slaves."""
        group = [each for each in self.servers.values() if each.broker == server.broker]
        return group if len(group) > 1 else []

    def crown(self, server: Server) -> None:
        """Note that a server is the master of its group now."""
        self._masters[server.broker] = server

    def server_at(self, address: str) -> str:
        """Name the server that listens at an address, its own or that of a link to it."""
        for server in self.servers.values():
            if address == server.address:
                return server.name
        for link in self.links.values():
            if address == link.address:
                return self.server_at(link.target)
        return address

    async def start(self, topics: Sequence[str], *, queues: int) -> None:
        """Start everything; returns once every server is registered, and has these topics."""
        self.name_server.process.start()
        await self._link(CLIENTS, NAME_SERVER, self.name_server.address)
        for number in range(self.shape.masters):
            for broker_id in range(self.shape.slaves + 1):
                await self._add("abcdefgh"[number], broker_id)
        for server in self.servers.values():
            await self._link_server(server)
        await asyncio.gather(beside(self.name_server.wait_ready), self._start(self.masters()))
        for master in self.masters():
            for topic in topics:
                await beside(master.process.create_topic, topic, queues=queues)
        # They find their masters at once, and copy the topics.
        slaves = [each for broker in self._masters for each in self.slaves_of(broker)]
        await self._start(slaves)
        for slave in slaves:
            process = slave.process.process
            await beside(process.wait_printed, "log is copied", timeout_s=START_TIMEOUT_S)
            await self._has_topics(slave, topics)

    async def _start(self, servers: Sequence[Server]) -> None:
        for server in servers:
            server.process.process.start()
        await asyncio.gather(*(beside(server.process.wait_ready) for server in servers))

    async def _has_topics(self, slave: Server, topics: Sequence[str]) -> None:
        def has_all() -> bool:
            known = wire.ask(slave.address, wire.GET_ALL_TOPIC_CONFIG).body
            return set(topics) <= set(known["topicConfigTable"])

        await until_reached(has_all, timeout_s=START_TIMEOUT_S, what=f"{slave.name} has topics")

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

    def links_between(self, server: Server, others: Sequence[str]) -> list[Link]:
        """The links between a server and others, named as in names of links, in both directions."""
        names = {
            _between(*pair)
            for other in others
            for pair in ((server.name, other), (other, server.name))
        }
        names |= {_between(other, _log_of(server.name)) for other in others}
        names |= {_between(server.name, _log_of(other)) for other in others}
        return [link for name, link in self.links.items() if name in names]

    def log_link(self, slave: Server, master: Server) -> Link:
        """The link over which a slave copies a log."""
        return self.links[_between(slave.name, _log_of(master.name))]

    def slave_of_link(self, name: str) -> Server | None:
        """The server whose copying goes over a link; None if the link is between others."""
        opener, _, target = name.partition(_TO)
        server, peer = self.servers.get(opener), self.servers.get(target.removesuffix(_LOG))
        return server if server is not None and peer is not None else None

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
            options |= REPLICATION_OPTIONS
            options["brokerId"] = str(broker_id)
            options["brokerRole"] = "SLAVE" if broker_id else self.role
        process = OrbitBroker(broker, self._folder / name, [to_names.address], OPTIONS | options)
        server = self.servers[name] = Server(name, process)
        self._masters.setdefault(broker, server)

    async def _link_server(self, server: Server) -> None:
        """Link a server to its clients and to the others of its broker."""
        link = await self._link(CLIENTS, server.name, server.address)
        self.links[_between(CLIENTS, NAME_SERVER)].rename({server.address: link.address})
        for peer in self.servers.values():
            if peer.broker != server.broker or peer is server:
                continue
            asking = await self._link(peer.name, server.name, server.address)
            copying = await self._link(peer.name, _log_of(server.name), server.replication_address)
            self.links[_between(peer.name, NAME_SERVER)].rename(
                {server.address: asking.address, server.replication_address: copying.address}
            )

    async def _link(self, opener: str, target: str, address: str) -> Link:
        name = _between(opener, target)
        link = self.links[name] = Link(name, address, seed=self._seed)
        await link.start()
        return link


def _between(opener: str, target: str) -> str:
    return f"{opener}{_TO}{target}"


def _log_of(server: str) -> str:
    return f"{server}{_LOG}"


@asynccontextmanager
async def running(
    folder: Path, shape: Shape, *, seed: int, topics: Sequence[str], queues: int
) -> AsyncIterator[Cluster]:
    """Run a cluster that has these topics."""
    cluster = Cluster(folder, shape, seed=seed)
    try:
        await cluster.start(topics, queues=queues)
        yield cluster
    finally:
        await cluster.stop()
