"""Where the messages of a replay come from.

This is the one place that knows the kinds of sources.

| text | messages |
|---|---|
| orders | of a topic |
| dlq:billing | that the group billing gave up on |
| store:/data/broker-a/store | of a topic in store files, which no broker needs to serve |

A source has two reads: of a range of time, for the plan, and of pieces of queues, for a chunk.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from orbitmq.errors import SettingsError
from orbitmq.model.names import (
    DEAD_LETTER_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    check_group,
    check_topic,
    dead_letter_topic,
    is_group_topic,
    is_retry_topic,
    is_system_topic,
)
from orbitmq.pipelines.suggestions import suggestion
from orbitmq.spark.options.column_names import COLUMN_NAMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from orbitmq.pipelines.replaying.plan import Piece

BODY: Final = "body"
_KINDS: Final = ("dlq", "store")
_HINT: Final = "a source is a topic, dlq:GROUP, or store:DIR with --topic"


class Source(Protocol):
    """Messages that can be replayed."""

    @property
    def name(self) -> str:
        """What it is, for people."""

    @property
    def topic(self) -> str:
        """The topic that is read."""

    @property
    def has_queues(self) -> bool:
        """Whether copies of one queue's messages belong into one queue."""

    def between(
        self, spark: SparkSession, start_ms: int | None, end_ms: int | None, *, with_body: bool
    ) -> DataFrame:
        """Messages by the time of their storage, from the first, before the second."""

    def pieces(self, spark: SparkSession, pieces: Sequence[Piece]) -> DataFrame:
        """Messages of pieces of queues, with all columns."""


@dataclass(frozen=True, slots=True)
class TopicMessages:
    """Messages of a topic, which brokers serve."""

    topic: str
    # How to reach the cluster, as options of Spark's source.
    connection: Mapping[str, str]
    has_queues = True

    @property
    def name(self) -> str:
        """What it is, for people."""
        return f"topic {self.topic}"

    def between(
        self, spark: SparkSession, start_ms: int | None, end_ms: int | None, *, with_body: bool
    ) -> DataFrame:
        """Messages by the time of their storage, from the first, before the second."""
        options = _range(self.topic, start_ms, end_ms, with_body=with_body)
        # Queues without a message since then are read from their end: nothing.
        options["startingOffsetsByTimestampStrategy"] = "latest"
        return self._load(spark, options)

    def pieces(self, spark: SparkSession, pieces: Sequence[Piece]) -> DataFrame:
        """Messages of pieces of queues, with all columns."""
        options = {
            "assign": _assigned(self.topic, pieces),
            "startingOffsets": self._offsets(pieces, {piece: piece.first for piece in pieces}),
            "endingOffsets": self._offsets(pieces, {piece: piece.end for piece in pieces}),
            "columns": _columns(with_body=True),
        }
        return self._load(spark, options)

    def _load(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        return (
            spark.read.format("rocketmq")
            .options(**self.connection, **options, properties="map")
            .load()
        )

    def _offsets(self, pieces: Sequence[Piece], offsets: Mapping[Piece, int]) -> str:
        by_broker: dict[str, dict[str, int]] = {}
        for piece in pieces:
            by_broker.setdefault(piece.broker_name, {})[str(piece.queue_id)] = offsets[piece]
        return json.dumps({self.topic: by_broker})


@dataclass(frozen=True, slots=True)
class DeadLetters(TopicMessages):
    """Messages that a group gave up on."""

    # They are in one queue of each broker, whatever queues they were in before.
    has_queues = False

    @property
    def name(self) -> str:
        """What it is, for people."""
        return f"dead letters of group {self.topic.removeprefix(DEAD_LETTER_PREFIX)}"


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """Messages of a topic in the files of a broker's store."""

    folder: Path
    topic: str

    @property
    def has_queues(self) -> bool:
        """Whether copies of one queue's messages belong into one queue."""
        return not is_group_topic(self.topic)

    @property
    def name(self) -> str:
        """What it is, for people."""
        return f"topic {self.topic} in {self.folder}"

    def between(
        self, spark: SparkSession, start_ms: int | None, end_ms: int | None, *, with_body: bool
    ) -> DataFrame:
        """Messages by the time of their storage, from the first, before the second."""
        return self._load(spark, _range(self.topic, start_ms, end_ms, with_body=with_body))

    def pieces(self, spark: SparkSession, pieces: Sequence[Piece]) -> DataFrame:
        """Messages of pieces of queues, with all columns."""
        # The outer bounds reach the source, and keep it from reading records outside of them.
        first, end = min(one.first for one in pieces), max(one.end for one in pieces)
        exactly = " OR ".join(
            f"(brokerName = {_literal(one.broker_name)} AND queueId = {one.queue_id} "
            f"AND queueOffset >= {one.first} AND queueOffset < {one.end})"
            for one in pieces
        )
        options = {
            "assign": _assigned(self.topic, pieces),
            "columns": _columns(with_body=True),
            "pushFilters": "true",
        }
        found = self._load(spark, options)
        return found.where(f"queueOffset >= {first} AND queueOffset < {end} AND ({exactly})")

    def _load(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        reader = spark.read.format("rocketmq-store").options(**options, properties="map")
        return reader.load(str(self.folder))


def parse_source(text: str, topic: str, connection: Mapping[str, str]) -> Source:
    """The source that a text names; `topic` is that of store files, and empty for others."""
    kind, colon, rest = text.partition(":")
    if not colon:
        return TopicMessages(_user_topic(text, topic), connection)
    if kind == "dlq":
        _refuse_topic(topic)
        check_group(rest)
        return DeadLetters(dead_letter_topic(rest), connection)
    if kind == "store":
        return _store_files(rest, topic)
    raise SettingsError(f"there are no sources {kind[:60]!r}", hint=suggestion(kind, _KINDS))


def source_text(text: str) -> str:
    """The same text for the same source: folders are written in full."""
    kind, colon, rest = text.partition(":")
    return f"store:{_folder(rest)}" if colon and kind == "store" else text


def check_target(topic: str) -> None:
    """Raise for a topic into which nothing is replayed."""
    check_topic(topic)
    if is_group_topic(topic) or is_system_topic(topic):
        raise SettingsError(
            f"{topic} is written by brokers only", hint="name a topic that programs send to"
        )


def _user_topic(name: str, topic: str) -> str:
    _refuse_topic(topic)
    check_topic(name)
    if name.startswith(DEAD_LETTER_PREFIX):
        group = name.removeprefix(DEAD_LETTER_PREFIX)
        raise SettingsError(f"{name} has the dead letters of a group", hint=f"write dlq:{group}")
    _refuse_internal(name)
    return name


def _store_files(text: str, topic: str) -> StoreFiles:
    if not topic:
        raise SettingsError(
            f"store:{text} has many topics", hint="say which one is replayed: --topic orders"
        )
    folder = _folder(text)
    if not text or not folder.is_dir():
        raise SettingsError(
            f"{text or 'store:'} is not a folder",
            hint="give a broker's storePathRootDir, or a copy of it: store:/data/broker-a/store",
        )
    check_topic(topic)
    _refuse_internal(topic)
    return StoreFiles(folder, topic)


def _folder(text: str) -> Path:
    # Shells do not expand a ~ after a colon.
    return Path(text).expanduser().resolve()


def _refuse_topic(topic: str) -> None:
    if topic:
        raise SettingsError(f"--topic {topic} is for store files", hint=_HINT)


def _refuse_internal(topic: str) -> None:
    """Raise for a topic whose messages mean something else to brokers than to programs."""
    if is_retry_topic(topic):
        reason = "has messages that a group is retrying: it would process them twice"
        hint = "replay the topic that they were sent to"
    elif topic in {SCHEDULE_TOPIC, TIMER_TOPIC}:
        reason = "has messages that are still to be delivered to their topics"
        hint = "list them: orbitmq message pending list"
    elif is_system_topic(topic):
        reason, hint = "is a system topic, with records of brokers or tools", _HINT
    else:
        return
    raise SettingsError(f"{topic} {reason}", hint=hint)


def _range(
    topic: str, start_ms: int | None, end_ms: int | None, *, with_body: bool
) -> dict[str, str]:
    """A range of time, as options of both of Spark's formats."""
    options = {"subscribe": topic, "columns": _columns(with_body=with_body)}
    if start_ms is not None:
        options["startingTimestamp"] = str(start_ms)
    if end_ms is not None:
        options["endingTimestamp"] = str(end_ms)
    return options


def _columns(*, with_body: bool) -> str:
    return ", ".join(name for name in COLUMN_NAMES if with_body or name != BODY)


def _assigned(topic: str, pieces: Sequence[Piece]) -> str:
    by_broker: dict[str, list[int]] = {}
    for piece in pieces:
        by_broker.setdefault(piece.broker_name, []).append(piece.queue_id)
    return json.dumps({topic: by_broker})


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
