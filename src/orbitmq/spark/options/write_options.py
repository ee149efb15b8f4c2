"""Options for writing to topics, in batches and as streams."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from orbitmq.client.options import ProducerOptions
from orbitmq.errors import SettingsError
from orbitmq.model.names import check_group, check_topic
from orbitmq.protocol.requests.staged_writes import BATCH_PREFIX
from orbitmq.spark.options.read_options import WHERE, ReadOptions
from orbitmq.spark.options.spark_options import ConnectionOptions, options_from, spark_option

if TYPE_CHECKING:
    from orbitmq.client.keywords import ProducerKeywords

_KIB: Final = 1024
_MIB: Final = 1024 * 1024
# Larger than any body, so nothing is compressed.
_NEVER_BYTES: Final = 2**31 - 1
# Brokers take batch ids of up to 255 characters, this prefix included.
WRITE_ID_LENGTH_MAX: Final = 255 - len(BATCH_PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(ConnectionOptions):
    """Where rows go, and how; for `write` and `writeStream`."""

    topic: str = spark_option(
        "",
        kafka="topic",
        doc="The topic for all rows; it overrides their column `topic`. Without it, each row needs "
        "a `topic`.",
    )
    delivery: str = spark_option(
        "atLeastOnce",
        choices=("atLeastOnce", "exactlyOnce"),
        others=("guarantee", "semantic"),
        doc="What happens to rows that Spark retries after a failure. `atLeastOnce`: they are sent "
        "again; the property `SPARK_ROW` of each message identifies its row. `exactlyOnce`: the "
        "brokers stage rows until their batch is committed, then move them to their queues once. "
        "This needs OrbitMQ's brokers and, for a batch, a `writeId`; it excludes delays and "
        "compression.",
    )
    write_id: str = spark_option(
        "",
        others=("transactionalId", "txnAppId"),
        doc="A name for a batch that is written exactly once. Of all batches written under one "
        "name, in any session, the first counts. The others change nothing, and the driver logs "
        "it. Brokers forget a name after a week without a write (`batchWriteHoursMax`).",
    )
    commit_timeout_ms: int = spark_option(
        120_000,
        low=1,
        high=86_400_000,
        doc="Longest wait for the commit of rows that are written exactly once. After that the "
        "query fails, and the brokers complete the commit when they can.",
    )
    group: str = spark_option("orbitmq-spark", others=("producerGroup",), doc="The producer group.")
    missing_queues: str = spark_option(
        "replace",
        choices=("replace", "fail"),
        doc="What to do with rows whose `brokerName` and `queueId` name a queue that their topic "
        "does not have: send them to another, always the same one for the same name, or fail the "
        "task.",
    )
    create_topics: bool = spark_option(
        True,
        others=("autoCreate", "autoCreateTopicEnable"),
        doc="Whether the broker may create a missing topic, if its own settings allow it "
        "(`autoCreateTopicEnable`). If not, rows for such a topic fail the task.",
    )
    compression: str = spark_option(
        "none",
        choices=("none", "zlib", "lz4", "zstd"),
        kafka="kafka.compression.type",
        doc="How large bodies are compressed. A compressed message is sent on its own, which costs "
        "more time than it saves for small bodies.",
    )
    compress_above_bytes: int = spark_option(
        4 * _KIB,
        low=1,
        high=_NEVER_BYTES,
        doc="Smallest body to compress, if `compression` is set.",
    )
    batch_bytes: int = spark_option(
        _MIB,
        low=1,
        high=4 * _MIB,
        kafka="kafka.batch.size",
        doc="Approximate bytes of a request that sends small messages together. Brokers must take "
        "bodies of this size (`maxMessageSize`); a request that they refuse is split in half.",
    )
    max_message_bytes: int = spark_option(
        4 * _MIB,
        low=1,
        high=_NEVER_BYTES,
        kafka="kafka.max.request.size",
        doc="Largest body to send; brokers have a limit of their own.",
    )
    max_in_flight_messages: int = spark_option(
        50_000,
        low=1,
        high=10_000_000,
        kafka="kafka.max.in.flight.requests.per.connection",
        doc="Most messages of one task that are in flight.",
    )
    max_in_flight_bytes: int = spark_option(
        16 * _MIB,
        low=1,
        high=1024 * _MIB,
        kafka="kafka.buffer.memory",
        doc="Most bytes of one task that are in flight.",
    )
    send_timeout_ms: int = spark_option(
        60_000,
        low=1,
        high=86_400_000,
        kafka="kafka.delivery.timeout.ms",
        doc="Time limit for all attempts of a request together.",
    )
    try_timeout_ms: int = spark_option(
        15_000,
        low=1,
        high=86_400_000,
        doc="Longest wait for the reply to one attempt, except the last.",
    )
    retries: int = spark_option(
        10,
        low=0,
        high=100,
        kafka="kafka.retries",
        doc="Retries of a request, at another broker if its rows may go anywhere.",
    )

    def __post_init__(self) -> None:
        # Not super(): with slots, dataclass makes a new class, which super() does not know.
        ConnectionOptions.__post_init__(self)
        check_group(self.group)
        if self.topic:
            check_topic(self.topic)
        if self.is_exactly_once and self.compresses:
            raise SettingsError(
                f"compression={self.compression} is not available with delivery=exactlyOnce",
                hint="leave compression out",
            )
        if self.write_id and not self.is_exactly_once:
            raise SettingsError(
                "writeId is for delivery=exactlyOnce", hint="give both, or leave it out"
            )
        if len(self.write_id) > WRITE_ID_LENGTH_MAX or not self.write_id.isprintable():
            raise SettingsError(
                f"writeId cannot be {self.write_id!r:.100}, {len(self.write_id)} characters long",
                hint=f"use up to {WRITE_ID_LENGTH_MAX} printable characters",
            )
        ProducerOptions(**self.producer_keywords())

    @classmethod
    def from_spark(cls, given: Mapping[str, str]) -> Self:
        """Make options from what Spark hands over.

        A SQL table is read and written with the same options, so read options may be given too.
        """
        return options_from(cls, given, where=WHERE, beside=[ReadOptions])

    @property
    def is_exactly_once(self) -> bool:
        """Whether rows are staged, and moved to their queues once."""
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
            # A batch may be larger than a message; messages are checked row by row.
            "max_message_bytes": max(self.max_message_bytes, self.batch_bytes),
            "compress_above_bytes": _NEVER_BYTES,
        }
        if self.compresses:
            keywords["compress_kind"] = self.compression
            keywords["compress_above_bytes"] = self.compress_above_bytes
        if not self.create_topics:
            keywords["template_queues"] = 0
        return keywords
