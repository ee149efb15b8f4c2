"""The official peers of the suite, and the two sorts of name server they are put before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.interop.building import LINES, go_version, java_version
from tests.interop.official import OfficialBroker, OfficialNameServer
from tests.interop.ours import OrbitNameServer


@dataclass(frozen=True, slots=True)
class Peer:
    """An official client, tool or broker of one release line."""

    kind: str
    line: str

    @property
    def version(self) -> str:
        """The pinned version."""
        if self.kind == "go":
            return go_version()
        return java_version(self.line, "server" if self.kind == "broker" else "client")

    def __str__(self) -> str:
        return f"{self.kind}-{self.version}"


GO_LINE = "go"
CLIENTS = [*(Peer("java", line) for line in LINES), Peer("go", GO_LINE)]
ADMINS = [Peer("mqadmin", line) for line in LINES]
BROKERS = [Peer("broker", line) for line in LINES]
# The line of the official name server that ours is held against.
REFERENCE_LINE = LINES[-1]

NAME_SERVERS = ["official", "ours"]
NameServer = OfficialNameServer | OrbitNameServer

StartBroker = Callable[[str, list[str]], OfficialBroker]
StartNameServer = Callable[[], OrbitNameServer]
