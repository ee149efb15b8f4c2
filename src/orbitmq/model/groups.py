"""A consumer group as its broker stores it, with RocketMQ's field names."""

from __future__ import annotations

from typing import Final

import msgspec

from orbitmq.java_json import JavaInt, JavaLong

_SECOND_MS: Final = 1000
_MINUTE_MS: Final = 60 * _SECOND_MS
_HOUR_MS: Final = 60 * _MINUTE_MS


class ExponentialRetry(msgspec.Struct, frozen=True, kw_only=True):
    """Pauses between attempts that grow by a factor up to a maximum."""

    initial_ms: JavaLong = msgspec.field(default=5 * _SECOND_MS, name="initial")
    largest_ms: JavaLong = msgspec.field(default=2 * _HOUR_MS, name="max")
    multiplier: JavaLong = 2


class ListedRetry(msgspec.Struct, frozen=True, kw_only=True):
    """Pauses between attempts, as a list."""

    pauses_ms: list[JavaLong] = msgspec.field(
        default_factory=lambda: [
            *(seconds * _SECOND_MS for seconds in (1, 5, 10, 30)),
            *(minutes * _MINUTE_MS for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
            *(hours * _HOUR_MS for hours in (1, 2)),
        ],
        name="next",
    )


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long a group waits between retries; used by RocketMQ 5's newer clients."""

    listed: ListedRetry | None = msgspec.field(default=None, name="customizedRetryPolicy")
    exponential: ExponentialRetry | None = msgspec.field(
        default=None, name="exponentialRetryPolicy"
    )
    type: str = "CUSTOMIZED"


class FixedSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription of a group that does not depend on its members."""

    expression: str | None = None
    expression_type: str | None = msgspec.field(default=None, name="expressionType")
    topic: str | None = None
    version: JavaLong = 0


class GroupConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One consumer group of one broker: RocketMQ's SubscriptionGroupConfig."""

    attributes: dict[str, str] = {}
    broker_id: JavaLong = msgspec.field(default=0, name="brokerId")
    allows_broadcast: bool = msgspec.field(default=True, name="consumeBroadcastEnable")
    allows_consuming: bool = msgspec.field(default=True, name="consumeEnable")
    starts_at_oldest: bool = msgspec.field(default=True, name="consumeFromMinEnable")
    consumes_in_order: bool = msgspec.field(default=False, name="consumeMessageOrderly")
    consume_timeout_minutes: JavaInt = msgspec.field(default=15, name="consumeTimeoutMinute")
    name: str = msgspec.field(default="", name="groupName")
    retry_policy: RetryPolicy = msgspec.field(default_factory=RetryPolicy, name="groupRetryPolicy")
    unit_flag: JavaInt = msgspec.field(default=0, name="groupSysFlag")
    tells_of_changes: bool = msgspec.field(default=True, name="notifyConsumerIdsChangedEnable")
    retries_max: JavaInt = msgspec.field(default=16, name="retryMaxTimes")
    retry_queues: JavaInt = msgspec.field(default=1, name="retryQueueNums")
    subscriptions: list[FixedSubscription] | None = msgspec.field(
        default=None, name="subscriptionDataSet"
    )
    slow_reader_broker_id: JavaLong = msgspec.field(default=1, name="whichBrokerWhenConsumeSlowly")
