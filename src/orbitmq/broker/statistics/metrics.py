"""The metrics of a broker under RocketMQ's names, and a few of its own.

Names that begin with `rocketmq_` mean what they mean at a RocketMQ 5 broker; those that begin with
`orbitmq_` exist here only.

Threads: `copied` belongs to the event loop; `families` may run anywhere, since it reads a copy, and
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
    """What waits in a broker; the numbers are read when asked."""

    sends: Sized
    long_polls: Sized
    reads: Sized


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What the event loop knew at one moment."""

    permission: int
    topics: Mapping[str, TopicConfig]
    group_count: int
    puts: dict[str, _Counted]
    reads: dict[tuple[str, str], _Counted]
    given_up: dict[tuple[str, str], _Counted]
    # Producers by language and version; consumers by group, language, version and mode.
    producers: Tally[tuple[str, str]]
    consumers: Tally[tuple[str, str, str, str]]
    # Groups and topics whose lag is shown.
    consumed: list[tuple[str, TopicConfig]]
    differing_members: int
    refused_commits: int
    failed_puts: int
    unconfirmed: int
    held_polls: int
    disk_reads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """What a broker knows of topics, groups and their members."""

    topics: TopicTable
    groups: GroupTable
    members: Members
    offsets: CommittedOffsets
    progress: ProgressMeter

    def consumed(self) -> Iterator[tuple[str, TopicConfig]]:
        """The groups with the topics they consume, or consumed when they were online last."""
        for group in self.groups.groups:
            online = self.members.groups.get(group)
            names = set(self.progress.topics_of(group))
            if online is not None:
                names.update(online.subscriptions)
            for name in sorted(names):
                topic = self.topics.get(name)
                if topic is not None and not is_group_topic(name):
                    yield group, topic


class Metrics:
    """Gathers what a scrape shows."""

    def __init__(
        self,
        *,
        permission: Callable[[], int],
        labels: _Labels,
        store: MessageStore,
        store_folder: Path,
        counters: Counters,
        tables: Tables,
        waiting: Waiting,
        clock: Clock,
    ) -> None:
        self._permission = permission
        # What every metric bears.
        self._labels = dict(labels)
        self._store = store
        self._store_folder = store_folder
        self._counters = counters
        self._tables = tables
        self._waiting = waiting
        self._clock = clock

    def copied(self) -> Copied:
        """Copy what belongs to the event loop."""
        counters, tables, waiting = self._counters, self._tables, self._waiting
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
        return Copied(
            permission=self._permission(),
            topics=tables.topics.topics,
            group_count=len(tables.groups.groups),
            puts=_values(counters.puts),
            reads=_values(counters.reads),
            given_up=_values(counters.given_up),
            producers=producers,
            consumers=consumers,
            consumed=list(tables.consumed()),
            differing_members=tables.members.differing_count,
            refused_commits=tables.offsets.refused_commits,
            failed_puts=counters.failed_puts,
            unconfirmed=len(waiting.sends),
            held_polls=len(waiting.long_polls),
            disk_reads=len(waiting.reads),
        )

    def families(self, copied: Copied) -> Iterator[Metric]:
        """Write every metric."""
        yield from self._broker(copied)
        yield from self._messages(copied)
        yield from self._connections(copied)
        yield from self._lags(copied)
        yield from self._storage()
        yield from self._own(copied)

    # --- families -----------------------------------------------------------------------------

    def _broker(self, copied: Copied) -> Iterator[Metric]:
        waiting = self._gauge(
            "rocketmq_processor_watermark", "Requests that wait for the disk.", "processor"
        )
        waiting.add(copied.unconfirmed, processor="send")
        waiting.add(copied.disk_reads, processor="pull")
        yield waiting.family
        for name, about, value in (
            ("broker_permission", "What clients may do: 4 read, 2 write.", copied.permission),
            ("topic_number", "Topics of this broker.", len(copied.topics)),
            ("consumer_group_number", "Consumer groups of this broker.", copied.group_count),
        ):
            gauge = self._gauge(f"rocketmq_{name}", about)
            gauge.add(value)
            yield gauge.family

    def _messages(self, copied: Copied) -> Iterator[Metric]:
        of_topic = ("topic", "message_type", "is_system")
        messages_in = self._counter("rocketmq_messages_in", "Messages stored.", *of_topic)
        bytes_in = self._counter("rocketmq_throughput_in", "Bytes stored.", *of_topic)
        labels = (*self._labels, "topic", "message_type")
        sizes = HistogramMetricFamily(
            "rocketmq_message_size", "Sizes of messages stored; one bucket only.", labels=labels
        )
        for topic, (messages, size) in copied.puts.items():
            config = copied.topics.get(topic)
            # Messages are counted by topic: what a topic says of its messages stands for them.
            kind = config.attributes.get(_TYPE_ATTRIBUTE, "") if config is not None else ""
            kind = kind.lower() or "unspecified"
            is_system = _truth(is_system_topic(topic))
            messages_in.add(messages, topic=topic, message_type=kind, is_system=is_system)
            bytes_in.add(size, topic=topic, message_type=kind, is_system=is_system)
            sizes.add_metric(
                [*self._labels.values(), topic, kind], [("+Inf", messages)], sum_value=size
            )
        yield from (messages_in.family, bytes_in.family, sizes)
        of_group = ("topic", "consumer_group", "is_system", "is_retry")
        messages_out = self._counter("rocketmq_messages_out", "Messages handed out.", *of_group)
        bytes_out = self._counter("rocketmq_throughput_out", "Bytes handed out.", *of_group)
        for (topic, group), (messages, size) in copied.reads.items():
            values = _of_group(topic, group) | {"is_retry": _truth(is_retry_topic(topic))}
            messages_out.add(messages, **values)
            bytes_out.add(size, **values)
        given_up = self._counter(
            "rocketmq_send_to_dlq_messages",
            "Messages that a group gave up.",
            "topic",
            "consumer_group",
            "is_system",
        )
        for (topic, group), (messages, _) in copied.given_up.items():
            given_up.add(messages, **_of_group(topic, group))
        yield from (messages_out.family, bytes_out.family, given_up.family)

    def _connections(self, copied: Copied) -> Iterator[Metric]:
        producers = self._gauge(
            "rocketmq_producer_connections",
            "Connections of producers.",
            "language",
            "version",
            "protocol_type",
        )
        for (language, version), count in copied.producers.items():
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
        for (group, language, version, mode), count in copied.consumers.items():
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

    def _lags(self, copied: Copied) -> Iterator[Metric]:
        labels = ("consumer_group", "topic", "is_retry", "is_system")
        messages = self._gauge("rocketmq_consumer_lag_messages", "Not committed.", *labels)
        waits = self._gauge(
            "rocketmq_consumer_lag_latency", "Milliseconds since the oldest was stored.", *labels
        )
        in_flight = self._gauge(
            "rocketmq_consumer_inflight_messages", "Handed out and not committed.", *labels
        )
        queued = self._gauge(
            "rocketmq_consumer_queueing_latency",
            "Milliseconds since the oldest was stored that was not handed out.",
            *labels,
        )
        ready = self._gauge("rocketmq_consumer_ready_messages", "Not handed out.", *labels)
        for group, topic in copied.consumed:
            lag = self._tables.progress.lag(group, topic)
            values = _of_group(topic.name, group) | {"is_retry": _truth(is_retry_topic(topic.name))}
            messages.add(lag.messages, **values)
            waits.add(lag.waits_ms, **values)
            in_flight.add(lag.in_flight, **values)
            queued.add(lag.queued_ms, **values)
            ready.add(lag.ready, **values)
        yield from (each.family for each in (messages, waits, in_flight, queued, ready))

    def _storage(self) -> Iterator[Metric]:
        store = self._store
        oldest = store.message_at(store.log_start)
        for name, about, value in (
            (
                "storage_size",
                "Bytes in use on the disk of the store.",
                measure_disk(self._store_folder).used_bytes,
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
                None if oldest is None else self._clock.now_ms() - oldest.store_ms,
            ),
        ):
            gauge = self._gauge(f"rocketmq_{name}", about, *_ON_DISK)
            if value is not None:
                gauge.add(value, **_ON_DISK)
            yield gauge.family

    def _own(self, copied: Copied) -> Iterator[Metric]:
        for name, about, value in (
            (
                "inconsistent_members",
                "Members that subscribe to something else than their group.",
                copied.differing_members,
            ),
            ("held_long_polls", "Pulls held until a message comes.", copied.held_polls),
            ("unconfirmed_sends", "Sends that wait for the disk.", copied.unconfirmed),
        ):
            gauge = self._gauge(f"orbitmq_{name}", about)
            gauge.add(value)
            yield gauge.family
        for name, about, value in (
            (
                "refused_commits",
                "Lower offsets refused since another member had the queue.",
                copied.refused_commits,
            ),
            ("failed_sends", "Sends that the store refused.", copied.failed_puts),
        ):
            counter = self._counter(f"orbitmq_{name}", about)
            counter.add(value)
            yield counter.family

    def _gauge(self, name: str, about: str, *labels: str) -> _Family:
        family = GaugeMetricFamily(name, about, labels=(*self._labels, *labels))
        return _Family(family, self._labels, labels)

    def _counter(self, name: str, about: str, *labels: str) -> _Family:
        family = CounterMetricFamily(name, about, labels=(*self._labels, *labels))
        return _Family(family, self._labels, labels)


class _Family:
    """One metric under way, and the labels that it needs."""

    def __init__(
        self,
        family: GaugeMetricFamily | CounterMetricFamily,
        of_all: _Labels,
        labels: tuple[str, ...],
    ) -> None:
        self.family = family
        self._of_all = of_all
        self._labels = labels

    def add(self, value: float, **labels: str) -> None:
        """Add a value under its labels."""
        values = [*self._of_all.values(), *(labels[name] for name in self._labels)]
        self.family.add_metric(values, value)


def _values(counters: Mapping[_Key, Counter]) -> dict[_Key, _Counted]:
    return {key: (counter.messages, counter.bytes) for key, counter in counters.items()}


def _of_group(topic: str, group: str) -> dict[str, str]:
    is_system = is_system_topic(topic) or is_system_group(group)
    return {"topic": topic, "consumer_group": group, "is_system": _truth(is_system)}


def _truth(value: bool) -> str:  # noqa: FBT001  # it is the value itself
    return "true" if value else "false"
