"""The official Kafka broker and Spark's connector to it, fetched when they are first needed."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.interop.ports import free_port
from tests.interop.processes import ChildProcess

QUEUES: Final = 4
_HERE: Final = Path(__file__).parent
_POM: Final = _HERE / "kafka" / "pom.xml"
_JARS: Final = _HERE.parent / ".cache" / "kafka"
_FETCH_TIMEOUT_S: Final = 900
_START_TIMEOUT_S: Final = 120
_CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
# Those of its own start script.
_JVM_FLAGS: Final = (
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)


class MissingKafkaError(Exception):
    """Its jars cannot be fetched."""


def version_of(artifact: str) -> str:
    """The version of a part, as the list of what is fetched says."""
    found = re.search(
        rf"<artifactId>{re.escape(artifact)}</artifactId>\s*<version>([^<]+)<", _POM.read_text()
    )
    assert found is not None, artifact
    return found[1]


def jars(part: str) -> Path:
    """The folder with the jars of a part: `broker` or `connector`."""
    folder = _JARS / f"lib-{part}"
    stamp = folder / "ready"
    if not stamp.exists() or stamp.stat().st_mtime < _POM.stat().st_mtime:
        command = ["mvn", "-B", "-q", "-f", str(_POM), "-P", part, f"-Dlibraries={_JARS}"]
        try:
            done = subprocess.run(
                [*command, "generate-resources"],
                capture_output=True,
                text=True,
                timeout=_FETCH_TIMEOUT_S,
                check=False,
            )
        except OSError as error:
            raise MissingKafkaError(f"mvn: {error}") from error
        if done.returncode:
            raise MissingKafkaError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        stamp.touch()
    return folder


class KafkaBroker:
    """One Kafka, broker and controller in one process, as its documentation starts it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        port = free_port(1)
        self.address = f"127.0.0.1:{port}"
        self._settings = folder / "server.properties"
        self._settings.write_text(
            "\n".join(
                [
                    "process.roles=broker,controller",
                    "node.id=1",
                    f"controller.quorum.voters=1@127.0.0.1:{port + 1}",
                    f"listeners=PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{port + 1}",
                    f"advertised.listeners=PLAINTEXT://{self.address}",
                    "controller.listener.names=CONTROLLER",
                    "inter.broker.listener.name=PLAINTEXT",
                    f"log.dirs={folder / 'logs'}",
                    f"num.partitions={QUEUES}",
                    "offsets.topic.replication.factor=1",
                    "transaction.state.log.replication.factor=1",
                    "transaction.state.log.min.isr=1",
                    "group.initial.rebalance.delay.ms=0",
                ]
            )
        )
        self._java = ["java", *_JVM_FLAGS, "-cp", f"{jars('broker')}/*"]
        self.process = ChildProcess(
            "official Kafka", [*self._java, "kafka.Kafka", str(self._settings)], folder
        )

    def start(self) -> None:
        """Format its folder, and start it; returns once it serves."""
        arguments = ["format", "-t", _CLUSTER_ID, "-c", str(self._settings)]
        subprocess.run(
            [*self._java, "kafka.tools.StorageTool", *arguments],
            check=True,
            capture_output=True,
            timeout=_START_TIMEOUT_S,
        )
        self.process.start()
        self.process.wait_printed("Kafka Server started", timeout_s=_START_TIMEOUT_S)


@contextlib.contextmanager
def running_kafka(folder: Path) -> Iterator[KafkaBroker]:
    """A Kafka that runs."""
    broker = KafkaBroker(folder)
    try:
        broker.start()
        yield broker
    finally:
        broker.process.kill()
