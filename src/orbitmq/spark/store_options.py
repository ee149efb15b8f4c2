"""Options of scanning store directories."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from orbitmq.errors import SettingsError
from orbitmq.filtering.tags import TagFilter, parse_tags
from orbitmq.model.names import check_topic
from orbitmq.model.queues import MessageQueue
from orbitmq.spark.options import PUSH_FILTERS_DOC, options_from, spark_option
from orbitmq.spark.queue_texts import parse_queues

WHERE: Final = 'format("rocketmq-store")'


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Which stores are scanned, and for what; `read` takes them."""

    path: str = spark_option(
        "",
        others=("storePathRootDir", "directory"),
        doc="Store directories, separated by ','; `*` and `?` stand for what they do in a shell. "
        "A store directory is a broker's `storePathRootDir`, or a copy of it. `load(…)` takes it "
        "too. Tasks read the files themselves, so each must have them at the same path.",
    )
    paths: str = spark_option(
        "", doc="The same as a JSON list; `load([…])` of several directories sets it."
    )
    broker_name: str = spark_option(
        "",
        doc="What the column `brokerName` holds. With several directories one name for each, "
        "separated by ',', in the order of their paths. Without it, a store's own name for its "
        "broker; of stores that do not tell, the name of the folder, or of the one around it if "
        "that is `store`.",
    )
    log_path: str = spark_option(
        "",
        name="storePathCommitLog",
        doc="Where the log is, if the broker's `storePathCommitLog` says so; for one directory.",
    )
    subscribe: str = spark_option(
        "",
        kafka="subscribe",
        others=("topic", "topics"),
        doc="Topics to read, separated by ','. Without this, `subscribePattern` and `assign`, all "
        "are.",
    )
    subscribe_pattern: str = spark_option(
        "",
        kafka="subscribePattern",
        others=("topicsPattern",),
        doc="A regular expression that whole names of topics match.",
    )
    assign: str = spark_option(
        "",
        kafka="assign",
        others=("queue", "queues"),
        doc='Queues to read, as in `{"orders": {"broker-a": [0, 1]}}`.',
    )
    include_system_topics: bool = spark_option(
        False,
        doc="Whether all topics, or a pattern, are also the system's own (delayed messages, halves "
        "of transactions, traces), and those of retries and dead letters. Naming one reads it "
        "anyhow.",
    )
    starting_timestamp: int | None = spark_option(
        None,
        low=0,
        kafka="startingTimestamp",
        doc="Only messages stored at or after this time, in milliseconds since the epoch.",
    )
    ending_timestamp: int | None = spark_option(
        None,
        low=0,
        kafka="endingTimestamp",
        doc="Only messages stored before this time, in milliseconds since the epoch.",
    )
    tags: str = spark_option(
        "",
        doc="Only messages with one of these tags, as in `TagA || TagB`. The records of others are "
        "not touched: entries of queues tell.",
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
    check_crc: bool = spark_option(
        False,
        name="checkCRC",
        doc="Whether each body is compared with its checksum; a wrong one fails the query.",
    )
    push_filters: bool = spark_option(False, doc=PUSH_FILTERS_DOC)
    fail_on_data_loss: bool = spark_option(
        True,
        kafka="failOnDataLoss",
        doc="Whether messages that should be read and are gone (deleted after the scan was "
        "planned, or in a file that is missing among others) are an error, or a warning in the "
        "log. What had been deleted before is only told in the log.",
    )
    min_partitions: int | None = spark_option(
        None,
        low=1,
        high=100_000,
        kafka="minPartitions",
        doc="Cut the log so that there are at least about so many tasks. Without it there are as "
        "many as the driver's machine has processors, and more so that none reads over 512 MiB.",
    )
    max_records_per_partition: int | None = spark_option(
        None,
        low=1,
        kafka="maxRecordsPerPartition",
        doc="Cut the log so that no task reads more messages.",
    )

    def __post_init__(self) -> None:
        if not self.path.strip() and not self.paths.strip():
            raise SettingsError(
                "no store directory is given",
                hint='.load("/data/broker-a/store") names the storePathRootDir of a broker',
            )
        given = [
            name
            for name, text in (
                ("subscribe", self.subscribe),
                ("subscribePattern", self.subscribe_pattern),
                ("assign", self.assign),
            )
            if text
        ]
        if len(given) > 1:
            raise SettingsError(
                f"{' and '.join(given)} are given together", hint="say in one way what to read"
            )
        for topic in self.topics:
            check_topic(topic)
        try:
            re.compile(self.subscribe_pattern)
        except re.error as error:
            raise SettingsError(
                f"subscribePattern {self.subscribe_pattern!r} is no regular expression: {error}"
            ) from None
        if self.assign:
            parse_queues(self.assign, name="assign")
        parse_tags(self.tags)
        self._listed_paths()

    @classmethod
    def from_spark(cls, given: Mapping[str, str]) -> Self:
        """Make options from what Spark hands over."""
        return options_from(cls, given, where=WHERE)

    @property
    def path_patterns(self) -> tuple[str, ...]:
        """The directories, with their stars."""
        parts = [text for part in self.path.split(",") if (text := part.strip())]
        return (*parts, *self._listed_paths())

    def _listed_paths(self) -> list[str]:
        if not self.paths.strip():
            return []
        try:
            listed = json.loads(self.paths)
        except ValueError:
            listed = None
        if not isinstance(listed, list) or not all(isinstance(path, str) for path in listed):
            raise SettingsError(
                f"paths cannot be {self.paths!r}", hint='write it as ["/data/a", "/data/b"]'
            )
        return listed

    @property
    def broker_names(self) -> tuple[str, ...]:
        """The names given for the brokers of the directories."""
        return tuple(name for text in self.broker_name.split(",") if (name := text.strip()))

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of `subscribe`."""
        return tuple(name for text in self.subscribe.split(",") if (name := text.strip()))

    @property
    def assigned_queues(self) -> tuple[MessageQueue, ...]:
        """The queues of `assign`."""
        return tuple(parse_queues(self.assign, name="assign")) if self.assign else ()

    @property
    def tag_filter(self) -> TagFilter:
        """The tags asked for."""
        return parse_tags(self.tags)
