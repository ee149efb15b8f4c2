"""Reading messages of a queue: pull requests, and their replies."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header, Long, wire


class PullFlag(IntFlag):
    """The bits of a pull request's system flag."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16


class PullForbidden(IntEnum):
    """Why a pull is answered with NO_PERMISSION."""

    BROKER = 1
    GROUP = 2
    TOPIC = 3
    BROADCAST = 4
    SUBSCRIPTION = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PullMessages(Header):
    """Ask for messages from an offset on; the reply's body is their records, back to back."""

    CODE = RequestCode.PULL_MESSAGE
    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: Long
    messages_max: int = wire("maxMsgNums")
    # Bits of `PullFlag`.
    system_flag: int = wire("sysFlag")
    # The first applies only with COMMIT_OFFSET, the time to hold the request only with SUSPEND.
    commit_offset: Long
    suspend_timeout_ms: Long = wire("suspendTimeoutMillis")
    # Applies only with SUBSCRIPTION; otherwise the subscription in the group's heartbeats counts.
    expression: str | None = wire("subscription", None)
    subscription_version: Long = wire("subVersion")
    expression_type: str | None = None
    bytes_max: int | None = wire("maxMsgBytes", None)
    # Compat: set by RocketMQ's proxy; the second name is misspelt on the wire.
    request_source: int | None = None
    proxied_client_id: str | None = wire("proxyFrowardClientId", None)
    broker_name: str | None = wire("bname", None)
    # OrbitMQ's own, which RocketMQ's brokers ignore: the most messages and bytes of a reply, for
    # bulk readers of a queue; 0 as the last asks for records without bodies. Such a pull is never
    # held.
    bulk_count: int | None = None
    bulk_bytes: int | None = None
    bulk_bodies: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullMessages(PullMessages):
    """The same request under the code that lite consumers of RocketMQ 5 use."""

    CODE = RequestCode.LITE_PULL_MESSAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class PullReply(Header):
    """Where to continue reading; clients need it whether messages were found or not."""

    suggested_broker_id: Long = wire("suggestWhichBrokerId")
    next_offset: Long = wire("nextBeginOffset")
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_unit_flag: int | None = wire("topicSysFlag", None)
    group_unit_flag: int | None = wire("groupSysFlag", None)
    # A `PullForbidden`, with NO_PERMISSION only.
    forbidden: int | None = wire("forbiddenType", None)
