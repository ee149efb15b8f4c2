"""The tables and the store of a broker, without the broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orbitmq.broker.archives.archive_table import ArchiveTable
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.confirmations import Confirmations
from orbitmq.broker.groups.committed_offsets import CommittedOffsets
from orbitmq.broker.groups.group_table import GroupTable
from orbitmq.broker.groups.members import Members
from orbitmq.broker.statistics.counters import Counters
from orbitmq.broker.statistics.group_progress import ProgressMeter
from orbitmq.broker.statistics.replication_metrics import ReplicationFigures
from orbitmq.broker.statistics.runtime import Runtime
from orbitmq.broker.statistics.samples import Samples
from orbitmq.broker.topics.topic_table import TopicTable
from orbitmq.clock import ManualClock
from orbitmq.disk import off_loop
from orbitmq.lifecycle import OwnedTasks
from orbitmq.model.groups import GroupConfig
from orbitmq.model.topics import TopicConfig
from orbitmq.protocol.requests.clients import HeartbeatBody
from orbitmq.store.message_store import MessageStore
from orbitmq.transport.connection import Connection
from tests.unit.broker.groups.clients import new_connection
from tests.unit.store.stores import config_at, message


def figures_of_master(**fields: Any) -> ReplicationFigures:
    """The replication of a sync master at epoch 2, or as the fields say."""
    usual: dict[str, Any] = {
        "role": "SYNC_MASTER",
        "broker_id": 0,
        "address": "10.0.0.9:10911",
        "is_slave": False,
        "is_master": True,
        "epoch": 2,
        "log_start": 100,
        "log_end": 1000,
        "visible": 900,
    }
    return ReplicationFigures(**usual | fields)


@dataclass
class BrokerParts:
    """The parts that handlers and statistics of a broker use."""

    folder: Path
    store: MessageStore
    clock: ManualClock
    topics: TopicTable
    groups: GroupTable
    members: Members
    offsets: CommittedOffsets
    archives: ArchiveTable
    counters: Counters = field(default_factory=Counters)

    @property
    def progress(self) -> ProgressMeter:
        return ProgressMeter(
            broker_name=lambda: "b",
            store=self.store,
            members=self.members,
            offsets=self.offsets,
            clock=self.clock,
        )

    def samples(self) -> Samples:
        return Samples(
            self.counters,
            is_system=self.topics.is_system,
            knows_topic=self.topics.get,
            knows_group=self.groups.get,
            clock=self.clock,
        )

    def runtime(
        self, samples: Samples, delay_offsets: Callable[[], Mapping[int, int]] = dict
    ) -> Runtime:
        return Runtime(
            config=BrokerConfig,
            store_config=config_at(self.folder),
            store=self.store,
            samples=samples,
            delay_offsets=delay_offsets,
            timers_behind=lambda: (3, 2_500),
            confirmations=Confirmations(
                flushed=self.store.flushed,
                is_fenced=lambda: False,
                timeout_ms=5000,
                clock=self.clock,
            ),
            reads=OwnedTasks(),
            replication=lambda: figures_of_master(epoch=3),
            clock=self.clock,
        )

    async def make_topic(
        self, name: str = "orders", queues: int = 2, *, order: bool = False
    ) -> None:
        await self.topics.put(
            TopicConfig(name=name, read_queues=queues, write_queues=queues, order=order)
        )

    async def make_group(self, name: str = "g") -> None:
        await self.groups.put(GroupConfig(name=name))

    async def put(self, count: int, *, topic: str = "orders", queue_id: int = 0) -> None:
        for number in range(count):
            draft = message(b"%d" % number, topic=topic, queue_id=queue_id)
            await off_loop(self.store.put, draft)

    def join(
        self, body: HeartbeatBody, *, connection: Connection | None = None, version: int = 479
    ) -> Connection:
        """Apply a heartbeat of a client."""
        connection = connection or new_connection()
        self.members.heartbeat(connection, body, language="JAVA", version=version)
        return connection


@asynccontextmanager
async def broker_parts(folder: Path) -> AsyncIterator[BrokerParts]:
    """Open a store, and load empty tables."""
    clock = ManualClock()
    store = await off_loop(MessageStore, config_at(folder), clock=clock)
    tables = folder / "config"
    parts = BrokerParts(
        folder=folder,
        store=store,
        clock=clock,
        topics=TopicTable(tables, clock=clock),
        groups=GroupTable(tables, clock=clock),
        members=Members(clock=clock),
        offsets=CommittedOffsets(tables, clock=clock),
        archives=ArchiveTable(tables, folder / "orbitmq", clock=clock),
    )
    try:
        for table in (parts.topics, parts.groups, parts.offsets):
            await table.load()
        await parts.archives.load()
        yield parts
    finally:
        await off_loop(store.close)
