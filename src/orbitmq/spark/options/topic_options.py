"""Options that reading a cluster and scanning stores share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, cast

from orbitmq.errors import SettingsError
from orbitmq.model.names import check_topic
from orbitmq.spark.options.queue_texts import parse_queues
from orbitmq.spark.options.spark_options import check_one_given, spark_option

if TYPE_CHECKING:
    from orbitmq.model.queues import MessageQueue

TOPIC_FORMS: Final = ("subscribe", "subscribe_pattern", "assign")


# No slots: a class can take them from one parent only, and `ConnectionOptions` has some.
@dataclass(frozen=True, kw_only=True)
class TopicOptions:
    """Which messages are read, and how they come; `read` and `readStream` take them."""

    subscribe: str = spark_option(
        "",
        kafka="subscribe",
        others=("topic", "topics", "consumerTopic"),
        doc="Topics to read, separated by ','. Only one of `subscribe`, `subscribePattern` and "
        "`assign` can be given; of a cluster one must be, of stores all topics are read without.",
    )
    subscribe_pattern: str = spark_option(
        "",
        kafka="subscribePattern",
        others=("topicsPattern",),
        doc="A regular expression that whole names of topics match. Topics of the system are left "
        "out, and so are those of retries and dead letters, unless the pattern says %RETRY% or "
        "%DLQ%; of stores, unless `includeSystemTopics` is set. A stream finds topics that are "
        "made while it runs.",
    )
    assign: str = spark_option(
        "",
        kafka="assign",
        others=("queue", "queues"),
        doc='Queues to read, as in `{"orders": {"broker-a": [0, 1]}}`.',
    )
    tags: str = spark_option(
        "",
        doc="Only messages with one of these tags, as in `TagA || TagB`. The broker leaves the "
        "others out; a scan of stores does not touch them, since entries of queues tell.",
    )
    push_filters: bool = spark_option(
        False,
        doc="Read less where conditions of a query on `topic`, `queueId`, `queueOffset`, "
        "`storeTimestamp` and `tags` allow it. Needs Spark's conf "
        "`spark.sql.python.filterPushdown.enabled`, and a `load()` for each query: Spark 4.2 and "
        "4.3 keep what a pushed condition left, and use it for the next query of the same "
        "DataFrame, and for the other side of a join with itself.",
    )
    properties: str = spark_option(
        "string",
        choices=("string", "map", "none"),
        kafka="includeHeaders",
        doc="How the column `properties` comes: as the stored text, as a map, or not at all. A "
        "map takes twice the time with small bodies.",
    )
    include_body: bool = spark_option(
        True, doc="Whether there is a column `body`. A schema given with `.schema(…)` beats both."
    )
    fail_on_data_loss: bool = spark_option(
        True,
        kafka="failOnDataLoss",
        doc="Whether messages that should be read and are gone, or that nobody can read, are an "
        "error, or a warning in the log. Of stores that are those deleted after the scan was planned, in a file that is "
        "missing among others, or in the log and not in their queue; what had been deleted before "
        "is only told in the log.",
    )
    min_partitions: int | None = spark_option(
        None,
        low=1,
        high=100_000,
        kafka="minPartitions",
        doc="Split queues, or the log of a store, so that there are at least about so many tasks. "
        "Without it there are as many as the driver's machine has processors; say it on a cluster "
        "that has more. Of stores there are more so that none reads over 512 MiB.",
    )
    max_records_per_partition: int | None = spark_option(
        None,
        low=1,
        kafka="maxRecordsPerPartition",
        doc="Split them so that no task reads more messages.",
    )

    def __post_init__(self) -> None:
        check_one_given(self, TOPIC_FORMS, hint="say in one way what to read")
        for topic in self.topics:
            check_topic(topic)
        if self.subscribe and not self.topics:
            raise SettingsError("subscribe names no topic", hint='"orders,payments" names two')
        try:
            re.compile(self.subscribe_pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise SettingsError(
                f"subscribePattern {self.subscribe_pattern!r:.200} is no regular expression: "
                f"{error}",
                hint='"orders|payments-.*" takes one topic and all that begin alike',
            ) from None
        if self.assign:
            parse_queues(self.assign, name="assign")

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of `subscribe`."""
        return tuple(name for text in self.subscribe.split(",") if (name := text.strip()))

    @property
    def assigned_queues(self) -> tuple[MessageQueue, ...]:
        """The queues of `assign`."""
        return tuple(parse_queues(self.assign, name="assign")) if self.assign else ()

    @property
    def properties_form(self) -> Literal["string", "map", "none"]:
        """How the column `properties` comes."""
        # The choices of the option are these.
        return cast('Literal["string", "map", "none"]', self.properties)
