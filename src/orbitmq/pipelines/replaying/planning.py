"""Makes the plan of a replay, and the preview of what it sends.

One pass over the source finds which messages are sent and cuts them into chunks. A transformation takes
a second pass, which finds rows that could not be sent before any is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from orbitmq.errors import SettingsError
from orbitmq.pipelines.replaying.plan import (
    Chunk,
    Piece,
    Plan,
    Tile,
    chunk_count,
    chunks_of,
    whole_range,
)
from orbitmq.pipelines.replaying.spark_failures import reported

if TYPE_CHECKING:
    from orbitmq.pipelines.replaying.selection import Selection
    from orbitmq.spark.options.write_options import WriteOptions

# Of a message: where and when it was stored, and its id. No other message has the same.
CHECKSUM: Final = "xxhash64(brokerName, queueId, queueOffset, storeTimestamp, msgId)"
_QUEUE: Final = ("brokerName", "queueId")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What a source has in the range of time."""

    in_range: int
    messages: int
    queues: int
    first_ms: int
    last_ms: int


def make_plan(
    name: str,
    selection: Selection,
    options: WriteOptions,
    *,
    start_ms: int | None,
    end_ms: int | None,
    rate: float | None,
    now_ms: int,
) -> Plan:
    """Find what a replay sends now."""
    spark, source = selection.spark, selection.source
    with reported("the replay cannot be planned"):
        read = source.between(spark, start_ms, end_ms, with_body=True)
    selection.check(read, options)
    if not selection.reads_bodies:
        read = source.between(spark, start_ms, end_ms, with_body=False)
    places = selection.condition(read).selectExpr(
        *_QUEUE,
        "queueOffset",
        "unix_millis(storeTimestamp) AS stored_ms",
        f"{CHECKSUM} AS checksum",
        "is_sent",
    )
    # Read once, and looked at twice.
    places = places.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        with reported("the replay cannot be planned"):
            found = _found(places)
            count = chunk_count(found.messages, found.queues, rate)
            chunks = chunks_of(_tiles(places, count)) if count else []
    finally:
        places.unpersist()
    return Plan(
        id=name,
        request=selection.request,
        planned_ms=now_ms,
        in_range=found.in_range,
        first_ms=found.first_ms,
        last_ms=found.last_ms,
        rows=_checked_rows(selection, chunks, options, found.messages),
        chunks=chunks,
    )


def sample(
    selection: Selection, chunk: Chunk, rows_max: int
) -> tuple[list[str], list[dict[str, Any]]]:
    """The columns of what is sent, and the first rows of a chunk."""
    with reported("the replay cannot be planned"):
        read = selection.source.pieces(selection.spark, chunk.pieces)
        rows = selection.shaped(selection.matching(read))
        found = [row.asDict() for row in rows.limit(rows_max).collect()]
    return rows.columns, found


def _found(places: DataFrame) -> _Found:
    row = places.selectExpr(
        "count(*) AS in_range",
        "count_if(is_sent) AS messages",
        "count(DISTINCT IF(is_sent, struct(brokerName, queueId), NULL)) AS queues",
        "coalesce(min(IF(is_sent, stored_ms, NULL)), 0) AS first_ms",
        "coalesce(max(IF(is_sent, stored_ms, NULL)), 0) AS last_ms",
    ).first()
    # Invariant: an aggregate has a row.
    assert row is not None
    return _Found(**row.asDict())


def _tiles(places: DataFrame, count: int) -> Iterator[Tile]:
    tiles = (
        places.where("is_sent")
        .selectExpr(
            "*",
            f"ntile({count}) OVER (PARTITION BY brokerName, queueId ORDER BY queueOffset) AS tile",
        )
        .groupBy("tile", *_QUEUE)
        .agg(
            *_expressions(
                "min(queueOffset) AS first_offset",
                "max(queueOffset) + 1 AS end_offset",
                "count(*) AS messages",
                "bit_xor(checksum) AS checksum",
            )
        )
    )
    for row in tiles.collect():
        piece = Piece(row.brokerName, row.queueId, row.first_offset, row.end_offset, row.messages)
        yield Tile(number=row.tile, piece=piece, checksum=row.checksum)


def _checked_rows(
    selection: Selection,
    chunks: Sequence[Chunk],
    options: WriteOptions,
    messages: int,
) -> int:
    """How many rows messages become; raises if one of them cannot be sent."""
    if not selection.transforms or not chunks:
        return messages
    with reported("--transform cannot be evaluated"):
        read = selection.source.pieces(selection.spark, whole_range(chunks))
        found = (
            selection.shaped(selection.matching(read))
            .selectExpr("octet_length(body) AS body_bytes")
            .agg(
                *_expressions(
                    "count(*) AS rows",
                    "count_if(coalesce(body_bytes, 0) = 0) AS empty",
                    f"count_if(body_bytes > {options.max_message_bytes}) AS large",
                )
            )
            .first()
        )
    # Invariant: an aggregate has a row.
    assert found is not None
    if found.empty:
        raise SettingsError(
            f"--transform makes {found.empty} of {found.rows} bodies null or empty",
            hint="brokers take no empty messages: leave such messages out with --where",
        )
    if found.large:
        raise SettingsError(
            f"--transform makes {found.large} bodies larger than {options.max_message_bytes} bytes",
            hint="leave such messages out with --where",
        )
    return int(found.rows)


def _expressions(*texts: str) -> list[Any]:
    from pyspark.sql.functions import expr

    return [expr(text) for text in texts]
