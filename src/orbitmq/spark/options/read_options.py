"""Options of reading topics, in batches and as streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from orbitmq.client.core.subscriptions import Expression, by_sql, subscription_of
from orbitmq.errors import FilterSyntaxError, SettingsError
from orbitmq.model.names import TOOLS_GROUP, check_group
from orbitmq.model.subscriptions import EVERYTHING
from orbitmq.spark.options.queue_texts import NUMBERS_EXAMPLE, parse_numbers
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
# Compat: as Kafka's users write them within JSON.
EARLIEST_NUMBER: Final = -2
LATEST_NUMBER: Final = -1

# How often servers are asked again that have not answered once: the address may be wrong.
FIRST_RETRIES: Final = 5

_START_FORMS: Final = ("starting_offsets", "starting_timestamp", "starting_offsets_by_timestamp")
_END_FORMS: Final = ("ending_offsets", "ending_timestamp", "ending_offsets_by_timestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(TopicOptions, ConnectionOptions):
    """From where to where is read, and how; `read` and `readStream` take them."""

    starting_offsets: str = spark_option(
        "",
        kafka="startingOffsets",
        default_shown="earliest; of streams latest",
        doc="Where reading begins: `earliest`, `latest` (streams only), or an offset for each "
        'queue, as in `{"orders": {"broker-a": {"0": 17, "1": -2}}}`, with -2 for earliest and '
        "-1 for latest. A stream that has a checkpoint goes on there; queues it finds later are "
        "read from their beginning.",
    )
    starting_timestamp: int | None = spark_option(
        None,
        low=0,
        kafka="startingTimestamp",
        doc="Begin in each queue with the first message stored at or after this time, in "
        "milliseconds since the epoch. Only one of the three ways to say where to begin may be "
        "used.",
    )
    starting_offsets_by_timestamp: str = spark_option(
        "",
        kafka="startingOffsetsByTimestamp",
        doc="The same with a time for each queue, written like offsets.",
    )
    starting_offsets_by_timestamp_strategy: str = spark_option(
        "error",
        choices=("error", "latest"),
        kafka="startingOffsetsByTimestampStrategy",
        doc="What becomes of a queue without a message since that time: an error, or it is read "
        "from its end.",
    )
    ending_offsets: str = spark_option(
        "",
        kafka="endingOffsets",
        default_shown="latest",
        doc="Where a batch ends: `latest`, or for each queue the offset behind the last message "
        "to read, written like `startingOffsets`; -1 is latest.",
    )
    ending_timestamp: int | None = spark_option(
        None,
        low=0,
        kafka="endingTimestamp",
        doc="End a batch in each queue before the first message stored at or after this time, in "
        "milliseconds since the epoch; at its end if there is none.",
    )
    ending_offsets_by_timestamp: str = spark_option(
        "",
        kafka="endingOffsetsByTimestamp",
        doc="The same with a time for each queue, written like offsets.",
    )
    sql: str = spark_option(
        "",
        others=("filter", "sql92"),
        doc="Only messages whose properties meet this SQL92 condition, as in `price > 3`; the "
        "broker leaves the others out. RocketMQ's brokers need `enablePropertyFilter=true`.",
    )
    max_offsets_per_trigger: int | None = spark_option(
        None,
        low=1,
        kafka="maxOffsetsPerTrigger",
        doc="Messages of one micro-batch, at most, shared by the queues in proportion to what "
        "waits in them.",
    )
    max_bytes_per_trigger: int | None = spark_option(
        None,
        low=1,
        doc="Bytes of one micro-batch, about, as the store counts them: the average of the next "
        "32 messages of each queue says how many messages they make. One is read at least.",
    )
    min_offsets_per_trigger: int | None = spark_option(
        None,
        low=1,
        kafka="minOffsetsPerTrigger",
        doc="A micro-batch waits until so many messages are there, or `maxTriggerDelay` is over.",
    )
    max_trigger_delay: str = spark_option(
        "15m",
        kafka="maxTriggerDelay",
        doc="How long it waits for them, as in `500ms`, `30s`, `15m` or `1h`.",
    )
    group: str = spark_option(
        "",
        kafka="kafka.group.id",
        others=("groupIdPrefix", "consumerGroup"),
        doc="A consumer group to which a stream copies its progress, so that tools show its lag. "
        "It is never read back; without one nothing is copied.",
    )
    reading_group: str = spark_option(
        TOOLS_GROUP,
        doc="The group in whose name is read, for clusters that check it. Every broker has the "
        "default one. With a group that consumes, its consumers would miss resets of offsets.",
    )
    retries: int = spark_option(
        60,
        low=0,
        high=1_000,
        kafka="fetchOffset.numRetries",
        others=("numRetries",),
        doc="How often a request that failed is made again before the task or query fails: with "
        "the pause between, a minute for servers that are started anew. Those that never answered "
        f"are asked {FIRST_RETRIES} times more, at most.",
    )
    retry_interval_ms: int = spark_option(
        1_000,
        low=0,
        high=600_000,
        kafka="fetchOffset.retryIntervalMs",
        doc="Pause before it is made again.",
    )
    pull_timeout_ms: int = spark_option(
        30_000,
        low=1,
        high=600_000,
        kafka="kafkaConsumer.pollTimeoutMs",
        others=("pollTimeoutMs",),
        doc="Longest wait for the answer to one pull.",
    )
    pull_bytes_max: int = spark_option(
        2 * 1024 * 1024,
        low=1,
        high=16 * 1024 * 1024,
        kafka="kafka.max.partition.fetch.bytes",
        doc="Bytes that one pull asks OrbitMQ's brokers for, at most. RocketMQ's brokers have "
        "limits of their own.",
    )
    pulls_ahead: int = spark_option(
        4,
        low=1,
        high=64,
        doc="Pulls of a task that are under way or waiting to be decoded, at most.",
    )

    def __post_init__(self) -> None:
        # Zero arguments would not do: a dataclass with slots is another class than this one.
        ConnectionOptions.__post_init__(self)
        TopicOptions.__post_init__(self)
        if not given_among(self, TOPIC_FORMS):
            raise SettingsError(
                "one of subscribe, subscribePattern and assign must be given, and none is",
                hint='.option("subscribe", "orders") reads one topic',
            )
        self._check_positions()
        if self.tags and self.sql:
            raise SettingsError("both tags and sql are given", hint="a read has one filter")
        subscription_of("any", self.expression, version_ms=0)
        if self.sql:
            self._check_sql()
        check_group(self.reading_group)
        if self.group:
            check_group(self.group)
        try:
            parse_duration_ms(self.max_trigger_delay)
        except ValueError:
            raise SettingsError(
                f"maxTriggerDelay cannot be {self.max_trigger_delay!r}",
                hint="write it as 500ms, 30s, 15m or 1h",
            ) from None

    def _check_sql(self) -> None:
        from orbitmq.filtering.sql import compile_sql

        # The broker would say it as well, to every task.
        try:
            compile_sql(self.sql)
        except FilterSyntaxError as error:
            raise SettingsError(f"sql cannot be read: {error}") from None

    def _check_positions(self) -> None:
        for forms in (_START_FORMS, _END_FORMS):
            check_one_given(self, forms, hint="say in one way only where to begin or end")
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
                parse_numbers(text, name=name, low=0)

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
            streaming: whether for a stream or for a batch; None as long as that is not known.
            beside: classes whose options may be there, too.
        """
        made = options_from(cls, given, where=WHERE, beside=beside)
        if streaming is None:
            return made
        if streaming:
            if refused := given_among(made, _END_FORMS):
                raise SettingsError(
                    f"{refused[0]} is for batches, and this is a stream",
                    hint="a stream has no end; trigger(availableNow=True) reads what is there",
                )
            if not given_among(made, _START_FORMS):
                return replace(made, starting_offsets=LATEST)
        elif made._begins_at_the_end():
            raise SettingsError(
                "startingOffsets cannot be latest in a batch",
                hint="nothing would be read; begin with earliest, an offset or a time",
            )
        return made

    def _begins_at_the_end(self) -> bool:
        text = self.starting_offsets.lower()
        if text in {"", EARLIEST, LATEST}:
            return text == LATEST
        numbers = parse_numbers(self.starting_offsets, name="startingOffsets", low=EARLIEST_NUMBER)
        return LATEST_NUMBER in numbers.values()

    @property
    def expression(self) -> Expression:
        """What the broker leaves messages out by."""
        return by_sql(self.sql) if self.sql else self.tags or EVERYTHING

    @property
    def max_trigger_delay_ms(self) -> int:
        """How long a micro-batch waits for messages."""
        return parse_duration_ms(self.max_trigger_delay)


def _check_offsets(name: str, text: str, words: tuple[str, ...], *, low: int) -> None:
    if text.lower() in {"", *words}:
        return
    if not text.lstrip().startswith("{"):
        raise SettingsError(
            f"{name} cannot be {text!r}",
            hint=f"it is {' or '.join(words)}, or an offset for each queue: {NUMBERS_EXAMPLE}",
        )
    parse_numbers(text, name=name, low=low)
