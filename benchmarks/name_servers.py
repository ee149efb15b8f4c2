"""The name servers that benchmarks compare: ours, and the official ones where their jars are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from benchmarks.official_servers import with_flags
from orbitmq.errors import OrbitError
from orbitmq.model.topics import TopicConfig
from orbitmq.model.versions import DataVersion
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.registration import RegisterBroker, encode_register_body
from orbitmq.transport.rpc_client import RpcClient
from tests.interop.official import OfficialNameServer
from tests.interop.ports import free_port
from tests.interop.processes import ChildProcess
from tests.interop.timeouts import START_TIMEOUT_S

# A server that is behind with its load is not one that fails.
_REGISTER_TIMEOUT_MS: Final = 60_000
TOPICS: Final = tuple(f"benchmark_topic_{number}" for number in range(8))

# What RocketMQ's own start script passes to a name server beside the flags of every server.
JVM_FLAGS: Final = (
    "-Xms4g",
    "-Xmx4g",
    "-XX:MetaspaceSize=128m",
    "-XX:MaxMetaspaceSize=320m",
)


class NameServer:
    """One name server as a child process on 127.0.0.1."""

    def __init__(
        self, name: str, process: ChildProcess, port: int, *, is_official: bool = False
    ) -> None:
        self.name = name
        self.process = process
        self.port = port
        self.is_official = is_official

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self.process.popen.pid

    def wait_ready(self) -> None:
        """Return once it serves."""
        printed = "boot success" if self.is_official else "name server started"
        self.process.wait_printed(printed, timeout_s=START_TIMEOUT_S)


def ours(name: str, folder: Path, **options: str) -> NameServer:
    """Our name server, with options set by RocketMQ's names."""
    port = free_port()
    options["kvConfigPath"] = str(folder / "kvConfig.json")
    command = [sys.executable, "-m", "orbitmq.cli.main", "namesrv"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    for option, value in options.items():
        command += ["--set", f"{option}={value}"]
    return NameServer(name, ChildProcess(name, command, folder), port)


def official(line: str, name: str, folder: Path) -> NameServer:
    """The official name server of a release line, as its own script starts it."""
    server = OfficialNameServer(line, folder)
    process = server.process
    process.command = with_flags(process.command, JVM_FLAGS)
    return NameServer(name, process, int(server.address.rpartition(":")[2]), is_official=True)


class Registration:
    """A broker that exists on paper only, held up by one connection to each name server."""

    def __init__(self, client: RpcClient) -> None:
        self._client = client
        topics = {
            name: TopicConfig(name=name, read_queues=8, write_queues=8, permission=6)
            for name in TOPICS
        }
        self._body = encode_register_body(topics, DataVersion())

    async def renew(self, server: NameServer) -> None:
        """Register, or say that the broker is still alive."""
        try:
            await self._client.call(
                server.address,
                RegisterBroker(
                    broker_name="broker-a",
                    broker_address="127.0.0.1:10911",
                    cluster_name="BenchmarkCluster",
                    ha_address="127.0.0.1:10912",
                    broker_id=Long(0),
                ),
                self._body,
                timeout_ms=_REGISTER_TIMEOUT_MS,
            )
        except OrbitError as error:
            error.add_note(f"while registering with {server.name}")
            raise
