"""Drivers that are killed in mid-batch: what comes of the rows they were moving."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

from orbitmq.spark.offsets import read_stream_offset
from tests.interop.waiting import wait_until
from tests.spark.killed_driver import Query
from tests.spark.kills import (
    Checkpoint,
    Ledger,
    counted,
    differences,
    kill_within,
    run_to_the_end,
    table_query,
)
from tests.spark.streams import Stream
from tests.spark.topics import Topics

# Two more Sparks start for the first of these tests.
KILLS_TIMEOUT_S = 1200


@dataclass
class Killed:
    """What two drivers left that were killed while they moved rows."""

    topic: str
    ledger: Ledger
    to_table: Query
    from_latest: Query
    # The batches that each kill interrupted.
    interrupted: list[set[int]]


@pytest.fixture(scope="module")
def killed(topics: Topics, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    """Kill two drivers, one after the other, each in mid-batch; rows go on coming."""
    folder = tmp_path_factory.mktemp("killed")
    topic = topics.create(queues=2)
    source = {"namesrvAddr": topics.cluster.namesrv, "subscribe": topic}
    to_table = table_query(source, folder, rows_a_batch=200)
    from_latest = Query(source=source, checkpoint=str(folder / "latest"))
    table, latest = Checkpoint(to_table), Checkpoint(from_latest)
    # So fast that some come between the looks at the start and at the end of a first batch.
    with Ledger(topics.cluster.namesrv, topic, pause_s=0.001) as ledger:
        interrupted = [
            kill_within([to_table, from_latest], {table: 0, latest: 0}, log=folder / "first.log")
        ]
        ledger.pause_s = 0.05
        more = max(table.planned) + 2
        interrupted.append(kill_within([to_table], {table: more}, log=folder / "second.log"))
        yield Killed(topic, ledger, to_table, from_latest, interrupted)


@pytest.mark.timeout(KILLS_TIMEOUT_S)
def test_each_row_is_in_the_table_once_after_two_kills_in_mid_batch(
    spark: SparkSession, killed: Killed
) -> None:
    assert [len(batches) for batches in killed.interrupted] == [1, 1], "no kill was in mid-batch"
    killed.ledger.end()

    run_to_the_end(spark, killed.to_table)

    found = counted(spark, killed.to_table)
    assert found.total() > 0
    assert differences(killed.ledger.acknowledged, found) == {}


@pytest.mark.timeout(KILLS_TIMEOUT_S)
def test_a_first_batch_from_latest_that_was_killed_is_repeated_with_the_same_messages(
    spark: SparkSession, topics: Topics, killed: Killed
) -> None:
    checkpoint = Checkpoint(killed.from_latest)
    assert checkpoint.unfinished == {0}
    planned = [
        (part.queue.broker_name, part.queue.queue_id, offset)
        for part in read_stream_offset(checkpoint.end(0)).ranges()
        for offset in range(part.start, part.end)
    ]
    stream = Stream(
        spark,
        topics.cluster.namesrv,
        checkpoint.folder,
        subscribe=killed.topic,
        maxOffsetsPerTrigger=1000,
    )

    query = stream.start()
    try:
        wait_until(lambda: len(stream.batches) >= 2, timeout_s=120, what="two batches")
    finally:
        query.stop()

    read = [
        [(row["brokerName"], row["queueId"], row["queueOffset"]) for row in rows]
        for rows in stream.batches.values()
    ]
    assert planned, "nothing came between the look at the start and that at the end"
    assert sorted(read[0]) == planned
    # The next batch goes on right behind it.
    for broker_name, queue_id in {place[:2] for place in planned}:
        offsets = [
            place[2] for place in sorted(read[0] + read[1]) if place[:2] == (broker_name, queue_id)
        ]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
