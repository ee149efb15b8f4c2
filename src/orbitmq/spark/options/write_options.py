"""Options of writing to topics, in batches and as streams."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from orbitmq.client.options import ProducerOptions
from orbitmq.errors import SettingsError
from orbitmq.model.names import check_group, check_topic
from orbitmq.spark.options.read_options import WHERE, ReadOptions
from orbitmq.spark.options.spark_options import ConnectionOptions, options_from, spark_option

if TYPE_CHECKING:
    from orbitmq.client.keywords import ProducerKeywords

_KIB: Final = 1024
_MIB: Final = 1024 * 1024
# No body is so large, so that none is compressed.
_NEVER_BYTES: Final = 2**31 - 1


# Brokers know a batch by 255 characters at most, of which the first are this.
BATCH_PREFIX: Final = "batch/"
WRITE_ID_LENGTH_MAX: Final = 255 - len(BATCH_PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(ConnectionOptions):
    """Where rows go, and how; `write` and `writeStream` take them."""

    topic: str = spark_option(
        "",
        kafka="topic",
        doc="The topic that all rows go to, whatever their column `topic` says. Without it each "
        "row must have one there.",
    )
    delivery: str = spark_option(
        "atLeastOnce",
        choices=("atLeastOnce", "exactlyOnce"),
        others=("guarantee", "semantic"),
        doc="What becomes of rows that Spark writes again after a failure. `atLeastOnce`: they are "
        "sent again; each message says in its property `SPARK_ROW` which row it is. "
        "`exactlyOnce`: they are kept aside by the brokers until their batch is committed, and "
        "moved to their queues once; OrbitMQ's brokers only, without delays and compression, and "
        "a batch needs a `writeId`.",
    )
    write_id: str = spark_option(
        "",
        others=("transactionalId", "txnAppId"),
        doc="A name for a batch that is written exactly once. Of all batches that are written "
        "under it, in whatever session, the first counts; the others change nothing, which the "
        "driver's log tells.",
    )
    commit_timeout_ms: int = spark_option(
        120_000,
        low=1,
        high=86_400_000,
        doc="Time for the commit of rows that are written exactly once. When it is over the query "
        "fails, and the brokers complete the commit when they can.",
    )
    group: str = spark_option(
        "orbitmq-spark", others=("producerGroup",), doc="The name that brokers know the sender by."
    )
    missing_queues: str = spark_option(
        "replace",
        choices=("replace", "fail"),
        doc="What becomes of rows whose `brokerName` and `queueId` name a queue that their topic "
        "does not have: they go to another, always the same one for the same name, or the task "
        "fails.",
    )
    create_topics: bool = spark_option(
        True,
        others=("autoCreate", "autoCreateTopicEnable"),
        doc="Whether a topic that does not exist may be made by the broker, where it does that "
        "(`autoCreateTopicEnable`). If not, its rows fail the task.",
    )
    compression: str = spark_option(
        "none",
        choices=("none", "zlib", "lz4", "zstd"),
        kafka="kafka.compression.type",
        doc="How large bodies are compressed. Each is sent by itself then, which costs more time "
        "than it saves for small ones.",
    )
    compress_above_bytes: int = spark_option(
        4 * _KIB,
        low=1,
        high=_NEVER_BYTES,
        doc="Bodies of at least so many bytes are compressed, if any are.",
    )
    batch_bytes: int = spark_option(
        _MIB,
        low=1,
        high=4 * _MIB,
        kafka="kafka.batch.size",
        doc="Bytes of one request, about, when small messages are sent together. Brokers must "
        "take bodies of this size (`maxMessageSize`); what they refuse is sent in halves.",
    )
    max_message_bytes: int = spark_option(
        4 * _MIB,
        low=1,
        high=_NEVER_BYTES,
        kafka="kafka.max.request.size",
        doc="Largest body that is sent; brokers have a limit of their own.",
    )
    max_in_flight_messages: int = spark_option(
        50_000,
        low=1,
        high=10_000_000,
        kafka="kafka.max.in.flight.requests.per.connection",
        doc="Messages of one task that are sent and not yet answered, at most.",
    )
    max_in_flight_bytes: int = spark_option(
        16 * _MIB,
        low=1,
        high=1024 * _MIB,
        kafka="kafka.buffer.memory",
        doc="Bytes of one task that are sent and not yet answered, at most.",
    )
    send_timeout_ms: int = spark_option(
        60_000,
        low=1,
        high=86_400_000,
        kafka="kafka.delivery.timeout.ms",
        doc="Time for all tries of a request together.",
    )
    try_timeout_ms: int = spark_option(
        15_000,
        low=1,
        high=86_400_000,
        doc="Longest wait for the answer to one try while others are left.",
    )
    retries: int = spark_option(
        10,
        low=0,
        high=100,
        kafka="kafka.retries",
        doc="How often a request is tried again, at another broker if its rows may go anywhere.",
    )

    def __post_init__(self) -> None:
        # Zero arguments would not do: a dataclass with slots is another class than this one.
        ConnectionOptions.__post_init__(self)
        check_group(self.group)
        if self.topic:
            check_topic(self.topic)
        if self.is_exactly_once and self.compresses:
            raise SettingsError(
                f"compression={self.compression} cannot be had with delivery=exactlyOnce",
                hint="leave it out",
            )
        if self.write_id and not self.is_exactly_once:
            raise SettingsError(
                "writeId is for delivery=exactlyOnce", hint="give both, or leave it out"
            )
        if len(self.write_id) > WRITE_ID_LENGTH_MAX or not self.write_id.isprintable():
            raise SettingsError(
                f"writeId {self.write_id!r:.100} cannot be: it has {len(self.write_id)} characters",
                hint=f"use up to {WRITE_ID_LENGTH_MAX} printable ones",
            )
        ProducerOptions(**self.producer_keywords())

    @classmethod
    def from_spark(cls, given: Mapping[str, str]) -> Self:
        """Make options from what Spark hands over.

        A table of SQL is read and written with the same options, so that those of reading are
        let pass.
        """
        return options_from(cls, given, where=WHERE, beside=[ReadOptions])

    @property
    def is_exactly_once(self) -> bool:
        """Whether rows are staged, and moved once."""
        return self.delivery == "exactlyOnce"

    @property
    def compresses(self) -> bool:
        """Whether large bodies are compressed."""
        return self.compression != "none"

    def producer_keywords(self) -> ProducerKeywords:
        """These options as keyword arguments of a producer."""
        keywords = typing.cast("ProducerKeywords", {**self.client_keywords()})
        keywords |= {
            "send_timeout_ms": self.send_timeout_ms,
            "try_timeout_ms": self.try_timeout_ms,
            "async_retries": self.retries,
            # A batch takes more room than its messages; what they take is checked row by row.
            "max_message_bytes": max(self.max_message_bytes, self.batch_bytes),
            "compress_above_bytes": _NEVER_BYTES,
        }
        if self.compresses:
            keywords["compress_kind"] = self.compression
            keywords["compress_above_bytes"] = self.compress_above_bytes
        if not self.create_topics:
            keywords["template_queues"] = 0
        return keywords
