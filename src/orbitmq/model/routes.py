"""Routes: which brokers have a topic, their addresses and numbers of queues."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from orbitmq.java_json import JavaInt, JavaLong

MASTER_ID: Final = 0


class QueueRoute(msgspec.Struct, frozen=True, kw_only=True):
    """The queues one broker group has of a topic."""

    broker_name: str = msgspec.field(name="brokerName")
    permission: JavaInt = msgspec.field(name="perm")
    read_queues: JavaInt = msgspec.field(name="readQueueNums")
    unit_flag: JavaInt = msgspec.field(default=0, name="topicSysFlag")
    write_queues: JavaInt = msgspec.field(name="writeQueueNums")


class BrokerGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A master and its slaves: one broker name, an address per broker id."""

    addresses: dict[JavaLong, str] = msgspec.field(name="brokerAddrs")
    name: str = msgspec.field(name="brokerName")
    cluster: str
    enable_acting_master: bool = msgspec.field(default=False, name="enableActingMaster")
    zone: str | None = msgspec.field(default=None, name="zoneName")


class MissingBroker(msgspec.Struct, frozen=True, kw_only=True):
    """Brokers of one group that left without unregistering, as OrbitMQ's name servers tell."""

    addresses: dict[JavaLong, str] = msgspec.field(name="brokerAddrs")
    name: str = msgspec.field(name="brokerName")
    cluster: str
    # Since when the first of them is missing, and each, by its id.
    since_ms: JavaLong = msgspec.field(name="missingSince")
    each_since_ms: dict[JavaLong, JavaLong] = msgspec.field(
        default_factory=dict, name="missingSinceById"
    )
    # Whether the rest of its group still serves its queues.
    is_served: bool = msgspec.field(default=False, name="served")
    # If not, its topics did not fit in memory, and any topic may have queues there.
    topics_known: bool = msgspec.field(default=True, name="topicsKnown")

    def missing_since_ms(self, broker_id: int) -> int:
        """Since when one of them is missing."""
        return self.each_since_ms.get(broker_id, self.since_ms)


class QueueMapping(msgspec.Struct, frozen=True, kw_only=True):
    """Which queues of a static topic are on one broker: logical queue to physical queue."""

    broker_name: str | None = msgspec.field(default=None, name="bname")
    queues: dict[JavaInt, JavaInt] = msgspec.field(default_factory=dict, name="currIdMap")
    dirty: bool = False
    epoch: JavaLong = 0
    scope: str = "__global__"
    topic: str | None = None
    total_queues: JavaInt = msgspec.field(default=0, name="totalQueues")


class TopicRoute(msgspec.Struct, frozen=True, kw_only=True):
    """All that a client needs to reach a topic."""

    brokers: list[BrokerGroup] = msgspec.field(name="brokerDatas")
    filter_servers: dict[str, list[str]] = msgspec.field(
        default_factory=dict, name="filterServerTable"
    )
    order_config: str | None = msgspec.field(default=None, name="orderTopicConf")
    queues: list[QueueRoute] = msgspec.field(name="queueDatas")
    # Compat: static topics are passed on as the broker registered them, without interpretation.
    queue_mapping: dict[str, Any] | None = msgspec.field(
        default=None, name="topicQueueMappingByBroker"
    )
    # Compat: these two are sent only to clients that ask for them; RocketMQ's name servers, which
    # do not know them, leave them out.
    missing_brokers: list[MissingBroker] | None = msgspec.field(
        default=None, name="missingBrokerDatas"
    )
    missing_queues: list[QueueRoute] | None = msgspec.field(default=None, name="missingQueueDatas")


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """Every broker group, and which cluster each belongs to."""

    brokers: dict[str, BrokerGroup] = msgspec.field(name="brokerAddrTable")
    clusters: dict[str, list[str]] = msgspec.field(name="clusterAddrTable")
    # Compat: as in a route.
    missing_brokers: list[MissingBroker] | None = msgspec.field(
        default=None, name="missingBrokerDatas"
    )
    # The largest epoch of each group above 0, by cluster and broker name. Compat: as above.
    epochs: dict[str, dict[str, JavaLong]] | None = msgspec.field(
        default=None, name="brokerEpochTable"
    )
