"""The clients that benchmarks compare, each as a child process that takes orders line by line.

Orders and answers are those of `clients/ClientLoad.java`.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from benchmarks.grpc_proxy import CLIENT, CLIENT_VERSION, client_python
from benchmarks.official_servers import with_flags
from tests.interop.building import TARGET_FOLDER, java_version
from tests.interop.official import java_command
from tests.interop.processes import ChildProcess

ASYNCIO: Final = "OrbitMQ, asyncio"
BLOCKING: Final = "OrbitMQ, blocking"
OURS: Final = (ASYNCIO, BLOCKING)
PYPI: Final = f"{CLIENT} {CLIENT_VERSION}"
_SOURCES: Final = Path(__file__).parent / "clients"
# A JVM's own choice but for the heap: several run at once here.
_JVM_FLAGS: Final = ("-Xms256m", "-Xmx512m")


class ClientError(Exception):
    """A client could not carry out its order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """What a client did, and what it took."""

    messages: int
    seconds: float
    cpu_seconds: float


class LoadingClient:
    """One client in a process of its own."""

    def __init__(self, name: str, process: ChildProcess) -> None:
        self.name = name
        self._process = process

    @property
    def is_java(self) -> bool:
        """Whether it has to be warmed up for long."""
        return self.name.startswith("Java")

    def start(self) -> None:
        """Start the process; it connects on its first order."""
        self._process.start()

    def stop(self) -> None:
        """End the process."""
        self._process.kill()

    def cpu_seconds(self) -> float:
        """The processor time that its process has taken so far, all threads."""
        times = psutil.Process(self._process.popen.pid).cpu_times()
        return times.user + times.system

    def send(self, mode: str, topic: str, body_bytes: int, at_once: int, seconds: float) -> Slice:
        """Send for this many seconds."""
        return self._do(f"send {mode} {topic} {body_bytes} {at_once} {seconds}")

    def consume(
        self, topic: str, group: str, *, warm_up: int, messages: int, seconds_max: float
    ) -> Slice:
        """Consume from the start of a topic; the first messages are not measured."""
        return self._do(f"consume {topic} {group} {warm_up} {messages} {seconds_max}")

    def request(self, topic: str, group: str, *, at_once: int, seconds: float) -> Slice:
        """Send requests for this many seconds, and reply to them."""
        return self._do(f"request {topic} {group} {at_once} {seconds}")

    def transact(self, topic: str, *, at_once: int, seconds: float) -> Slice:
        """Send messages in transactions, each committed, for this many seconds."""
        return self._do(f"transact {topic} {at_once} {seconds}")

    def _do(self, order: str) -> Slice:
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()
        kind, *words = self._answer().split()
        while self._answer() != "closed":
            pass
        if kind != "figures":
            raise ClientError(f"{self.name}: {' '.join(words)}")
        return Slice(messages=int(words[0]), seconds=float(words[1]), cpu_seconds=float(words[2]))

    def _answer(self) -> str:
        """The next line that is meant for us; libraries print, too."""
        for line in self._process.stdout:
            if line.split(maxsplit=1)[0:1] in (["figures"], ["error"], ["closed"]):
                return line.strip()
        raise ClientError(f"{self.name} ended\n{self._process.tail()}")


def our_client(name: str, folder: Path, name_server: str) -> LoadingClient:
    """Our client, on asyncio or blocking."""
    form = name.rpartition(" ")[2]
    command = [sys.executable, "-m", "benchmarks.clients.our_load", form, name_server]
    # It is found where this is.
    environment = {"PYTHONPATH": str(Path(__file__).parent.parent), "HOME": str(folder)}
    process = ChildProcess(name, command, folder, environment=environment, pipes=True)
    return LoadingClient(name, process)


def java_client(line: str, folder: Path, name_server: str) -> LoadingClient:
    """RocketMQ's Java client of a line."""
    classes = folder / "classes"
    classes.mkdir(parents=True)
    jars = TARGET_FOLDER / line / "lib-client"
    source = _SOURCES / "ClientLoad.java"
    subprocess.run(
        ["javac", "-cp", f"{jars}/*", "-d", str(classes), str(source)], check=True, timeout=120
    )
    command = with_flags(
        java_command(line, "client", folder, "ClientLoad", name_server, classes=classes),
        _JVM_FLAGS,
    )
    name = f"Java {java_version(line, 'client')}"
    return LoadingClient(name, ChildProcess(name, command, folder, pipes=True))


def pypi_client(folder: Path, proxy: str, topics: str) -> LoadingClient:
    """PyPI's client, before a proxy."""
    command = [str(client_python()), str(_SOURCES / "grpc_load.py"), proxy, topics]
    process = ChildProcess(PYPI, command, folder, environment={"HOME": str(folder)}, pipes=True)
    return LoadingClient(PYPI, process)


@contextlib.contextmanager
def running(clients: list[LoadingClient]) -> Iterator[list[LoadingClient]]:
    """The clients, started."""
    try:
        for client in clients:
            client.start()
        yield clients
    finally:
        for client in clients:
            client.stop()
