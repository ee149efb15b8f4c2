"""Clients of a broker: heartbeats, unregistering, members of groups, connections."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from orbitmq.java_json import JavaInt, JavaLong
from orbitmq.model.subscriptions import (
    CLUSTERING,
    FROM_LAST_OFFSET,
    PUSH,
    ConsumeFrom,
    ConsumeType,
    MessageModel,
    Subscription,
)
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header, wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(Header):
    """A client reports, in a `HeartbeatBody`, what it produces and consumes."""

    CODE = RequestCode.HEART_BEAT


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply(Header):
    """Whether later heartbeats may omit the subscriptions."""

    takes_fingerprints: bool = wire("IS_SUPPORT_HEART_BEAT_V2", default=False)
    subscriptions_changed: bool = wire("IS_SUB_CHANGE", default=False)


class ProducerGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group that a client produces for."""

    group: str = msgspec.field(name="groupName")


class ConsumerGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group that a client consumes for, and how."""

    consume_from: ConsumeFrom = msgspec.field(default=FROM_LAST_OFFSET, name="consumeFromWhere")
    consume_type: ConsumeType = msgspec.field(default=PUSH, name="consumeType")
    group: str = msgspec.field(name="groupName")
    message_model: MessageModel = msgspec.field(default=CLUSTERING, name="messageModel")
    subscriptions: list[Subscription] = msgspec.field(
        default_factory=list, name="subscriptionDataSet"
    )
    unit_mode: bool = msgspec.field(default=False, name="unitMode")


class HeartbeatBody(msgspec.Struct, kw_only=True):
    """Everything that a client produces and consumes."""

    client_id: str = msgspec.field(name="clientID")
    consumers: list[ConsumerGroup] = msgspec.field(default_factory=list, name="consumerDataSet")
    # Of the subscriptions, from clients that omit them in later heartbeats; 0 from others.
    fingerprint: JavaInt = msgspec.field(default=0, name="heartbeatFingerprint")
    producers: list[ProducerGroup] = msgspec.field(default_factory=list, name="producerDataSet")
    # The subscriptions are omitted, and have not changed.
    without_subscriptions: bool = msgspec.field(default=False, name="withoutSub")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterClient(Header):
    """A client leaves its groups."""

    CODE = RequestCode.UNREGISTER_CLIENT
    client_id: str = wire("clientID")
    producer_group: str | None = None
    consumer_group: str | None = None
    # Ours only: a listener is still at work, so its locks are left to expire.
    keeps_locks: bool | None = wire("orbitKeepLocks", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroupMembers(Header):
    """Ask for the clients of a consumer group; the reply's body is `GroupMembers`."""

    CODE = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    consumer_group: str


class GroupMembers(msgspec.Struct, kw_only=True):
    """The ids of a group's clients."""

    client_ids: list[str] = msgspec.field(default_factory=list, name="consumerIdList")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyMembersChanged(Header):
    """The broker notifies a consumer, one way, that members of its group joined or left."""

    CODE = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSubscription(Header):
    """Ask whether an expression can be compiled; the body is a `SubscriptionToCheck`."""

    CODE = RequestCode.CHECK_CLIENT_CONFIG


class SubscriptionToCheck(msgspec.Struct, kw_only=True):
    """A subscription, and the client that wants it."""

    client_id: str | None = msgspec.field(default=None, name="clientId")
    group: str | None = None
    namespace: str | None = None
    subscription: Subscription = msgspec.field(name="subscriptionData")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListConsumerConnections(Header):
    """Ask for the consumers of a group; the reply's body is `ConsumerConnections`."""

    CODE = RequestCode.GET_CONSUMER_CONNECTION_LIST
    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListProducerConnections(Header):
    """Ask for the producers of a group; the reply's body is `ProducerConnections`."""

    CODE = RequestCode.GET_PRODUCER_CONNECTION_LIST
    producer_group: str


class ClientConnection(msgspec.Struct, frozen=True, kw_only=True):
    """One client and its address."""

    address: str = msgspec.field(default="", name="clientAddr")
    client_id: str = msgspec.field(default="", name="clientId")
    language: str = "OTHER"
    version: JavaInt = 0


class ConsumerConnections(msgspec.Struct, kw_only=True):
    """The clients of a consumer group, and how it consumes."""

    connections: list[ClientConnection] = msgspec.field(default_factory=list, name="connectionSet")
    consume_from: ConsumeFrom | None = msgspec.field(default=None, name="consumeFromWhere")
    consume_type: ConsumeType | None = msgspec.field(default=None, name="consumeType")
    message_model: MessageModel | None = msgspec.field(default=None, name="messageModel")
    subscriptions: dict[str, Subscription] = msgspec.field(
        default_factory=dict, name="subscriptionTable"
    )


class ProducerConnections(msgspec.Struct, kw_only=True):
    """The clients of a producer group."""

    connections: list[ClientConnection] = msgspec.field(default_factory=list, name="connectionSet")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListProducers(Header):
    """Ask for every producer of a broker; the reply's body is a `ProducerTable`."""

    CODE = RequestCode.GET_ALL_PRODUCER_INFO


class ListedProducer(msgspec.Struct, frozen=True, kw_only=True):
    """One producer, and when it last sent a heartbeat."""

    client_id: str = msgspec.field(default="", name="clientId")
    language: str = "OTHER"
    last_heard_ms: JavaLong = msgspec.field(default=0, name="lastUpdateTimestamp")
    address: str = msgspec.field(default="", name="remoteIP")
    version: JavaInt = 0


class ProducerTable(msgspec.Struct, kw_only=True):
    """The producers of every group."""

    groups: dict[str, list[ListedProducer]] = msgspec.field(default_factory=dict, name="data")
