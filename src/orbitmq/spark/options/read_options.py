"""Options for reading topics, in batches and as streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from orbitmq.client.core.subscriptions import Expression, by_sql, subscription_of
from orbitmq.errors import FilterSyntaxError, SettingsError
from orbitmq.model.names import TOOLS_GROUP, check_group
from orbitmq.model.subscriptions import EVERYTHING
from orbitmq.spark.options.queue_texts import NUMBERS_EXAMPLE, parse_numbers, parse_times
from orbitmq.spark.options.spark_options import (
    ConnectionOptions,
    check_one_given,
    given_among,
    options_from,
    parse_duration_ms,
    spark_option,
)
from orbitmq.spark.options.topic_options import TOPIC_FORMS, TopicOptions

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

WHERE: Final = 'format("rocketmq")'

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
# Compat: how Kafka's users write them in JSON.
EARLIEST_NUMBER: Final = -2
LATEST_NUMBER: Final = -1

FAIL: Final = "fail"
WAIT: Final = "wait"
SKIP: Final = "skip"

# Retries for servers that never answered: their address may be wrong.
FIRST_RETRIES: Final = 5

_START_FORMS: Final = ("starting_offsets", "starting_timestamp", "starting_offsets_by_timestamp")
_END_FORMS: Final = ("ending_offsets", "ending_timestamp", "ending_offsets_by_timestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(TopicOptions, ConnectionOptions):
    """Where a read starts and ends, and how it runs; for `read` and `readStream`."""

    starting_offsets: str = spark_option(
        "",
        kafka="startingOffsets",
        default_shown="earliest; latest for streams",
        doc="Where to start reading: `earliest`, `latest` (streams only), or an offset for each "
        'queue, as in `{"orders": {"broker-a": {"0": 17, "1": -2}}}`, with -2 for earliest and '
        "-1 for latest. A stream with a checkpoint resumes there, and reads queues that appear "
        "later from their beginning.",
    )
    starting_timestamp: int | None = spark_option(
        None,
        low=0,
        is_time=True,
        kafka="startingTimestamp",
        doc="Start each queue at the first message stored at or after this time: milliseconds "
        "since the epoch, or ISO 8601 as in `2026-01-31T12:30:00+01:00`, in UTC without a zone. "
        "Only one of the three options that set a start can be given.",
    )
    starting_offsets_by_timestamp: str = spark_option(
        "",
        kafka="startingOffsetsByTimestamp",
        doc="A start time for each queue, written like `startingOffsets`; ISO times in quotes.",
    )
    starting_offsets_by_timestamp_strategy: str = spark_option(
        "error",
        choices=("error", "latest"),
        kafka="startingOffsetsByTimestampStrategy",
        doc="What to do with a queue that has no message since its start time: fail, or read it "
        "from its end.",
    )
    ending_offsets: str = spark_option(
        "",
        kafka="endingOffsets",
        default_shown="latest",
        doc="Where a batch ends: `latest`, or for each queue the offset after the last message "
        "to read, written like `startingOffsets`; -1 is latest.",
    )
    ending_timestamp: int | None = spark_option(
        None,
        low=0,
        is_time=True,
        kafka="endingTimestamp",
        doc="End a batch in each queue before the first message stored at or after this time, "
        "written like `startingTimestamp`; at the end of the queue if it has none.",
    )
    ending_offsets_by_timestamp: str = spark_option(
        "",
        kafka="endingOffsetsByTimestamp",
        doc="An end time for each queue, written like `endingOffsets`; ISO times in quotes.",
    )
    sql: str = spark_option(
        "",
        others=("filter", "sql92"),
        doc="Read only messages whose properties meet this SQL92 condition, as in `price > 3`; "
        "the broker filters. RocketMQ's brokers need `enablePropertyFilter=true`.",
    )
    max_offsets_per_trigger: int | None = spark_option(
        None,
        low=1,
        kafka="maxOffsetsPerTrigger",
        doc="Most messages in one micro-batch, shared among the queues in proportion to their lag.",
    )
    max_bytes_per_trigger: int | None = spark_option(
        None,
        low=1,
        doc="Approximate bytes in one micro-batch, as stored. The number of messages is estimated "
        "from the average of the next 32 of each queue; at least one is read.",
    )
    min_offsets_per_trigger: int | None = spark_option(
        None,
        low=1,
        kafka="minOffsetsPerTrigger",
        doc="A micro-batch waits until this many messages are available, or `maxTriggerDelay` has "
        "passed.",
    )
    max_trigger_delay: str = spark_option(
        "15m",
        kafka="maxTriggerDelay",
        doc="Longest wait for `minOffsetsPerTrigger`, as in `500ms`, `30s`, `15m` or `1h`.",
    )
    group: str = spark_option(
        "",
        kafka="kafka.group.id",
        others=("groupIdPrefix", "consumerGroup"),
        doc="A consumer group to which a stream copies its progress, so that tools show its lag. "
        "It is never read back. If empty, nothing is copied.",
    )
    reading_group: str = spark_option(
        TOOLS_GROUP,
        doc="The group that reads are made as, for clusters that check it. Every broker has the "
        "default one. Do not name a group with consumers: they would miss offset resets.",
    )
    retries: int = spark_option(
        60,
        low=0,
        high=1_000,
        kafka="fetchOffset.numRetries",
        others=("numRetries",),
        doc="Retries of a failed request before the task or query fails. With the default pause "
        "they last a minute, enough for a server restart. A server that never answered gets at "
        f"most {FIRST_RETRIES} retries.",
    )
    retry_interval_ms: int = spark_option(
        1_000,
        low=0,
        high=600_000,
        kafka="fetchOffset.retryIntervalMs",
        doc="Pause before each retry.",
    )
    missing_brokers: str = spark_option(
        FAIL,
        choices=(FAIL, WAIT, SKIP),
        doc="What to do while a broker that has queues to read is missing: `fail` after `retries`, "
        "`wait` for it up to `maxBrokerWait`, or `skip` its queues with a warning. A stream that "
        "skips a queue keeps its position there, and resumes when the broker is back.",
    )
    max_broker_wait: str = spark_option(
        "1h",
        doc="Longest wait with `missingBrokers=wait`, as in `30s`, `15m` or `1h`; then the query "
        "fails.",
    )
    pull_timeout_ms: int = spark_option(
        30_000,
        low=1,
        high=600_000,
        kafka="kafkaConsumer.pollTimeoutMs",
        others=("pollTimeoutMs",),
        doc="Longest wait for the reply to one pull.",
    )
    pull_bytes_max: int = spark_option(
        2 * 1024 * 1024,
        low=1,
        high=16 * 1024 * 1024,
        kafka="kafka.max.partition.fetch.bytes",
        doc="Most bytes that one pull asks of OrbitMQ's brokers. RocketMQ's brokers have limits "
        "of their own.",
    )
    pulls_ahead: int = spark_option(
        4,
        low=1,
        high=64,
        doc="Most pulls of a task that are in flight or waiting to be decoded.",
    )

    def __post_init__(self) -> None:
        # Not super(): with slots, dataclass makes a new class, which super() does not know.
        ConnectionOptions.__post_init__(self)
        TopicOptions.__post_init__(self)
        if not given_among(self, TOPIC_FORMS):
            raise SettingsError(
                "nothing says what to read: give one of subscribe, subscribePattern and assign",
                hint='.option("subscribe", "orders") reads one topic',
            )
        self._check_positions()
        if self.tags and self.sql:
            raise SettingsError("both tags and sql are given", hint="use one of them")
        subscription_of("any", self.expression, version_ms=0)
        if self.sql:
            self._check_sql()
        check_group(self.reading_group)
        if self.group:
            check_group(self.group)
        for name, text in (
            ("maxTriggerDelay", self.max_trigger_delay),
            ("maxBrokerWait", self.max_broker_wait),
        ):
            try:
                parse_duration_ms(text)
            except ValueError:
                raise SettingsError(
                    f"{name} cannot be {text!r}", hint="write it as 500ms, 30s, 15m or 1h"
                ) from None

    def _check_sql(self) -> None:
        from orbitmq.filtering.sql import compile_sql

        # The broker would refuse it too, but only task by task.
        try:
            compile_sql(self.sql)
        except FilterSyntaxError as error:
            raise SettingsError(f"cannot parse sql: {error}") from None

    def _check_positions(self) -> None:
        for forms in (_START_FORMS, _END_FORMS):
            check_one_given(self, forms, hint="use one of them")
        _check_offsets(
            "startingOffsets", self.starting_offsets, (EARLIEST, LATEST), low=EARLIEST_NUMBER
        )
        if self.ending_offsets.lower() == EARLIEST:
            raise SettingsError("endingOffsets cannot be earliest", hint="nothing would be read")
        _check_offsets("endingOffsets", self.ending_offsets, (LATEST,), low=LATEST_NUMBER)
        for name, text in (
            ("startingOffsetsByTimestamp", self.starting_offsets_by_timestamp),
            ("endingOffsetsByTimestamp", self.ending_offsets_by_timestamp),
        ):
            if text:
                parse_times(text, name=name)

    @classmethod
    def from_spark(
        cls,
        given: Mapping[str, str],
        *,
        streaming: bool | None = False,
        beside: Iterable[type[DataclassInstance]] = (),
    ) -> Self:
        """Make options from what Spark hands over.

        Args:
            given: names and texts.
            streaming: whether for a stream or for a batch; None if not known yet.
            beside: classes whose options may also be given.
        """
        made = options_from(cls, given, where=WHERE, beside=beside)
        if streaming is None:
            return made
        if streaming:
            if refused := given_among(made, _END_FORMS):
                raise SettingsError(
                    f"{refused[0]} is for batches, and this is a stream",
                    hint="a stream has no end; trigger(availableNow=True) reads what is available",
                )
            if not given_among(made, _START_FORMS):
                return replace(made, starting_offsets=LATEST)
        elif made._starts_at_the_end():
            raise SettingsError(
                "startingOffsets cannot be latest in a batch",
                hint="nothing would be read; start at earliest, an offset or a time",
            )
        return made

    def _starts_at_the_end(self) -> bool:
        text = self.starting_offsets.lower()
        if text in {"", EARLIEST, LATEST}:
            return text == LATEST
        numbers = parse_numbers(self.starting_offsets, name="startingOffsets", low=EARLIEST_NUMBER)
        return LATEST_NUMBER in numbers.values()

    @property
    def expression(self) -> Expression:
        """The filter that the broker applies."""
        return by_sql(self.sql) if self.sql else self.tags or EVERYTHING

    @property
    def max_trigger_delay_ms(self) -> int:
        """Longest wait of a micro-batch for messages."""
        return parse_duration_ms(self.max_trigger_delay)

    @property
    def max_broker_wait_ms(self) -> int:
        """Longest wait for missing brokers."""
        return parse_duration_ms(self.max_broker_wait)


def _check_offsets(name: str, text: str, words: tuple[str, ...], *, low: int) -> None:
    if text.lower() in {"", *words}:
        return
    if not text.lstrip().startswith("{"):
        raise SettingsError(
            f"{name} cannot be {text!r}",
            hint=f"use {' or '.join(words)}, or an offset for each queue: {NUMBERS_EXAMPLE}",
        )
    parse_numbers(text, name=name, low=low)
