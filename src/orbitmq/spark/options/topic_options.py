"""Options shared by reading a cluster and scanning stores."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, cast

from orbitmq.errors import SettingsError
from orbitmq.model.names import check_topic
from orbitmq.spark.options.column_names import ALL, USUAL_COLUMNS, parse_columns
from orbitmq.spark.options.queue_texts import parse_queues
from orbitmq.spark.options.spark_options import check_one_given, spark_option

if TYPE_CHECKING:
    from orbitmq.model.queues import MessageQueue

TOPIC_FORMS: Final = ("subscribe", "subscribe_pattern", "assign")


# No slots: a class can inherit them from one parent only, and `ConnectionOptions` has some.
@dataclass(frozen=True, kw_only=True)
class TopicOptions:
    """Which messages are read, and as what; for `read` and `readStream`."""

    subscribe: str = spark_option(
        "",
        kafka="subscribe",
        others=("topic", "topics", "consumerTopic"),
        doc="Topics to read, separated by ','. Only one of `subscribe`, `subscribePattern` and "
        "`assign` can be given. A cluster needs one of them; a store scan without any reads all "
        "topics.",
    )
    subscribe_pattern: str = spark_option(
        "",
        kafka="subscribePattern",
        others=("topicsPattern",),
        doc="A regular expression that must match whole topic names. System topics are left out. "
        "So are retry and dead-letter topics, unless the pattern contains %RETRY% or %DLQ%; in a "
        "store scan, unless `includeSystemTopics` is set. A stream finds topics that are created "
        "while it runs.",
    )
    assign: str = spark_option(
        "",
        kafka="assign",
        others=("queue", "queues"),
        doc='Queues to read, as in `{"orders": {"broker-a": [0, 1]}}`.',
    )
    tags: str = spark_option(
        "",
        doc="Read only messages with one of these tags, as in `TagA || TagB`. The broker filters; "
        "a store scan skips the others by their queue entries.",
    )
    push_filters: bool = spark_option(
        False,
        doc="Use a query's conditions on `topic`, `brokerName`, `queueId`, `queueOffset`, "
        "`storeTimestamp` and `tags` to read less. Needs Spark's setting "
        "`spark.sql.python.filterPushdown.enabled`, and a `load()` for each query: Spark 4.2 and 4.3 keep the result of a pushed condition, "
        "and reuse it for the next query of the same DataFrame, and for the other side of a join "
        "with itself.",
    )
    columns: str = spark_option(
        "",
        default_shown=", ".join(USUAL_COLUMNS),
        doc="The columns of the table, separated by ',', as in `topic, body`; `all` for every "
        "column. What is not named is not decoded, and without `body` OrbitMQ's brokers send no "
        "bodies. A schema given with `.schema(…)` overrides this.",
    )
    properties: str = spark_option(
        "string",
        choices=("string", "map", "none"),
        kafka="includeHeaders",
        doc="What the column `properties` holds: the stored text, or a map; `none` drops it. A "
        "map takes twice the time with small bodies. A schema given with `.schema(…)` overrides "
        "this.",
    )
    include_body: bool = spark_option(
        True,
        doc="Whether there is a column `body`, if `columns` does not name it.",
    )
    fail_on_data_loss: bool = spark_option(
        True,
        kafka="failOnDataLoss",
        doc="Whether lost messages fail the query; otherwise they are logged as a "
        "warning. In a store scan, lost are those deleted after planning, those in a file missing "
        "between others, and those in the log but not in their queue; earlier deletions are only "
        "logged.",
    )
    on_unreadable: str = spark_option(
        "fail",
        choices=("fail", "skip", "null"),
        others=("mode", "badRecords", "corruptRecords"),
        doc="What to do with a message that is there and cannot be read, as one whose compressed "
        "body cannot be decompressed: `fail` the query, `skip` the message, or return it with "
        "`null` in the columns that cannot be read. Such messages are logged as a warning.",
    )
    min_partitions: int | None = spark_option(
        None,
        low=1,
        high=100_000,
        kafka="minPartitions",
        doc="Split queues, or the log of a store, into at least about this many tasks. The default "
        "is the number of processors of the driver's machine; set it on a cluster that has more. "
        "A store scan adds tasks so that none reads over 512 MiB.",
    )
    max_records_per_partition: int | None = spark_option(
        None,
        low=1,
        kafka="maxRecordsPerPartition",
        doc="Most messages that one task reads; queues, or the log of a store, are split to fit.",
    )

    def __post_init__(self) -> None:
        check_one_given(self, TOPIC_FORMS, hint="use one of them")
        for topic in self.topics:
            check_topic(topic)
        if self.subscribe and not self.topics:
            raise SettingsError("subscribe names no topic", hint='"orders,payments" names two')
        try:
            re.compile(self.subscribe_pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise SettingsError(
                f"subscribePattern {self.subscribe_pattern!r:.200} is not a regular expression: "
                f"{error}",
                hint='"orders|payments-.*" matches one topic, and all with a common prefix',
            ) from None
        if self.assign:
            parse_queues(self.assign, name="assign")
        self._check_columns()

    def _check_columns(self) -> None:
        named = parse_columns(self.columns)
        if self.columns.strip().lower() in {"", ALL}:
            return
        for name, is_dropped, option in (
            ("properties", self.properties == "none", "properties=none"),
            ("body", not self.include_body, "includeBody=false"),
        ):
            if is_dropped and name in named:
                raise SettingsError(
                    f"columns names {name!r}, and {option} drops it", hint="give one of the two"
                )

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of `subscribe`."""
        return tuple(name for text in self.subscribe.split(",") if (name := text.strip()))

    @property
    def assigned_queues(self) -> tuple[MessageQueue, ...]:
        """The queues of `assign`."""
        return tuple(parse_queues(self.assign, name="assign")) if self.assign else ()

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns of the table, unless the user gives a schema."""
        dropped = set()
        if self.properties == "none":
            dropped.add("properties")
        if not self.include_body:
            dropped.add("body")
        return tuple(name for name in parse_columns(self.columns) if name not in dropped)

    @property
    def unreadable_choice(self) -> Literal["fail", "skip", "null"]:
        """What to do with a message that cannot be read."""
        # The choices of the option are these.
        return cast('Literal["fail", "skip", "null"]', self.on_unreadable)

    @property
    def may_be_null(self) -> bool:
        """Whether any column may be null."""
        return self.on_unreadable == "null"

    @property
    def properties_form(self) -> Literal["string", "map"]:
        """What the column `properties` holds, if there is one."""
        return "map" if self.properties == "map" else "string"
