"""What clients see of the registry: routes, the cluster view, topic lists.

Threads: the event loop only; no call blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from typing import Final

import msgspec

from orbitmq import java_json
from orbitmq.java_json import Dialect
from orbitmq.model.routes import MASTER_ID, BrokerGroup, ClusterView, QueueRoute, TopicRoute
from orbitmq.model.topics import Permission, UnitFlag
from orbitmq.nameserver.broker_registry import BrokerKey, BrokerRegistry
from orbitmq.nameserver.master_epochs import Epochs

# Answers kept in memory; beyond this all are dropped.
CACHED_BYTES_MAX: Final = 64 * 1024 * 1024
# What a cached answer takes beside its bytes.
_KEY_BYTES: Final = 400
# Brokers exchange their members through these topics, and need the real addresses.
_MEMBER_TOPIC_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"


class RouteView:
    """Answers clients' queries; caches frequent answers until the registry changes."""

    def __init__(
        self,
        registry: BrokerRegistry,
        *,
        epochs: Callable[[], Epochs] = dict,
        cached_bytes_max: int = CACHED_BYTES_MAX,
    ) -> None:
        self._registry = registry
        self._epochs = epochs
        self._cached_bytes_max = cached_bytes_max
        # Perf: queries are far more frequent than changes of the registry, and a request must not
        # cost a walk over all of it.
        self._cached_bodies: dict[Hashable, bytes] = {}
        self._cached_bytes = 0
        self._changes_seen = registry.changes

    # --- routes -------------------------------------------------------------------------------

    def route_body(
        self,
        topic: str,
        dialect: Dialect,
        *,
        order_config: str | None,
        acting_master: bool,
        with_missing: bool = False,
    ) -> bytes | None:
        """The route of a topic as JSON; None if no broker holds it, live or asked for."""
        show = partial(
            self._encoded_route,
            topic,
            dialect,
            order_config,
            acting_master=acting_master,
            with_missing=with_missing,
        )
        if order_config:
            # Not cached: few topics have an order, and it changes independently of the registry.
            return show()
        key = (topic, acting_master, dialect, with_missing)
        body = self._current_bodies().get(key)
        if body is None:
            body = show()
            if body is not None:
                # Only routes are cached: the number of names that do not exist is unbounded.
                self._keep(key, body)
        return body

    def _encoded_route(
        self,
        topic: str,
        dialect: Dialect,
        order_config: str | None,
        *,
        acting_master: bool,
        with_missing: bool,
    ) -> bytes | None:
        route = self.route(
            topic,
            order_config=order_config,
            acting_master=acting_master,
            with_missing=with_missing,
        )
        return java_json.encode(route, dialect) if route is not None else None

    def route(
        self,
        topic: str,
        *,
        order_config: str | None = None,
        acting_master: bool = False,
        with_missing: bool = False,
    ) -> TopicRoute | None:
        """The route of a topic; None if no live broker holds it, nor a missing one if asked for."""
        queues = self._registry.topics.queues.get(topic, {})
        known = self._registry.groups
        groups = [known[name] for name in queues if name in known]
        missing_brokers, missing_queues = None, None
        if with_missing:
            missing_brokers, missing_queues = self._registry.missing.of_topic(topic)
        if not groups and not missing_queues:
            return None
        shown = groups
        if acting_master and not topic.startswith(_MEMBER_TOPIC_PREFIX):
            shown = [_with_acting_master(group, queues[group.name]) for group in groups]
        return TopicRoute(
            brokers=shown,
            filter_servers=self._filter_servers_of(groups),
            order_config=order_config or None,
            queues=list(queues.values()),
            queue_mapping=self._registry.topics.mappings.get(topic),
            missing_brokers=missing_brokers,
            missing_queues=missing_queues,
        )

    # --- brokers ------------------------------------------------------------------------------

    def cluster_view(self, *, with_missing: bool = False, with_epochs: bool = False) -> ClusterView:
        """Every broker group, by cluster, if wanted with the missing brokers and the epochs."""
        return ClusterView(
            brokers=dict(self._registry.groups),
            clusters={cluster: sorted(names) for cluster, names in self._registry.clusters.items()},
            missing_brokers=self._registry.missing.all() if with_missing else None,
            epochs=self._epochs() if with_epochs else None,
        )

    def cluster_view_body(self, *, with_missing: bool = False, with_epochs: bool = False) -> bytes:
        """Every broker group, by cluster, as JSON."""
        return self._cached_body(
            ("clusters", with_missing, with_epochs),
            lambda: self.cluster_view(with_missing=with_missing, with_epochs=with_epochs),
        )

    def addresses_of(self, broker_name: str) -> dict[int, str]:
        """The addresses of one broker group, by broker id."""
        group = self._registry.groups.get(broker_name)
        return dict(group.addresses) if group is not None else {}

    # --- topic lists --------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """List every topic."""
        return list(self._registry.topics.queues)

    def topics_body(self, *, with_missing: bool = False) -> bytes:
        """List every topic, as JSON; if wanted, beside those that only missing brokers have."""
        if not with_missing:
            return self._cached_body("topics", lambda: {"topicList": self.topics()})
        return self._cached_body(
            "topics with missing ones",
            lambda: {"topicList": self.topics(), "missingTopicList": self.missing_topics()},
        )

    def missing_topics(self) -> list[str]:
        """List the topics that only missing brokers have."""
        return sorted(set(self._registry.missing.topics()) - self._registry.topics.queues.keys())

    def cluster_topics_body(self, cluster: str) -> bytes:
        """List the topics of a cluster, as JSON."""
        if cluster not in self._registry.clusters:
            return java_json.encode({"topicList": []})
        key = f"topics of {cluster}"
        return self._cached_body(key, lambda: {"topicList": self.topics_of_cluster(cluster)})

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """List the topics that a broker of the cluster holds."""
        names = self._registry.clusters.get(cluster, set())
        return [
            topic
            for topic, queues in self._registry.topics.queues.items()
            if not names.isdisjoint(queues)
        ]

    def system_topics(self) -> tuple[list[str], str | None]:
        """List cluster and broker names, which are topics too, and one broker's address."""
        names = [
            name
            for cluster, broker_names in self._registry.clusters.items()
            for name in (cluster, *sorted(broker_names))
        ]
        address = next(
            (group.addresses[min(group.addresses)] for group in self._registry.groups.values()),
            None,
        )
        return names, address

    def unit_topics(self) -> list[str]:
        """List the topics of units."""
        return [topic for topic, flag in self._unit_flags() if flag & UnitFlag.UNIT]

    def unit_subscribed_topics(self, *, plain_only: bool = False) -> list[str]:
        """List the topics that units subscribe to: all, or only those outside units."""
        return [
            topic
            for topic, flag in self._unit_flags()
            if flag & UnitFlag.SUBSCRIBED_BY_UNIT and not (plain_only and flag & UnitFlag.UNIT)
        ]

    # --- internals ----------------------------------------------------------------------------

    def _cached_body(self, key: Hashable, show: Callable[[], object]) -> bytes:
        body = self._current_bodies().get(key)
        if body is None:
            body = java_json.encode(show())
            self._keep(key, body)
        return body

    def _current_bodies(self) -> dict[Hashable, bytes]:
        if self._changes_seen != self._registry.changes:
            self._cached_bodies.clear()
            self._cached_bytes = 0
            self._changes_seen = self._registry.changes
        return self._cached_bodies

    def _keep(self, key: Hashable, body: bytes) -> None:
        if self._cached_bytes + len(body) > self._cached_bytes_max:
            self._cached_bodies.clear()
            self._cached_bytes = 0
        self._cached_bodies[key] = body
        self._cached_bytes += len(body) + _KEY_BYTES

    def _filter_servers_of(self, groups: Iterable[BrokerGroup]) -> dict[str, list[str]]:
        return {
            address: servers
            for group in groups
            for address in group.addresses.values()
            if (servers := self._registry.filter_servers.get(BrokerKey(group.cluster, address)))
        }

    def _unit_flags(self) -> Iterator[tuple[str, int]]:
        for topic, queues in self._registry.topics.queues.items():
            for queue in queues.values():
                yield topic, queue.unit_flag
                break


def in_zone(route: TopicRoute, zone: str) -> TopicRoute:
    """Leave out broker groups of other zones; groups without a master stay."""
    kept = [
        group
        for group in route.brokers
        if MASTER_ID not in group.addresses or (group.zone or "").lower() == zone.lower()
    ]
    names = {group.name for group in kept}
    addresses = {address for group in kept for address in group.addresses.values()}
    return msgspec.structs.replace(
        route,
        brokers=kept,
        queues=[queue for queue in route.queues if queue.broker_name in names],
        filter_servers={
            address: servers
            for address, servers in route.filter_servers.items()
            if address in addresses
        },
    )


def _with_acting_master(group: BrokerGroup, queue: QueueRoute) -> BrokerGroup:
    """Present the first slave as master if the group has none and is not writable."""
    if (
        MASTER_ID in group.addresses
        or not group.enable_acting_master
        or queue.permission & Permission.WRITE
    ):
        return group
    addresses = dict(group.addresses)
    addresses[MASTER_ID] = addresses.pop(min(addresses))
    return msgspec.structs.replace(group, addresses=dict(sorted(addresses.items())))
