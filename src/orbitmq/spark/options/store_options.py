"""Options of scanning store directories."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from orbitmq.errors import SettingsError
from orbitmq.filtering.tags import TagFilter, parse_tags
from orbitmq.spark.options.spark_options import options_from, spark_option
from orbitmq.spark.options.topic_options import TopicOptions

WHERE: Final = 'format("rocketmq-store")'


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions(TopicOptions):
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
    check_crc: bool = spark_option(
        False,
        name="checkCRC",
        doc="Whether each body is compared with its checksum; a wrong one fails the query.",
    )

    def __post_init__(self) -> None:
        if not self.path.strip() and not self.paths.strip():
            raise SettingsError(
                "no store directory is given",
                hint='.load("/data/broker-a/store") names the storePathRootDir of a broker; for a '
                "table of SQL, leave the columns out of CREATE TABLE: Spark does not hand on the "
                "options of one that names them",
            )
        # Zero arguments would not do: a dataclass with slots is another class than this one.
        TopicOptions.__post_init__(self)
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
        """The tags asked for."""
        return parse_tags(self.tags)
