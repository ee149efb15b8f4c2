"""Routes of topics, clusters, topic lists, write permission of brokers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from orbitmq.java_json import JavaLong
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header, wire

# Fields that any request may have: the zone of a client, and whether it stays there.
ZONE_NAME: Final = "__ZONE_NAME"
ZONE_MODE: Final = "__ZONE_MODE"


@dataclass(frozen=True, slots=True, kw_only=True)
class GetRoute(Header):
    """Ask for the route of a topic; the reply's body is a `TopicRoute`."""

    CODE = RequestCode.GET_ROUTEINFO_BY_TOPIC
    topic: str
    accept_standard_json_only: bool | None = None
    # OrbitMQ's own; RocketMQ's name servers ignore it.
    with_missing_brokers: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetClusterView(Header):
    """Ask for every broker; the reply's body is a `ClusterView`."""

    CODE = RequestCode.GET_BROKER_CLUSTER_INFO
    # OrbitMQ's own; RocketMQ's name servers ignore them.
    with_missing_brokers: bool | None = None
    with_epochs: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBrokerGroup(Header):
    """Ask for the addresses of one broker group; the body is a `BrokerGroupReply`."""

    CODE = RequestCode.GET_BROKER_MEMBER_GROUP
    cluster_name: str
    broker_name: str


class BrokerMembers(msgspec.Struct, kw_only=True):
    """The addresses of one broker group."""

    addresses: dict[JavaLong, str] = msgspec.field(name="brokerAddrs")
    name: str = msgspec.field(name="brokerName")
    cluster: str


class BrokerGroupReply(msgspec.Struct, kw_only=True):
    """The JSON envelope around `BrokerMembers`."""

    members: BrokerMembers = msgspec.field(name="brokerMemberGroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTopics(Header):
    """Ask for every topic name; the reply's body is a `TopicList`."""

    CODE = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    with_missing_brokers: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListClusterTopics(Header):
    """Ask for the topic names of one cluster."""

    CODE = RequestCode.GET_TOPICS_BY_CLUSTER
    cluster: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSystemTopics(Header):
    """Ask for the topics that brokers create for themselves."""

    CODE = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class ListUnitTopics(Header):
    """Ask for the topics of units."""

    CODE = RequestCode.GET_UNIT_TOPIC_LIST


@dataclass(frozen=True, slots=True, kw_only=True)
class ListUnitSubscribedTopics(Header):
    """Ask for the topics that units subscribe to."""

    CODE = RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST


@dataclass(frozen=True, slots=True, kw_only=True)
class ListUnitSubscribedPlainTopics(Header):
    """Ask for the topics outside units that units subscribe to."""

    CODE = RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST


class TopicList(msgspec.Struct, kw_only=True):
    """Topic names, as JSON."""

    broker_address: str | None = msgspec.field(default=None, name="brokerAddr")
    topics: list[str] = msgspec.field(default_factory=list, name="topicList")
    # Topics that only missing brokers have; None if not asked for, or not known.
    missing_topics: list[str] | None = msgspec.field(default=None, name="missingTopicList")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicRoute(Header):
    """Drop the route of a topic, in one cluster or in all."""

    CODE = RequestCode.DELETE_TOPIC_IN_NAMESRV
    topic: str
    cluster_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddTopicRoute(Header):
    """Add queues to a topic's route; the body is a `TopicRoute` with them."""

    CODE = RequestCode.REGISTER_TOPIC_IN_NAMESRV
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WipeWritePermission(Header):
    """Stop sends to every topic of a broker."""

    CODE = RequestCode.WIPE_WRITE_PERM_OF_BROKER
    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WipeWritePermissionReply(Header):
    """How many topics were changed."""

    topic_count: int = wire("wipeTopicCount")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddWritePermission(Header):
    """Allow sends to every topic of a broker again."""

    CODE = RequestCode.ADD_WRITE_PERM_OF_BROKER
    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddWritePermissionReply(Header):
    """How many topics were changed."""

    topic_count: int = wire("addTopicCount")
