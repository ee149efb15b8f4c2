"""The brokers that benchmarks compare: ours, and the official one where its jars are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.official_servers import official_lines, with_flags
from tests.interop import wire
from tests.interop.building import java_version
from tests.interop.official import OfficialBroker
from tests.interop.ours import OrbitBroker, OrbitNameServer
from tests.waiting import wait_until

OURS: Final = "OrbitMQ"
# Ours as it was: run by the `orbitmq` command of another checkout.
BEFORE: Final = "OrbitMQ before"
ASYNC: Final = "ASYNC_FLUSH"
SYNC: Final = "SYNC_FLUSH"
QUEUES: Final = 8
# A fourth of what RocketMQ's own start script gives a broker, and no touching of all of it at
# start: several run at once here. What is measured never comes near the end of it.
JVM_FLAGS: Final = ("-Xms2g", "-Xmx2g", "-XX:MaxDirectMemorySize=1g")
# RocketMQ's own sizes, where the interop suite has smaller ones.
FILE_SIZES: Final = {
    "mappedFileSizeCommitLog": str(1024 * 1024 * 1024),
    "mappedFileSizeConsumeQueue": str(300_000 * 20),
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
}
_SETTLE_TIMEOUT_S: Final = 120
_TOPICS_PER_REQUEST: Final = 1_000


class StoredError(Exception):
    """A broker did not store what it said, or stored what nobody sent."""


class BrokerUnderLoad:
    """One broker as a child process on 127.0.0.1, with one way to flush."""

    def __init__(self, server: str, flush: str, broker: OrbitBroker | OfficialBroker) -> None:
        self.server = server
        self.flush = flush
        self.broker = broker

    @property
    def is_official(self) -> bool:
        """Whether it is RocketMQ's."""
        return self.server not in (OURS, BEFORE)

    @property
    def address(self) -> str:
        """Where it listens."""
        return self.broker.address

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.address.rpartition(":")[2])

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self.broker.process.popen.pid

    def create_topic(self, topic: str, *, queues: int = QUEUES) -> None:
        """Create a topic."""
        wire.create_topic(self.address, topic, queues=queues)

    def create_topics(self, topics: Sequence[str]) -> None:
        """Create many topics."""
        for first in range(0, len(topics), _TOPICS_PER_REQUEST):
            part = topics[first : first + _TOPICS_PER_REQUEST]
            wire.create_topics(self.address, part, queues=QUEUES)

    def ends(self, topic: str, *, queues: int = QUEUES) -> list[int]:
        """Where the queues of a topic end, for readers."""
        return [wire.max_offset(self.address, topic, queue_id) for queue_id in range(queues)]

    def wait_stored(self, topic: str, stored: int) -> None:
        """Wait until readers see exactly `stored` messages of a topic; fail on a timeout."""
        with contextlib.suppress(TimeoutError):
            wait_until(
                lambda: sum(self.ends(topic)) >= stored, timeout_s=_SETTLE_TIMEOUT_S, what=topic
            )
        seen = sum(self.ends(topic))
        if seen != stored:
            raise StoredError(
                f"{self.server}, {self.flush}: replies and first calls say that {stored} messages "
                f"of {topic} are stored; its queues hold {seen}"
            )


def official_name(line: str) -> str:
    """How tables call the official broker of a line."""
    return f"RocketMQ {java_version(line, 'server')}"


def newest_line(*, without: bool = False) -> str | None:
    """The newest release line whose broker can be run; says so when there is none."""
    if without:
        return None
    lines = official_lines()
    if not lines:
        print("without the official broker: its jars come with the interop suite (INTEROP=1)")
        return None
    return lines[0]


def our_broker(
    folder: Path, name_server: str, flush: str, *, before: Path | None = None
) -> BrokerUnderLoad:
    """Our broker, as `orbitmq broker` starts it; with `before`, that of another checkout."""
    broker = OrbitBroker(folder.name, folder, [name_server], {**FILE_SIZES, "flushDiskType": flush})
    if before is not None:
        broker.process.command = [str(before), *broker.process.command[1:]]
    return BrokerUnderLoad(BEFORE if before else OURS, flush, broker)


def official_broker(
    line: str, folder: Path, name_server: str, flush: str, settings: Mapping[str, str] | None = None
) -> BrokerUnderLoad:
    """The official broker of a line, with RocketMQ's own file sizes."""
    broker = OfficialBroker(
        line,
        f"official-{flush}",
        folder,
        [name_server],
        {**FILE_SIZES, "flushDiskType": flush, **(settings or {})},
    )
    broker.process.command = with_flags(broker.process.command, JVM_FLAGS)
    return BrokerUnderLoad(official_name(line), flush, broker)


@contextlib.contextmanager
def running_name_server(folder: Path) -> Iterator[str]:
    """Our name server, for all brokers; its address."""
    server = OrbitNameServer(folder)
    server.process.start()
    try:
        server.wait_ready()
        yield server.address
    finally:
        server.process.kill()


@contextlib.contextmanager
def running_brokers(
    line: str | None,
    flushes: Sequence[str],
    folder: Path,
    topics: Sequence[str],
    *,
    before: Path | None = None,
    official_settings: Mapping[str, str] | None = None,
) -> Iterator[list[BrokerUnderLoad]]:
    """Brokers of each kind, one for each way to flush, each with these topics."""
    with running_name_server(folder / "name-server") as name_server:
        brokers = [our_broker(folder / f"ours-{flush}", name_server, flush) for flush in flushes]
        if before is not None:
            brokers += [
                our_broker(folder / f"before-{flush}", name_server, flush, before=before)
                for flush in flushes
            ]
        if line is not None:
            brokers += [
                official_broker(
                    line, folder / f"official-{flush}", name_server, flush, official_settings
                )
                for flush in flushes
            ]
        try:
            for broker in brokers:
                broker.broker.process.start()
            for broker in brokers:
                broker.broker.wait_ready()
                for topic in topics:
                    broker.create_topic(topic)
            yield brokers
        finally:
            for broker in brokers:
                # Its folder is thrown away: nothing that it could save matters.
                broker.broker.process.kill()
