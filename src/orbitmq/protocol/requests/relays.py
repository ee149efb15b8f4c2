"""Requests from a broker to its consumers, relayed for an operator or its own."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from orbitmq.java_json import EnumName, JavaInt, JavaLong, ObjectKeyed
from orbitmq.model.queues import MessageQueue
from orbitmq.model.subscriptions import Subscription
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header, wire


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerOffsets(Header):
    """The broker asks a consumer for its offsets; the reply's body is `ConsumerOffsets`."""

    CODE = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    topic: str
    group: str
    # The id of one client; Java's name for the field is misleading.
    client_id: str | None = wire("clientAddr", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GetGroupOffsets(GetConsumerOffsets):
    """An operator asks for the offsets of a group's members; the body is `ConsumerOffsets`."""

    CODE = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS


class ConsumerOffsets(msgspec.Struct, kw_only=True):
    """The offsets of one consumer, or of each member by client id."""

    by_client: dict[str, ObjectKeyed[MessageQueue, JavaLong]] = msgspec.field(
        default_factory=dict, name="consumerTable"
    )
    queues: ObjectKeyed[MessageQueue, JavaLong] = msgspec.field(
        default_factory=ObjectKeyed, name="messageQueueTable"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GetRunningConsumer(Header):
    """Ask one consumer what it is doing; the reply's body is a `RunningConsumer`."""

    CODE = RequestCode.GET_CONSUMER_RUNNING_INFO
    consumer_group: str
    client_id: str
    with_stacks: bool = wire("jstackEnable", default=False)


class QueueProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a queue in its consumer."""

    cached_messages: JavaInt = msgspec.field(default=0, name="cachedMsgCount")
    cached_max_offset: JavaLong = msgspec.field(default=0, name="cachedMsgMaxOffset")
    cached_min_offset: JavaLong = msgspec.field(default=0, name="cachedMsgMinOffset")
    cached_mib: JavaInt = msgspec.field(default=0, name="cachedMsgSizeInMiB")
    commit_offset: JavaLong = msgspec.field(default=0, name="commitOffset")
    dropped: bool = msgspec.field(default=False, name="droped")
    last_consume_ms: JavaLong = msgspec.field(default=0, name="lastConsumeTimestamp")
    last_lock_ms: JavaLong = msgspec.field(default=0, name="lastLockTimestamp")
    last_pull_ms: JavaLong = msgspec.field(default=0, name="lastPullTimestamp")
    locked: bool = False
    # "Transaction" is Java's word for the messages that an ordered listener is processing.
    consuming_messages: JavaInt = msgspec.field(default=0, name="transactionMsgCount")
    consuming_max_offset: JavaLong = msgspec.field(default=0, name="transactionMsgMaxOffset")
    consuming_min_offset: JavaLong = msgspec.field(default=0, name="transactionMsgMinOffset")
    unlock_attempts: JavaLong = msgspec.field(default=0, name="tryUnlockTimes")


class PopQueueProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a queue in its pop consumer."""

    dropped: bool = msgspec.field(default=False, name="droped")
    last_pop_ms: JavaLong = msgspec.field(default=0, name="lastPopTimestamp")
    waiting_acks: JavaInt = msgspec.field(default=0, name="waitAckCount")


class ConsumeSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a consumer pulls and consumes a topic; times are in milliseconds."""

    failed_messages: JavaLong = msgspec.field(default=0, name="consumeFailedMsgs")
    failed_per_second: float = msgspec.field(default=0.0, name="consumeFailedTPS")
    consumed_per_second: float = msgspec.field(default=0.0, name="consumeOKTPS")
    consume_ms: float = msgspec.field(default=0.0, name="consumeRT")
    pull_ms: float = msgspec.field(default=0.0, name="pullRT")
    pulled_per_second: float = msgspec.field(default=0.0, name="pullTPS")


class RunningConsumer(msgspec.Struct, kw_only=True):
    """The state that a consumer reports of itself."""

    stacks: str | None = msgspec.field(default=None, name="jstack")
    pop_queues: ObjectKeyed[MessageQueue, PopQueueProgress] = msgspec.field(
        default_factory=ObjectKeyed, name="mqPopTable"
    )
    queues: ObjectKeyed[MessageQueue, QueueProgress] = msgspec.field(
        default_factory=ObjectKeyed, name="mqTable"
    )
    properties: dict[str, str] = {}
    speeds: dict[str, ConsumeSpeed] = msgspec.field(default_factory=dict, name="statusTable")
    subscriptions: list[Subscription] = msgspec.field(default_factory=list, name="subscriptionSet")
    notes: dict[str, str] = msgspec.field(default_factory=dict, name="userConsumerInfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeDirectly(Header):
    """Have a consumer consume a message now; the reply's body is a `DirectResult`.

    An operator names the message; the broker adds its record as the body for the consumer.
    """

    CODE = RequestCode.CONSUME_MESSAGE_DIRECTLY
    consumer_group: str
    client_id: str | None = None
    message_id: str | None = wire("msgId", None)
    broker_name: str | None = None
    topic: str | None = None
    topic_unit_flag: int | None = wire("topicSysFlag", None)
    group_unit_flag: int | None = wire("groupSysFlag", None)


class DirectOutcome(EnumName):
    """The outcome of a listener call."""

    __slots__ = ()
    NAMES = (
        "CR_SUCCESS",
        "CR_LATER",
        "CR_ROLLBACK",
        "CR_COMMIT",
        "CR_THROW_EXCEPTION",
        "CR_RETURN_NULL",
    )


class DirectResult(msgspec.Struct, kw_only=True):
    """The outcome of a listener call, and how long it took."""

    auto_commit: bool = msgspec.field(default=True, name="autoCommit")
    outcome: DirectOutcome = msgspec.field(name="consumeResult")
    ordered: bool = msgspec.field(default=False, name="order")
    remark: str | None = None
    spent_ms: JavaLong = msgspec.field(default=0, name="spentTimeMills")
