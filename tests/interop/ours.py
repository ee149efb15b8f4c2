"""Our own name server and broker as child processes, started the way a user starts them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.interop import wire
from tests.interop.official import CLUSTER
from tests.interop.ports import free_port
from tests.interop.processes import ChildProcess
from tests.interop.timeouts import REGISTER_TIMEOUT_S, START_TIMEOUT_S
from tests.waiting import wait_until


class OrbitNameServer:
    """`orbitmq namesrv` on a free port."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self.process = ChildProcess(
            "our name server",
            [
                str(Path(sys.executable).with_name("orbitmq")),
                "namesrv",
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
            ],
            folder,
            environment={"HOME": str(folder)},
        )

    def wait_ready(self) -> None:
        """Return once it serves."""
        _wait_answering(self.process, self.address, wire.GET_CLUSTERS)


class OrbitBroker:
    """`orbitmq broker` on a free port, known to `name_servers`; the store lies in its folder."""

    def __init__(
        self,
        name: str,
        folder: Path,
        name_servers: Sequence[str],
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.name_servers = tuple(name_servers)
        # Beside its own port a broker listens two below (fast lane); one above is for replication.
        port = free_port(-2, 1)
        self.address = f"127.0.0.1:{port}"
        settings = {
            "brokerClusterName": CLUSTER,
            "brokerName": name,
            "brokerIP1": "127.0.0.1",
            "mappedFileSizeCommitLog": str(16 << 20),
            "maxHashSlotNum": "10000",
            "maxIndexNum": "40000",
            # A disk that is busy with others must not turn into sends that are not OK.
            "syncFlushTimeout": "60000",
            **(options or {}),
        }
        self.process = ChildProcess(
            f"our broker {name}",
            [
                str(Path(sys.executable).with_name("orbitmq")),
                "broker",
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
                "--namesrv",
                ";".join(name_servers),
                "--store",
                str(folder / "store"),
                *(f"--set={key}={value}" for key, value in settings.items()),
            ],
            folder,
            environment={"HOME": str(folder)},
        )

    def wait_ready(self) -> None:
        """Return once it serves and every name server knows it."""
        _wait_answering(self.process, self.address, wire.GET_ALL_TOPIC_CONFIG)
        wait_until(
            lambda: all(self.name in wire.broker_names(server) for server in self.name_servers),
            timeout_s=REGISTER_TIMEOUT_S,
            what=f"{self.name} registered",
        )

    def restart(self) -> None:
        """Start it again on its store and return once it is back."""
        self.process.start()
        self.wait_ready()

    def create_topic(self, topic: str, *, queues: int = 4) -> None:
        """Create a topic on this broker alone, and return once every name server knows it."""
        wire.create_topic(self.address, topic, queues=queues)
        for name_server in self.name_servers:
            wire.wait_route_code(name_server, topic, wire.SUCCESS, timeout_s=REGISTER_TIMEOUT_S)


class OrbitFilterServer:
    """`orbitmq filterserver` of a broker, on a free port, with the filters of a folder installed."""

    def __init__(self, folder: Path, broker: OrbitBroker, plugins: Path) -> None:
        self.process = ChildProcess(
            "our filter server",
            [
                str(Path(sys.executable).with_name("orbitmq")),
                "filterserver",
                "--host",
                "127.0.0.1",
                "--broker",
                broker.address,
            ],
            folder,
            environment={"HOME": str(folder), "PYTHONPATH": str(plugins)},
        )

    def start(self) -> None:
        """Start it, and return once its broker knows it."""
        self.process.start()
        self.process.wait_printed("registered broker=", timeout_s=START_TIMEOUT_S)


def _wait_answering(process: ChildProcess, address: str, code: int) -> None:
    """Return once the process answers a request; fail at once when it ends before."""

    def answers() -> bool:
        if not process.is_running():
            raise ChildProcessError(f"{process.name} ended at start\n{process.tail()}")
        try:
            return wire.ask(address, code).code == wire.SUCCESS
        except OSError:
            return False

    wait_until(answers, timeout_s=START_TIMEOUT_S, what=f"{process.name} at {address}")
