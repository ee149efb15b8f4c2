"""Assembles the parts that report on a broker, to tools and to Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.handlers.statistics import StatisticsRequests
from orbitmq.broker.statistics.config import Exporter, MetricsConfig, parse_labels
from orbitmq.broker.statistics.metrics import Metrics, Tables, Waiting
from orbitmq.broker.statistics.prometheus import Prometheus
from orbitmq.broker.statistics.runtime import Runtime
from orbitmq.store.config import StoreConfig
from orbitmq.transport.config import ServerConfig

if TYPE_CHECKING:
    from orbitmq.broker.confirmations import Confirmations
    from orbitmq.broker.statistics.archive_metrics import ArchiveState
    from orbitmq.broker.statistics.counters import Counters
    from orbitmq.broker.statistics.replication_metrics import ReplicationFigures
    from orbitmq.broker.statistics.samples import Samples
    from orbitmq.broker.statistics.transaction_metrics import TransactionFigures
    from orbitmq.clock import Clock
    from orbitmq.protocol.requests.statistics import Replication
    from orbitmq.settings import Settings
    from orbitmq.store.message_store import MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporting:
    """The sources of a broker's statistics."""

    settings: Settings
    # The address that clients connect to.
    address: str
    store: MessageStore
    tables: Tables
    counters: Counters
    samples: Samples
    confirmations: Confirmations
    long_polls: Sized
    # Pulls that wait for the disk.
    reads: Sized
    # The next offset of each delay level.
    delay_offsets: Callable[[], Mapping[int, int]]
    # Timers that are not in the wheel yet, and milliseconds that delivery is late.
    timers_behind: Callable[[], tuple[int, int]]
    transactions: Callable[[], TransactionFigures]
    replication: Callable[[], Replication]
    replication_figures: Callable[[], ReplicationFigures]
    archives: Callable[[], ArchiveState]
    clock: Clock

    def requests(self) -> StatisticsRequests:
        """Make the handlers for tools."""
        return StatisticsRequests(
            cluster_name=self._config().cluster_name,
            address=self.address,
            topics=self.tables.topics,
            groups=self.tables.groups,
            members=self.tables.members,
            progress=self.tables.progress,
            samples=self.samples,
            replication=self.replication,
            runtime=Runtime(
                config=self._config,
                store_config=self.settings.of(StoreConfig),
                store=self.store,
                samples=self.samples,
                delay_offsets=self.delay_offsets,
                timers_behind=self.timers_behind,
                confirmations=self.confirmations,
                reads=self.reads,
                replication=self.replication_figures,
                clock=self.clock,
            ),
        )

    def prometheus(self) -> Prometheus | None:
        """Make the server for Prometheus; None if it is not enabled."""
        metrics = self.settings.of(MetricsConfig)
        if metrics.exporter is not Exporter.PROMETHEUS:
            return None
        return Prometheus(
            self._metrics(metrics),
            host=metrics.host or self.settings.of(ServerConfig).bind_address,
            port=metrics.port,
        )

    def _metrics(self, metrics: MetricsConfig) -> Metrics:
        config = self._config()
        return Metrics(
            permission=lambda: self._config().permission,
            labels=parse_labels(metrics.labels)
            | {
                "node_type": "broker",
                "cluster": config.cluster_name,
                "node_id": config.broker_name,
            },
            store=self.store,
            store_folder=self.settings.of(StoreConfig).root.expanduser(),
            counters=self.counters,
            tables=self.tables,
            waiting=Waiting(sends=self.confirmations, long_polls=self.long_polls, reads=self.reads),
            transactions=self.transactions,
            replication=self.replication_figures,
            archives=self.archives,
            clock=self.clock,
        )

    def _config(self) -> BrokerConfig:
        return self.settings.of(BrokerConfig)
