"""The metrics of a broker under RocketMQ's names, and a few of its own.

Names with the prefix `rocketmq_` have the meaning of RocketMQ 5; those with `orbitmq_` exist here
only.

Threads: `snapshot` belongs to the event loop; `families` may run anywhere, since it reads a copy, and
asks the store, which may be asked from any thread.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from orbitmq.broker.statistics.archive_metrics import ArchiveState, archive_families
from orbitmq.broker.statistics.replication_metrics import ReplicationFigures, replication_families
from orbitmq.broker.statistics.transaction_metrics import transaction_families
from orbitmq.model.names import is_group_topic, is_retry_topic, is_system_group, is_system_topic
from orbitmq.model.subscriptions import POP, PULL
from orbitmq.model.versions import version_name
from orbitmq.store.retention import measure_disk

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.broker.groups.committed_offsets import CommittedOffsets
    from orbitmq.broker.groups.group_table import GroupTable
    from orbitmq.broker.groups.members import Members
    from orbitmq.broker.statistics.counters import Counter, Counters
    from orbitmq.broker.statistics.group_progress import ProgressMeter
    from orbitmq.broker.statistics.transaction_metrics import TransactionFigures
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.clock import Clock
    from orbitmq.model.topics import TopicConfig
    from orbitmq.store.message_store import MessageStore

_TYPE_ATTRIBUTE: Final = "message.type"
_ON_DISK: Final = {"storage_type": "local", "storage_medium": "disk"}
_PROTOCOL: Final = "remoting"
_Labels = Mapping[str, str]
_Counted = tuple[int, int]
_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Waiting requests of a broker; sizes are read on demand."""

    sends: Sized
    long_polls: Sized
    reads: Sized


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSnapshot:
    """The state of the event loop's tables at one moment."""

    permission: int
    topics: Mapping[str, TopicConfig]
    group_count: int
    puts: dict[str, _Counted]
    reads: dict[tuple[str, str], _Counted]
    dead_letters: dict[tuple[str, str], _Counted]
    # Producers by language and version; consumers by group, language, version and mode.
    producers: Tally[tuple[str, str]]
    consumers: Tally[tuple[str, str, str, str]]
    # Groups and topics whose lag is exported.
    consumed: list[tuple[str, TopicConfig]]
    differing_members: int
    refused_commits: int
    failed_puts: int
    unconfirmed: int
    held_polls: int
    disk_reads: int
    transactions: TransactionFigures
    replication: ReplicationFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables of topics, groups and their members."""

    topics: TopicTable
    groups: GroupTable
    members: Members
    offsets: CommittedOffsets
    progress: ProgressMeter

    def consumed(self) -> Iterator[tuple[str, TopicConfig]]:
        """Groups with the topics they consume, or consumed when last online."""
        for group in self.groups.groups:
            online = self.members.groups.get(group)
            names = set(self.progress.topics_of(group))
            if online is not None:
                names.update(online.subscriptions)
            for name in sorted(names):
                topic = self.topics.get(name)
                if topic is not None and not is_group_topic(name):
                    yield group, topic


@dataclass(slots=True, eq=False, kw_only=True)
class Metrics:
    """Makes the metrics of a scrape."""

    permission: Callable[[], int]
    # Labels of every metric.
    labels: _Labels
    store: MessageStore
    store_folder: Path
    counters: Counters
    tables: Tables
    waiting: Waiting
    transactions: Callable[[], TransactionFigures]
    replication: Callable[[], ReplicationFigures]
    # Reads the store.
    archives: Callable[[], ArchiveState]
    clock: Clock

    def snapshot(self) -> MetricsSnapshot:
        """Copy the tables that belong to the event loop."""
        counters, tables, waiting = self.counters, self.tables, self.waiting
        producers: Tally[tuple[str, str]] = Tally()
        for clients in tables.members.producers.values():
            for client in clients.values():
                producers[client.language.lower(), version_name(client.version).lower()] += 1
        consumers: Tally[tuple[str, str, str, str]] = Tally()
        for name, group in tables.members.groups.items():
            mode = {PULL: "pull", POP: "pop"}.get(group.consume_type, "push")
            for member in group.members.values():
                language = member.client.language.lower()
                version = version_name(member.client.version).lower()
                consumers[name, language, version, mode] += 1
        return MetricsSnapshot(
            permission=self.permission(),
            topics=tables.topics.topics,
            group_count=len(tables.groups.groups),
            puts=_values(counters.puts),
            reads=_values(counters.reads),
            dead_letters=_values(counters.dead_letters),
            producers=producers,
            consumers=consumers,
            consumed=list(tables.consumed()),
            differing_members=tables.members.differing_count,
            refused_commits=tables.offsets.refused_commits,
            failed_puts=counters.failed_puts,
            unconfirmed=len(waiting.sends),
            held_polls=len(waiting.long_polls),
            disk_reads=len(waiting.reads),
            transactions=self.transactions(),
            replication=self.replication(),
        )

    def families(self, snapshot: MetricsSnapshot) -> Iterator[Metric]:
        """Make all metrics."""
        yield from self._broker(snapshot)
        yield from self._messages(snapshot)
        yield from self._connections(snapshot)
        yield from self._lags(snapshot)
        yield from self._storage()
        yield from self._own(snapshot)
        yield from transaction_families(snapshot.transactions, self.labels)
        yield from replication_families(
            snapshot.replication, self.labels, now_ms=self.clock.now_ms()
        )
        yield from archive_families(self.archives(), self.labels, now_ms=self.clock.now_ms())

    # --- families -----------------------------------------------------------------------------

    def _broker(self, snapshot: MetricsSnapshot) -> Iterator[Metric]:
        waiting = self._gauge(
            "rocketmq_processor_watermark", "Requests that wait for the disk.", "processor"
        )
        waiting.add(snapshot.unconfirmed, processor="send")
        waiting.add(snapshot.disk_reads, processor="pull")
        yield waiting.family
        for name, about, value in (
            ("broker_permission", "What clients may do: 4 read, 2 write.", snapshot.permission),
            ("topic_number", "Topics of this broker.", len(snapshot.topics)),
            ("consumer_group_number", "Consumer groups of this broker.", snapshot.group_count),
        ):
            gauge = self._gauge(f"rocketmq_{name}", about)
            gauge.add(value)
            yield gauge.family

    def _messages(self, snapshot: MetricsSnapshot) -> Iterator[Metric]:
        of_topic = ("topic", "message_type", "is_system")
        messages_in = self._counter("rocketmq_messages_in", "Messages stored.", *of_topic)
        bytes_in = self._counter("rocketmq_throughput_in", "Bytes stored.", *of_topic)
        labels = (*self.labels, "topic", "message_type")
        sizes = HistogramMetricFamily(
            "rocketmq_message_size", "Sizes of messages stored; one bucket only.", labels=labels
        )
        for topic, (messages, size) in snapshot.puts.items():
            config = snapshot.topics.get(topic)
            # Messages are counted by topic only, so their type is that of the topic.
            kind = config.attributes.get(_TYPE_ATTRIBUTE, "") if config is not None else ""
            kind = kind.lower() or "unspecified"
            is_system = _truth(is_system_topic(topic))
            messages_in.add(messages, topic=topic, message_type=kind, is_system=is_system)
            bytes_in.add(size, topic=topic, message_type=kind, is_system=is_system)
            sizes.add_metric(
                [*self.labels.values(), topic, kind], [("+Inf", messages)], sum_value=size
            )
        yield from (messages_in.family, bytes_in.family, sizes)
        of_group = ("topic", "consumer_group", "is_system", "is_retry")
        messages_out = self._counter("rocketmq_messages_out", "Messages delivered.", *of_group)
        bytes_out = self._counter("rocketmq_throughput_out", "Bytes delivered.", *of_group)
        for (topic, group), (messages, size) in snapshot.reads.items():
            values = _of_group(topic, group) | {"is_retry": _truth(is_retry_topic(topic))}
            messages_out.add(messages, **values)
            bytes_out.add(size, **values)
        dead_letters = self._counter(
            "rocketmq_send_to_dlq_messages",
            "Messages that became dead letters of a group.",
            "topic",
            "consumer_group",
            "is_system",
        )
        for (topic, group), (messages, _) in snapshot.dead_letters.items():
            dead_letters.add(messages, **_of_group(topic, group))
        yield from (messages_out.family, bytes_out.family, dead_letters.family)

    def _connections(self, snapshot: MetricsSnapshot) -> Iterator[Metric]:
        producers = self._gauge(
            "rocketmq_producer_connections",
            "Connections of producers.",
            "language",
            "version",
            "protocol_type",
        )
        for (language, version), count in snapshot.producers.items():
            producers.add(count, language=language, version=version, protocol_type=_PROTOCOL)
        consumers = self._gauge(
            "rocketmq_consumer_connections",
            "Connections of consumers.",
            "consumer_group",
            "language",
            "version",
            "consume_mode",
            "protocol_type",
            "is_system",
        )
        for (group, language, version, mode), count in snapshot.consumers.items():
            consumers.add(
                count,
                consumer_group=group,
                language=language,
                version=version,
                consume_mode=mode,
                protocol_type=_PROTOCOL,
                is_system=_truth(is_system_group(group)),
            )
        yield from (producers.family, consumers.family)

    def _lags(self, snapshot: MetricsSnapshot) -> Iterator[Metric]:
        labels = ("consumer_group", "topic", "is_retry", "is_system")
        messages = self._gauge("rocketmq_consumer_lag_messages", "Not committed.", *labels)
        waits = self._gauge(
            "rocketmq_consumer_lag_latency", "Milliseconds since the oldest was stored.", *labels
        )
        in_flight = self._gauge(
            "rocketmq_consumer_inflight_messages", "Delivered and not committed.", *labels
        )
        queued = self._gauge(
            "rocketmq_consumer_queueing_latency",
            "Milliseconds since the oldest undelivered message was stored.",
            *labels,
        )
        ready = self._gauge("rocketmq_consumer_ready_messages", "Not delivered.", *labels)
        for group, topic in snapshot.consumed:
            lag = self.tables.progress.lag(group, topic)
            values = _of_group(topic.name, group) | {"is_retry": _truth(is_retry_topic(topic.name))}
            messages.add(lag.messages, **values)
            waits.add(lag.waits_ms, **values)
            in_flight.add(lag.in_flight, **values)
            queued.add(lag.queued_ms, **values)
            ready.add(lag.ready, **values)
        yield from (each.family for each in (messages, waits, in_flight, queued, ready))

    def _storage(self) -> Iterator[Metric]:
        store = self.store
        oldest = store.message_at(store.log_start)
        for name, about, value in (
            (
                "storage_size",
                "Bytes in use on the disk of the store.",
                measure_disk(self.store_folder).used_bytes,
            ),
            (
                "storage_flush_behind_bytes",
                "Bytes not on disk yet.",
                max(store.log_end - store.flushed, 0),
            ),
            (
                "storage_dispatch_behind_bytes",
                "Bytes not in their queues yet.",
                max(store.log_end - store.visible, 0),
            ),
            (
                "storage_message_reserve_time",
                "Milliseconds since the oldest message was stored.",
                None if oldest is None else self.clock.now_ms() - oldest.store_ms,
            ),
        ):
            gauge = self._gauge(f"rocketmq_{name}", about, *_ON_DISK)
            if value is not None:
                gauge.add(value, **_ON_DISK)
            yield gauge.family

    def _own(self, snapshot: MetricsSnapshot) -> Iterator[Metric]:
        for name, about, value in (
            (
                "inconsistent_members",
                "Members whose subscriptions differ from those of their group.",
                snapshot.differing_members,
            ),
            ("held_long_polls", "Pulls held until a message arrives.", snapshot.held_polls),
            ("unconfirmed_sends", "Sends that wait for the disk.", snapshot.unconfirmed),
        ):
            gauge = self._gauge(f"orbitmq_{name}", about)
            gauge.add(value)
            yield gauge.family
        for name, about, value in (
            (
                "refused_commits",
                "Lower offsets refused because another member had the queue.",
                snapshot.refused_commits,
            ),
            ("failed_sends", "Sends that the store refused.", snapshot.failed_puts),
        ):
            counter = self._counter(f"orbitmq_{name}", about)
            counter.add(value)
            yield counter.family

    def _gauge(self, name: str, about: str, *labels: str) -> _Family:
        family = GaugeMetricFamily(name, about, labels=(*self.labels, *labels))
        return _Family(family, self.labels, labels)

    def _counter(self, name: str, about: str, *labels: str) -> _Family:
        family = CounterMetricFamily(name, about, labels=(*self.labels, *labels))
        return _Family(family, self.labels, labels)


@dataclass(slots=True, eq=False)
class _Family:
    """One metric in the making, and its labels."""

    family: GaugeMetricFamily | CounterMetricFamily
    of_all: _Labels
    labels: tuple[str, ...]

    def add(self, value: float, **labels: str) -> None:
        """Add a value under its labels."""
        values = [*self.of_all.values(), *(labels[name] for name in self.labels)]
        self.family.add_metric(values, value)


def _values(counters: Mapping[_Key, Counter]) -> dict[_Key, _Counted]:
    return {key: (counter.messages, counter.bytes) for key, counter in counters.items()}


def _of_group(topic: str, group: str) -> dict[str, str]:
    is_system = is_system_topic(topic) or is_system_group(group)
    return {"topic": topic, "consumer_group": group, "is_system": _truth(is_system)}


def _truth(value: bool) -> str:  # noqa: FBT001  # it is the value itself
    return "true" if value else "false"
