"""The official peers of the suite, and the two sorts of name server they are put before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tests.interop.building import LINES, go_version, java_version
from tests.interop.official import OfficialBroker, OfficialNameServer
from tests.interop.ours import OrbitBroker, OrbitNameServer


@dataclass(frozen=True, slots=True)
class Peer:
    """An official client, tool or broker of one release line.

    The kind `python` is a broker as well, ours or an official one: what our clients are tried at.
    """

    kind: str
    line: str

    @property
    def version(self) -> str:
        """The pinned version."""
        if self.kind == "go":
            return go_version()
        if self.line == OUR_LINE:
            return OUR_LINE
        is_server = self.kind in {"broker", "python"}
        return java_version(self.line, "server" if is_server else "client")

    def __str__(self) -> str:
        return f"{self.kind}-{self.version}"


@dataclass(frozen=True, slots=True)
class OurCluster:
    """Our name server and our brokers."""

    name_server: OrbitNameServer
    brokers: tuple[OrbitBroker, ...]

    @property
    def broker(self) -> OrbitBroker:
        """The first broker, in most clusters the only one."""
        return self.brokers[0]

    def start(self) -> OurCluster:
        """Start every process and return once all are ready."""
        self.name_server.process.start()
        for broker in self.brokers:
            broker.process.start()
        self.name_server.wait_ready()
        for broker in self.brokers:
            broker.wait_ready()
        return self

    def stop(self) -> None:
        """End every process."""
        for broker in self.brokers:
            broker.process.stop()
        self.name_server.process.stop()


class StartOurCluster(Protocol):
    """Starts a cluster of ours for one test."""

    def __call__(self, *, brokers: int = 1, **options: str) -> OurCluster: ...


GO_LINE = "go"
OUR_LINE = "ours"
CLIENTS = [*(Peer("java", line) for line in LINES), Peer("go", GO_LINE)]
ADMINS = [Peer("mqadmin", line) for line in LINES]
BROKERS = [Peer("broker", line) for line in LINES]
SITES = [Peer("python", line) for line in (OUR_LINE, *LINES)]
# The line of the official name server that ours is held against.
REFERENCE_LINE = LINES[-1]

NAME_SERVERS = ["official", "ours"]
NameServer = OfficialNameServer | OrbitNameServer

StartBroker = Callable[[str, list[str]], OfficialBroker]
StartNameServer = Callable[[], OrbitNameServer]
