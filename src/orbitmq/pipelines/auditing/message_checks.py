"""Compares messages with each other: repeated unique keys, gaps in sequences.

Tasks read the messages from the logs (`message_rows`); Spark groups and sorts them, on disk if they
are many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from orbitmq.pipelines.auditing.message_rows import SCHEMA_TEXT, Wanted, message_rows
from orbitmq.pipelines.auditing.spark_tasks import deal
from orbitmq.pipelines.auditing.work import Item, StoreRange

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, Row, SparkSession

# Listed one by one; all are counted.
SHOWN_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """A unique key that several messages of a topic have."""

    topic: str
    unique_key: str
    count: int
    # Broker, queue and queue offset.
    first: str
    last: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceGap:
    """Numbers of a sequence that no message has."""

    topic: str
    # The value of the property that tells sequences apart; empty if there is none.
    sequence: str
    first: int
    last: int
    # The message after the gap.
    before: str


@dataclass(slots=True, kw_only=True)
class MessageChecks:
    """What was found, and how much of it."""

    repeated_count: int = 0
    # Messages beyond the first of each key.
    extra_messages: int = 0
    repeated: list[Repeated] = field(default_factory=list)
    gap_count: int = 0
    missing_numbers: int = 0
    # Messages whose property is no whole number.
    not_numbers: int = 0
    gaps: list[SequenceGap] = field(default_factory=list)


def check_messages(
    spark: SparkSession, items: Sequence[Item], brokers: Mapping[str, str], wanted: Wanted
) -> MessageChecks:
    """Check the messages of directories, one of each broker: `brokers` has their names by root."""
    found = MessageChecks()
    ranges = [item for item in items if isinstance(item, StoreRange) and item.root in brokers]
    if not ranges:
        return found
    dealt = deal(spark, ranges)

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for item in dealt[number]:
                    yield from message_rows(item, brokers[item.root], wanted)

    messages = spark.range(0, len(dealt), 1, len(dealt)).mapInArrow(rows, SCHEMA_TEXT)
    if wanted.with_keys:
        _find_repeated(messages, found)
    if wanted.sequence_property is not None:
        _find_gaps(messages, found)
    return found


def _find_repeated(messages: DataFrame, found: MessageChecks) -> None:
    from pyspark.sql import functions as f

    place = f.struct("broker", "queueId", "queueOffset")
    repeated = (
        messages.where("uniqueKey IS NOT NULL")
        .groupBy("topic", "uniqueKey")
        .agg(f.count("*").alias("count"), f.min(place).alias("first"), f.max(place).alias("last"))
        .where("count > 1")
    )
    order = [f.desc("count"), f.asc("topic"), f.asc("uniqueKey")]
    rows, totals = _shown(repeated, order, f.col("count") - 1)
    found.repeated_count, found.extra_messages = totals
    found.repeated = [
        Repeated(
            topic=row.topic,
            unique_key=row.uniqueKey,
            count=row["count"],
            first=_place(row["first"]),
            last=_place(row["last"]),
        )
        for row in rows
    ]


def _find_gaps(messages: DataFrame, found: MessageChecks) -> None:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    numbered = messages.where("number IS NOT NULL").select(
        "topic",
        "sequence",
        # Differences of long integers do not fit into one.
        f.col("number").try_cast("bigint").cast("decimal(20)").alias("number"),
        f.struct("broker", "queueId", "queueOffset").alias("place"),
    )
    found.not_numbers = numbered.where("number IS NULL").count()
    order = Window.partitionBy("topic", "sequence").orderBy("number")
    gaps = (
        numbered.where("number IS NOT NULL")
        .withColumn("previous", f.lag("number").over(order))
        .where("number - previous > 1")
    )
    by_place = [f.asc("topic"), f.asc("sequence"), f.asc("number")]
    rows, totals = _shown(gaps, by_place, f.expr("number - previous - 1"))
    found.gap_count, found.missing_numbers = totals
    found.gaps = [
        SequenceGap(
            topic=row.topic,
            sequence=row.sequence,
            first=int(row.previous) + 1,
            last=int(row.number) - 1,
            before=_place(row.place),
        )
        for row in rows
    ]


def _shown(
    rows: DataFrame, order: list[Column], weight: Column
) -> tuple[list[Row], tuple[int, int]]:
    """The first rows in an order; and how many there are, and their weight, of all of them."""
    from pyspark.sql import functions as f

    weighed = rows.withColumn("weight", weight)
    shown = weighed.orderBy(*order).limit(SHOWN_MAX + 1).collect()
    if len(shown) <= SHOWN_MAX:
        return shown, (len(shown), sum(int(row.weight) for row in shown))
    totals = weighed.agg(f.count("*"), f.sum("weight")).first()
    assert totals is not None
    return shown[:SHOWN_MAX], (int(totals[0]), int(totals[1]))


def _place(place: Row) -> str:
    return f"{place.broker} queue {place.queueId} offset {place.queueOffset}"
