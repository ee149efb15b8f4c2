"""The reader of a stream of Spark, called as Spark calls it, through the promotion of a slave."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from orbitmq.errors import DataLossError
from orbitmq.spark.options.read_options import ReadOptions
from orbitmq.spark.reading.stream_reader import StreamReader
from orbitmq.spark.rows.schema import table_projection
from tests.integration.replication.group import Group
from tests.waiting import beside

Offset = dict[str, Any]


@dataclass
class Query:
    """A query over one topic: runs batches, and starts again from its checkpoint."""

    namesrv: str
    options: dict[str, str]
    # The ends of batches that Spark has written down, and what was read of each.
    planned: list[Offset] = field(default_factory=list)
    bodies: list[list[str]] = field(default_factory=list)
    _reader: StreamReader | None = None

    async def run_batch(self) -> list[str]:
        """Plan and read the next batch; returns its rows."""
        await self.plan()
        return await self.repeat()

    async def plan(self) -> None:
        """Plan the next batch."""
        reader = self._running()
        start = self.planned[-1] if self.planned else await beside(reader.initialOffset)
        end = await beside(reader.latestOffset, start, ReadAllAvailable())
        if end != start:
            self.planned.append(end)

    async def repeat(self) -> list[str]:
        """Read the newest batch."""
        end = self.planned[-1]
        # Spark does not tell the start of a first batch that was planned in an earlier run.
        return await beside(self._read, {}, end)

    def _read(self, start: Offset, end: Offset) -> list[str]:
        reader = self._running()
        return [
            bytes(row["body"]).decode()
            for part in reader.partitions(start, end)
            for batch in reader.read(part)
            for row in batch.to_pylist()
        ]

    async def restart(self, **options: str) -> None:
        """Start again from the checkpoint."""
        await self.stop()
        self.options |= options

    async def stop(self) -> None:
        """Stop it."""
        reader, self._reader = self._reader, None
        if reader is not None:
            await beside(reader.stop)

    def _running(self) -> StreamReader:
        if self._reader is None:
            options = {
                "namesrvAddr": self.namesrv,
                "subscribe": "T",
                "startingOffsets": "earliest",
                **self.options,
            }
            self._reader = StreamReader(
                ReadOptions.from_spark(options, streaming=True), table_projection()
            )
        return self._reader


@asynccontextmanager
async def query_of(group: Group, **options: str) -> AsyncIterator[Query]:
    query = Query(group.namesrv, options)
    try:
        yield query
    finally:
        await query.stop()


async def send(group: Group, bodies: list[str], broker_id: int = 0) -> list[str]:
    for body in bodies:
        assert (await group.send(body.encode(), broker_id)).code == 0
    return bodies


async def replace(group: Group) -> None:
    await group.kill(0)
    if 1 not in group.brokers:
        await group.start(1)
    await group.until_missed(0)
    await group.promote(1, role="ASYNC_MASTER")


async def test_batches_go_on_where_they_were_after_a_promotion_without_loss(
    tmp_path: Path,
) -> None:
    async with Group(tmp_path) as group, query_of(group) as query:
        await group.pair()
        await group.create_topic()
        first = await send(group, ["0", "1", "2"])
        await group.until_copied()
        assert await query.run_batch() == first
        second = await send(group, ["3", "4"])
        await group.until_copied()
        await query.plan()

        await replace(group)
        # The same batch again, in the same run and in another.
        assert await query.repeat() == second
        await query.restart()
        assert await query.repeat() == second
        assert await query.run_batch() == second
        third = await send(group, ["5", "6"], broker_id=1)
        assert await query.run_batch() == third

        # The master that died is a slave now, and has the same.
        await group.start(0)
        await group.until_copied(0, master=1)
        await group.promote(0, epoch=2, role="ASYNC_MASTER", force=True)
        await query.restart()
        assert await query.repeat() == third
        fourth = await send(group, ["7"])
        assert await query.run_batch() == fourth


@asynccontextmanager
async def with_loss(tmp_path: Path) -> AsyncIterator[tuple[Group, Query]]:
    """A slave is promoted that lacks the last two messages of a batch that was planned."""
    async with Group(tmp_path) as group, query_of(group) as query:
        await group.pair()
        await group.create_topic()
        await send(group, ["0", "1", "2"])
        await group.until_copied()
        await group.stop(1)
        await send(group, ["3", "4"])
        await query.plan()
        await replace(group)
        yield group, query


async def test_a_planned_batch_fails_if_a_promotion_lost_some_of_its_messages(
    tmp_path: Path,
) -> None:
    async with with_loss(tmp_path) as (group, query):
        with pytest.raises(DataLossError, match=r"messages 3 to 4 of .* are gone") as failed:
            await query.repeat()
        assert "failOnDataLoss=false" in str(failed.value)

        # Others have their numbers now.
        await send(group, ["new 3", "new 4", "new 5"], broker_id=1)
        await query.restart()
        with pytest.raises(DataLossError, match=r"messages 3 to 4 of .*slave") as failed:
            await query.repeat()
        assert "failOnDataLoss=false" in str(failed.value)

        await query.restart(failOnDataLoss="false")
        assert await query.repeat() == ["0", "1", "2"]
        assert await query.run_batch() == ["new 3", "new 4", "new 5"]


async def test_the_next_batch_fails_if_a_promotion_lost_messages_that_were_read(
    tmp_path: Path,
) -> None:
    async with with_loss(tmp_path) as (group, query):
        with pytest.raises(DataLossError, match=r"ends at 3, before the query's position 5.*slave"):
            await query.plan()

        await send(group, [f"new {number}" for number in range(3, 8)], broker_id=1)
        await query.restart()
        with pytest.raises(DataLossError, match=r"message 4 of .*slave") as failed:
            await query.plan()
        assert "failOnDataLoss=false" in str(failed.value)

        await query.restart(failOnDataLoss="false")
        assert await query.run_batch() == [f"new {number}" for number in range(3, 8)]
