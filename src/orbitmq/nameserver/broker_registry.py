"""What brokers reported of themselves and their topics, and what admins changed.

    topics             which brokers have queues of each topic
    groups             broker name → cluster, addresses by broker id
    clusters           cluster → broker names
    filter servers     (cluster, address) → filter server addresses
    live brokers       (cluster, address) → last report, version, connection
    missing            brokers that left without unregistering, and their queues

Nothing here is persistent: brokers repeat their full report every 30 seconds.

Threads: the event loop only; no call blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from orbitmq.errors import EpochRefusedError, RegistrationRefusedError
from orbitmq.model.routes import MASTER_ID, BrokerGroup, QueueRoute
from orbitmq.model.topics import TopicConfig
from orbitmq.model.versions import DataVersion
from orbitmq.nameserver.missing_brokers import MissingBrokers
from orbitmq.nameserver.topic_queues import TopicQueues
from orbitmq.protocol.requests.filter_servers import FILTER_SERVERS_MAX

log = logging.getLogger(__name__)

NAME_LENGTH_MAX: Final = 255
# Of one broker.


class BrokerConnection(Protocol):
    """The connection a broker reports on."""

    def abort(self) -> None:
        """Close it immediately."""


@dataclass(frozen=True, slots=True)
class BrokerKey:
    """Identifies one broker process."""

    cluster: str
    address: str

    def __str__(self) -> str:
        return f"{self.address} of {self.cluster}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a broker reports when it registers."""

    key: BrokerKey
    broker_name: str
    broker_id: int
    ha_address: str | None
    data_version: DataVersion
    # Perf: called only for a new version; brokers report all their topics every 30 seconds.
    read_topics: Callable[[], Mapping[str, TopicConfig]]
    connection: BrokerConnection
    zone: str | None = None
    silence_ms_max: int | None = None
    enable_acting_master: bool | None = None
    filter_servers: list[str] | None = None
    queue_mappings: Mapping[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class LiveBroker:
    """A broker that has reported recently enough to count as alive."""

    key: BrokerKey
    broker_name: str
    last_report_ms: float
    silence_ms_max: int
    data_version: DataVersion
    connection: BrokerConnection
    ha_address: str | None
    # Whether the tables hold everything the broker reports. After a change of version the next
    # report is read too: the first may have contained only one new topic.
    topics_complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterAddresses:
    """Where a slave finds its master."""

    address: str | None = None
    ha_address: str | None = None


class BrokerRegistry:
    """The tables; anyone may read them, only these methods change them."""

    def __init__(
        self,
        *,
        brokers_max: int = 10_000,
        topics_max: int = 1_000_000,
        routes_max: int = 5_000_000,
        missing: MissingBrokers | None = None,
        epoch_of: Callable[[str, str], int] = lambda _cluster, _broker_name: 0,
    ) -> None:
        self._brokers_max = brokers_max
        # The largest epoch that a master of a group registered, by cluster and broker name.
        self._epoch_of = epoch_of
        self._live: dict[BrokerKey, LiveBroker] = {}
        # Pairs of brokers with the same id, as long as both report: each takes it from the other.
        self._contenders: set[frozenset[str]] = set()
        self.topics = TopicQueues(topics_max=topics_max, routes_max=routes_max)
        self.groups: dict[str, BrokerGroup] = {}
        self.clusters: dict[str, set[str]] = {}
        self.filter_servers: dict[BrokerKey, list[str]] = {}
        self.missing = missing or MissingBrokers()
        # Grows with every change that clients may see.
        self.changes = 0

    # --- brokers ------------------------------------------------------------------------------

    def register(
        self,
        report: Report,
        *,
        now_ms: float,
        silence_ms_max: int,
        delete_missing_topics: bool = False,
    ) -> MasterAddresses:
        """Apply a broker's report; raises RegistrationRefusedError if it is not acceptable."""
        known = self._live.get(report.key)
        if known is not None and known.broker_name != report.broker_name:
            # The same process under a new name: nothing else would ever remove the old one.
            self.unregister(known.key, known.broker_name)
            known = None
        self._check_epoch(report)
        group = self.groups.get(report.broker_name)
        is_first = group is None or report.broker_id not in group.addresses
        if self._is_outdated(report):
            self.unregister(report.key, report.broker_name)
            return MasterAddresses()
        topics = self._checked_topics(report, known, is_first=is_first)
        self._take_over(report)
        group = self._update_group(report)
        is_same_version = known is not None and known.data_version == report.data_version
        defines_topics = self._defines_topics(report, group)
        if topics is not None and defines_topics:
            self.topics.update(
                report.broker_name,
                topics,
                report.queue_mappings,
                read_only=report.broker_id != MASTER_ID and group.enable_acting_master,
                # An admin's changes stay until the broker reports a new version.
                missing_only=is_same_version and not is_first,
                delete_missing=delete_missing_topics,
            )
            self.changes += 1
        self._live[report.key] = LiveBroker(
            key=report.key,
            broker_name=report.broker_name,
            last_report_ms=now_ms,
            silence_ms_max=report.silence_ms_max or silence_ms_max,
            data_version=report.data_version,
            connection=report.connection,
            ha_address=report.ha_address,
            topics_complete=defines_topics and is_same_version and not is_first,
        )
        if self.missing.on_register(
            report.broker_name,
            report.broker_id,
            report.key.address,
            defines_topics=defines_topics,
        ):
            self.changes += 1
        if known is None:
            log.info(
                "broker registered name=%s id=%d address=%s cluster=%s",
                report.broker_name,
                report.broker_id,
                report.key.address,
                report.key.cluster,
            )
        if report.filter_servers is not None:
            self._update_filter_servers(report.key, report.filter_servers)
        return self._master_of(report, group)

    def check(self, report: Report) -> None:
        """Raise RegistrationRefusedError if a report is not acceptable; applies nothing of it."""
        self._check_epoch(report)
        group = self.groups.get(report.broker_name)
        is_first = group is None or report.broker_id not in group.addresses
        self._checked_topics(report, self._live.get(report.key), is_first=is_first)

    def largest_epoch(self, key: BrokerKey, broker_name: str) -> int:
        """The largest epoch of a group: of all masters so far, and of another one that is alive."""
        other = self._other_under(MASTER_ID, key, broker_name)
        alive = other.data_version.state_version if other is not None else 0
        return max(self._epoch_of(key.cluster, broker_name), alive)

    def unregister(self, key: BrokerKey, broker_name: str, *, remember: bool = False) -> None:
        """Remove and forget a broker, and the topics that no other broker of its group holds.

        With `remember`, one that is still here only becomes missing.
        """
        live = self._live.get(key)
        if live is not None and remember:
            self.lose(live)
            return
        name = live.broker_name if live is not None else broker_name
        if self.missing.forget(name, key.address):
            self.changes += 1
            log.info("missing broker forgotten name=%s reason=unregistered", name)
        self._remove(key, name)

    def lose(self, live: LiveBroker) -> None:
        """Remove a broker that left without unregistering, and remember that it is missing."""
        group = self.groups.get(live.broker_name)
        for broker_id, address in group.addresses.items() if group is not None else ():
            if address == live.key.address:
                self.missing.add(live.broker_name, live.key.cluster, broker_id, address)
        self._remove(live.key, live.broker_name)

    def forget_expired(self) -> None:
        """Forget brokers that have been missing for too long."""
        if self.missing.forget_expired():
            self.changes += 1

    def _remove(self, key: BrokerKey, broker_name: str) -> None:
        live = self._live.pop(key, None)
        self.filter_servers.pop(key, None)
        self._contenders = {pair for pair in self._contenders if key.address not in pair}
        group = self.groups.get(broker_name)
        if group is None or key.address not in group.addresses.values():
            return
        self._leave_cluster(key.cluster, broker_name)
        remaining = _without_address(group, key.address)
        if not remaining:
            self._remove_group(group)
        else:
            self.groups[broker_name] = msgspec.structs.replace(group, addresses=remaining)
            if group.enable_acting_master and MASTER_ID not in remaining:
                self.topics.forbid_writing(broker_name)
        self.changes += 1
        if live is not None:
            log.info("broker removed name=%s address=%s", broker_name, key.address)

    def note_change(self) -> None:
        """Note that something changed that clients may see beside these tables."""
        self.changes += 1

    def touch(self, key: BrokerKey, *, now_ms: float) -> None:
        """Record that a broker is alive."""
        if (live := self._live.get(key)) is not None:
            live.last_report_ms = now_ms

    def version_of(self, key: BrokerKey) -> DataVersion | None:
        """The version of a broker's last report; None if it must report again."""
        live = self._live.get(key)
        return live.data_version if live is not None else None

    def silent_brokers(self, *, now_ms: float) -> list[LiveBroker]:
        """List the brokers whose last report is too old."""
        return [
            live
            for live in self._live.values()
            if live.last_report_ms + live.silence_ms_max < now_ms
        ]

    def brokers_on(self, connection: BrokerConnection) -> list[LiveBroker]:
        """List the brokers whose last report came over a connection."""
        return [live for live in self._live.values() if live.connection is connection]

    # --- admins -------------------------------------------------------------------------------

    def add_queues(self, topic: str, queues: Iterable[QueueRoute]) -> None:
        """Add queues to the route of a topic, if their brokers are known."""
        queues = list(queues)
        unknown = [queue.broker_name for queue in queues if queue.broker_name not in self.groups]
        if unknown or not queues:
            log.warning(
                "queues not added topic=%s unknown brokers=%s count=%d",
                topic[:NAME_LENGTH_MAX],
                ",".join(name[:NAME_LENGTH_MAX] for name in unknown[:20]),
                len(unknown),
            )
            return
        self.topics.add(topic, queues)
        self.changes += 1

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove the route of a topic, in one cluster or in all."""
        if cluster:
            names = self.clusters.get(cluster, set())
        else:
            names = set(self.topics.queues.get(topic, {}))
        for name in names:
            self.topics.drop(topic, name)
        for live in self._live.values():
            if live.broker_name in names:
                live.topics_complete = False
        self.missing.forget_topic(topic, cluster)
        self.changes += 1

    def wipe_write_permission(self, broker_name: str) -> int:
        """Stop sends to a broker; returns how many topics it has."""
        self.changes += 1
        return self.topics.forbid_writing(broker_name)

    def add_write_permission(self, broker_name: str) -> int:
        """Allow sends to a broker again; returns how many topics it has."""
        self.changes += 1
        return self.topics.allow_writing(broker_name)

    # --- internals ----------------------------------------------------------------------------

    def _other_under(self, broker_id: int, key: BrokerKey, broker_name: str) -> LiveBroker | None:
        """The live broker that has the id at another address, if any."""
        group = self.groups.get(broker_name)
        address = group.addresses.get(broker_id) if group is not None else None
        if address is None or address == key.address:
            return None
        return self._live.get(BrokerKey(key.cluster, address))

    def _check_epoch(self, report: Report) -> None:
        """Refuse a master with a smaller epoch, and remove what is left of it."""
        if report.broker_id != MASTER_ID:
            return
        epoch = report.data_version.state_version
        largest = self.largest_epoch(report.key, report.broker_name)
        if epoch >= largest:
            return
        live = self._live.get(report.key)
        if live is not None:
            self.lose(live)
        other = self._other_under(MASTER_ID, report.key, report.broker_name)
        master = f"its master is {other.key.address}" if other is not None else "it has no master"
        raise EpochRefusedError(
            f"master {report.key.address} has epoch {epoch}, but broker group "
            f"{report.broker_name!r} of {report.key.cluster!r} is at epoch {largest}; now {master}",
            hint="a slave was promoted meanwhile: start this broker as a slave; if no broker of "
            f"the larger epoch is left: orbitmq namesrv forget-epoch {report.broker_name}",
        )

    def _is_outdated(self, report: Report) -> bool:
        """Whether another broker with the same id reported a newer state."""
        other = self._other_under(report.broker_id, report.key, report.broker_name)
        if other is None:
            return False
        if other.data_version.state_version <= report.data_version.state_version:
            return False
        log.warning(
            "report ignored name=%s id=%d address=%s reason=%s reported a newer state",
            report.broker_name,
            report.broker_id,
            report.key.address,
            other.key.address,
        )
        return True

    def _take_over(self, report: Report) -> None:
        """Log that a broker takes the id of another one that is alive."""
        other = self._other_under(report.broker_id, report.key, report.broker_name)
        if other is None:
            return
        before, epoch = other.data_version.state_version, report.data_version.state_version
        pair = frozenset((report.key.address, other.key.address))
        log.log(
            # Once: if both go on, it happens with every report.
            logging.DEBUG if pair in self._contenders else logging.WARNING,
            "broker replaces another one that is alive name=%s id=%d address=%s epoch=%d "
            "replaced=%s its epoch=%d hint=brokers of a group have different ids",
            report.broker_name,
            report.broker_id,
            report.key.address,
            epoch,
            other.key.address,
            before,
        )
        self._contenders.add(pair)
        if report.broker_id == MASTER_ID and epoch > before:
            # It counts as unknown, so that it registers even if its topics have not changed, and
            # learns that it was replaced.
            del self._live[other.key]
            self.filter_servers.pop(other.key, None)

    def _checked_topics(
        self, report: Report, known: LiveBroker | None, *, is_first: bool
    ) -> Mapping[str, TopicConfig] | None:
        """Read the topics of a report, None if they are already known; refuses what is too much."""
        if known is None and len(self._live) >= self._brokers_max:
            raise RegistrationRefusedError(
                f"{self._brokers_max} brokers are registered, the limit; {report.key} is refused",
                hint="raise brokersMax",
            )
        topics = self._changed_topics(report, known, is_first=is_first)
        if topics is not None and is_first and len(topics) == 1:
            # Compat: a broker that created a topic reports only that one. Accepted before its full
            # report, it would mean that the broker has no other topics.
            raise RegistrationRefusedError(
                f"{report.key} reported a single topic before its first full report",
                hint="the broker reports all its topics within 30 seconds",
            )
        self._check_names(report, topics or {})
        self.topics.check_room(report.broker_name, topics or (), report.queue_mappings)
        return topics

    def _changed_topics(
        self, report: Report, known: LiveBroker | None, *, is_first: bool
    ) -> Mapping[str, TopicConfig] | None:
        """Read the topics of a report; None if they are already known."""
        is_new = (
            is_first
            or known is None
            or not known.topics_complete
            or known.data_version != report.data_version
        )
        return report.read_topics() if is_new else None

    def _update_group(self, report: Report) -> BrokerGroup:
        """Update the broker's group and cluster from its report."""
        old = self.groups.get(report.broker_name)
        addresses = {report.broker_id: report.key.address}
        if old is not None:
            # An address has one id: a slave that became master loses its old one.
            others = _without_address(old, report.key.address)
            addresses = dict(sorted((others | addresses).items()))
        new = BrokerGroup(
            name=report.broker_name,
            cluster=report.key.cluster if old is None else old.cluster,
            addresses=addresses,
            enable_acting_master=bool(report.enable_acting_master),
            zone=report.zone,
        )
        self.groups[new.name] = new
        names = self.clusters.setdefault(report.key.cluster, set())
        if new != old or new.name not in names:
            names.add(new.name)
            self.changes += 1
        return new

    @staticmethod
    def _defines_topics(report: Report, group: BrokerGroup) -> bool:
        """Whether the topics of a report count: those of a master or of the first slave do."""
        if report.broker_id == MASTER_ID:
            return True
        return report.enable_acting_master is not None and report.broker_id == min(group.addresses)

    def _update_filter_servers(self, key: BrokerKey, servers: list[str]) -> None:
        if servers == self.filter_servers.get(key, []):
            return
        if servers:
            self.filter_servers[key] = servers
        else:
            del self.filter_servers[key]
        self.changes += 1

    @staticmethod
    def _check_names(report: Report, topics: Mapping[str, TopicConfig]) -> None:
        servers = report.filter_servers or ()
        if len(servers) > FILTER_SERVERS_MAX:
            raise RegistrationRefusedError(
                f"{report.key} reported {len(servers)} filter servers",
                hint=f"the limit is {FILTER_SERVERS_MAX}",
            )
        names = (
            report.broker_name,
            report.key.cluster,
            report.key.address,
            report.ha_address or "",
            report.zone or "",
            *servers,
            *topics,
            *_mapping_texts(report.queue_mappings),
        )
        too_long = next((name for name in names if len(name) > NAME_LENGTH_MAX), None)
        if too_long is not None:
            raise RegistrationRefusedError(
                f"a name of {len(too_long)} characters is too long: {too_long[:40]!r}…",
                hint=f"the limit is {NAME_LENGTH_MAX}",
            )

    def _leave_cluster(self, cluster: str, broker_name: str) -> None:
        """Remove a broker name from a cluster once none of its brokers reports there."""
        if any(
            live.key.cluster == cluster and live.broker_name == broker_name
            for live in self._live.values()
        ):
            return
        names = self.clusters.get(cluster, set())
        names.discard(broker_name)
        if not names:
            self.clusters.pop(cluster, None)

    def _remove_group(self, group: BrokerGroup) -> None:
        del self.groups[group.name]
        self.missing.keep_topics(group.name, self.topics.drop_all(group.name))

    def _master_of(self, report: Report, group: BrokerGroup) -> MasterAddresses:
        address = group.addresses.get(MASTER_ID)
        if report.broker_id == MASTER_ID or address is None:
            return MasterAddresses()
        master = self._live.get(BrokerKey(report.key.cluster, address))
        if master is None:
            return MasterAddresses()
        return MasterAddresses(address=address, ha_address=master.ha_address)


def _mapping_texts(mappings: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    for topic, mapping in mappings.items():
        yield topic
        yield from (value for value in mapping.values() if isinstance(value, str))


def _without_address(group: BrokerGroup, address: str) -> dict[int, str]:
    return {broker_id: known for broker_id, known in group.addresses.items() if known != address}
