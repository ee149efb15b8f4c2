"""Options for scanning store directories."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from orbitmq.errors import SettingsError
from orbitmq.filtering.tags import TagFilter, check_typed, parse_tags
from orbitmq.spark.options.spark_options import options_from, spark_option
from orbitmq.spark.options.topic_options import TopicOptions

WHERE: Final = 'format("rocketmq-store")'


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions(TopicOptions):
    """Which stores are scanned, and for what; for `read`."""

    path: str = spark_option(
        "",
        others=("storePathRootDir", "directory"),
        doc="Store directories, separated by ','; `*` and `?` match as in a shell. A store "
        "directory is a broker's `storePathRootDir`, or a copy of it. `load(…)` sets it too. "
        "Tasks read the files themselves, so every machine needs them at the same path.",
    )
    paths: str = spark_option(
        "", doc="The same as a JSON list; `load([…])` with several directories sets it."
    )
    broker_name: str = spark_option(
        "",
        doc="Value of the column `brokerName`. For several directories, one name each, separated "
        "by ',', in the order of their paths. By default the name that the store records; if it "
        "records none, the name of the folder, or of its parent if the folder is named `store`.",
    )
    log_path: str = spark_option(
        "",
        name="storePathCommitLog",
        doc="Where the log is, if the broker sets `storePathCommitLog`; for one directory.",
    )
    include_system_topics: bool = spark_option(
        False,
        doc="Whether a pattern, or reading all topics, includes system topics (delayed messages, "
        "half messages of transactions, traces), and retry and dead-letter topics. A topic given "
        "by name is always read.",
    )
    starting_timestamp: int | None = spark_option(
        None,
        low=0,
        is_time=True,
        kafka="startingTimestamp",
        doc="Read only messages stored at or after this time: milliseconds since the epoch, or "
        "ISO 8601 as in `2026-01-31T12:30:00+01:00`, in UTC without a zone.",
    )
    ending_timestamp: int | None = spark_option(
        None,
        low=0,
        is_time=True,
        kafka="endingTimestamp",
        doc="Read only messages stored before this time, written like `startingTimestamp`.",
    )
    check_crc: bool = spark_option(
        False,
        name="checkCRC",
        doc="Whether to check each body against its checksum; a message with a mismatch is "
        "unreadable.",
    )

    def __post_init__(self) -> None:
        if not self.path.strip() and not self.paths.strip():
            raise SettingsError(
                "no store directory is given",
                hint='.load("/data/broker-a/store") names the storePathRootDir of a broker; for a '
                "SQL table, leave the columns out of CREATE TABLE: Spark drops the options of a "
                "table that names its columns",
            )
        # Not super(): with slots, dataclass makes a new class, which super() does not know.
        TopicOptions.__post_init__(self)
        check_typed(self.tags, parse_tags(self.tags))
        self._listed_paths()

    @classmethod
    def from_spark(cls, given: Mapping[str, str]) -> Self:
        """Make options from what Spark hands over."""
        return options_from(cls, given, where=WHERE)

    @property
    def path_patterns(self) -> tuple[str, ...]:
        """The directories, wildcards included."""
        parts = [text for part in self.path.split(",") if (text := part.strip())]
        return (*parts, *self._listed_paths())

    def _listed_paths(self) -> list[str]:
        if not self.paths.strip():
            return []
        try:
            listed = json.loads(self.paths)
        except (ValueError, RecursionError):
            listed = None
        if not isinstance(listed, list) or not all(isinstance(path, str) for path in listed):
            raise SettingsError(
                f"paths cannot be {self.paths!r:.200}", hint='write it as ["/data/a", "/data/b"]'
            )
        return listed

    @property
    def broker_names(self) -> tuple[str, ...]:
        """The names given for the brokers of the directories."""
        return tuple(name for text in self.broker_name.split(",") if (name := text.strip()))

    @property
    def tag_filter(self) -> TagFilter:
        """The tags to read."""
        return parse_tags(self.tags)
