"""Statistics of a broker: progress of groups, counters, time spans, its state."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from orbitmq.java_json import JavaInt, JavaLong, ObjectKeyed
from orbitmq.model.queues import MessageQueue
from orbitmq.model.subscriptions import Subscription
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header, wire


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumeStats(Header):
    """Ask for a group's progress, in some topics or in all; the body is `ConsumeStats`."""

    CODE = RequestCode.GET_CONSUME_STATS
    consumer_group: str
    topic: str | None = None
    # Topics, each followed by a semicolon.
    topic_list: str | None = None

    @property
    def topics(self) -> list[str]:
        """The topics asked for; an empty list means all that the group consumes."""
        listed = [topic for topic in (self.topic_list or "").split(";") if topic]
        return listed or ([self.topic] if self.topic else [])


class ConsumeProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A group's progress in a queue."""

    broker_offset: JavaLong = msgspec.field(default=0, name="brokerOffset")
    consumer_offset: JavaLong = msgspec.field(default=0, name="consumerOffset")
    # When the last consumed message was stored.
    last_timestamp_ms: JavaLong = msgspec.field(default=0, name="lastTimestamp")
    pull_offset: JavaLong = msgspec.field(default=0, name="pullOffset")


class ConsumeStats(msgspec.Struct, kw_only=True):
    """A group's progress in each queue, and its speed."""

    consumed_per_second: float = msgspec.field(default=0.0, name="consumeTps")
    queues: ObjectKeyed[MessageQueue, ConsumeProgress] = msgspec.field(
        default_factory=ObjectKeyed, name="offsetTable"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBrokerConsumeStats(Header):
    """Ask for the progress of every group; the reply's body is `BrokerConsumeStats`."""

    CODE = RequestCode.GET_BROKER_CONSUME_STATS
    ordered_topics_only: bool = wire("isOrder", default=False)


class BrokerConsumeStats(msgspec.Struct, kw_only=True):
    """The progress of every group, topic by topic, and their total lag."""

    broker_address: str | None = msgspec.field(default=None, name="brokerAddr")
    groups: list[dict[str, list[ConsumeStats]]] = msgspec.field(
        default_factory=list, name="consumeStatsList"
    )
    lag: JavaLong = msgspec.field(default=0, name="totalDiff")
    in_flight: JavaLong = msgspec.field(default=0, name="totalInflightDiff")


@dataclass(frozen=True, slots=True, kw_only=True)
class GetCounter(Header):
    """Ask for one counter; the reply's body is a `CounterReply`."""

    CODE = RequestCode.VIEW_BROKER_STATS_DATA
    name: str = wire("statsName")
    key: str = wire("statsKey")


class CounterWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A counter over a span of time."""

    average: float = msgspec.field(default=0.0, name="avgpt")
    sum: JavaLong = 0
    per_second: float = msgspec.field(default=0.0, name="tps")


class CounterReply(msgspec.Struct, kw_only=True):
    """A counter over the last day, hour and minute."""

    day: CounterWindow = msgspec.field(default_factory=CounterWindow, name="statsDay")
    hour: CounterWindow = msgspec.field(default_factory=CounterWindow, name="statsHour")
    minute: CounterWindow = msgspec.field(default_factory=CounterWindow, name="statsMinute")


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTimeSpans(Header):
    """Ask how old a group's unconsumed messages are; the reply's body is `QueueTimeSpans`."""

    CODE = RequestCode.QUERY_CONSUME_TIME_SPAN
    topic: str
    group: str


class QueueTimeSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Store times of a queue's messages: the newest consumed, the newest, the oldest."""

    consumed_until_ms: JavaLong = msgspec.field(default=0, name="consumeTimeStamp")
    delay_ms: JavaLong = msgspec.field(default=0, name="delayTime")
    newest_ms: JavaLong = msgspec.field(default=0, name="maxTimeStamp")
    queue: MessageQueue = msgspec.field(name="messageQueue")
    oldest_ms: JavaLong = msgspec.field(default=0, name="minTimeStamp")


class QueueTimeSpans(msgspec.Struct, kw_only=True):
    """The time spans of a topic's queues."""

    queues: list[QueueTimeSpan] = msgspec.field(default_factory=list, name="consumeTimeSpanSet")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListConsumedTopics(Header):
    """Ask which topics a group has consumed; the reply's body is a `TopicList`."""

    CODE = RequestCode.QUERY_TOPICS_BY_CONSUMER
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetSubscription(Header):
    """Ask for a group's subscription to a topic; the reply's body is a `SubscriptionReply`."""

    CODE = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
    group: str
    topic: str | None = None


class SubscriptionReply(msgspec.Struct, kw_only=True):
    """A group's subscription to a topic."""

    group: str | None = None
    subscription: Subscription | None = msgspec.field(default=None, name="subscriptionData")
    topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetRuntime(Header):
    """Ask for a broker's state; the reply's body is a `KeyValueTable`."""

    CODE = RequestCode.GET_BROKER_RUNTIME_INFO


@dataclass(frozen=True, slots=True, kw_only=True)
class GetReplication(Header):
    """Ask for the slaves of a broker; the reply's body is `Replication`."""

    CODE = RequestCode.GET_BROKER_HA_STATUS


class SlaveLink(msgspec.Struct, frozen=True, kw_only=True):
    """One slave, as its master sees it."""

    address: str = msgspec.field(default="", name="addr")
    # By how many bytes it lags.
    lag_bytes: JavaLong = msgspec.field(default=0, name="diff")
    in_sync: bool = msgspec.field(default=False, name="inSync")
    confirmed_offset: JavaLong = msgspec.field(default=0, name="slaveAckOffset")
    sent_from_offset: JavaLong = msgspec.field(default=0, name="transferFromWhere")
    bytes_per_second: JavaLong = msgspec.field(default=0, name="transferredByteInSecond")
    # Of slaves of ours, at a master of ours: `address` is that of a connection.
    broker_id: JavaLong | None = msgspec.field(default=None, name="slaveBrokerId")
    broker_address: str | None = msgspec.field(default=None, name="slaveBrokerAddr")
    # How long ago the first message that it lacks was stored; only masters of ours say it.
    lag_ms: JavaLong | None = msgspec.field(default=None, name="slaveLagMillis")


class MasterLink(msgspec.Struct, frozen=True, kw_only=True):
    """The master of a slave, as the slave sees it; all 0 at a master."""

    # Why the log does not arrive; only slaves of ours say it.
    failure: str | None = None
    last_read_ms: JavaLong = msgspec.field(default=0, name="lastReadTimestamp")
    last_write_ms: JavaLong = msgspec.field(default=0, name="lastWriteTimestamp")
    address: str | None = msgspec.field(default=None, name="masterAddr")
    flushed_offset: JavaLong = msgspec.field(default=0, name="masterFlushOffset")
    end_offset: JavaLong = msgspec.field(default=0, name="maxOffset")
    bytes_per_second: JavaLong = msgspec.field(default=0, name="transferredByteInSecond")


class Replication(msgspec.Struct, kw_only=True):
    """The state of replication at one broker."""

    master_link: MasterLink = msgspec.field(default_factory=MasterLink, name="haClientRuntimeInfo")
    slaves: list[SlaveLink] = msgspec.field(default_factory=list, name="haConnectionInfo")
    in_sync_slaves: JavaInt = msgspec.field(default=0, name="inSyncSlaveNums")
    is_master: bool = msgspec.field(default=False, name="master")
    log_end: JavaLong = msgspec.field(default=0, name="masterCommitLogMaxOffset")
    # Only brokers of ours say it.
    epoch: JavaLong | None = None
