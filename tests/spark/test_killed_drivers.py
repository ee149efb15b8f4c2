"""Drivers killed in mid-batch: what happens to the rows they were moving."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

from orbitmq.spark.reading.offsets import read_stream_offset
from orbitmq.spark.writing.delivery_marks import DeliveryMark
from tests.spark.killed_driver import Query
from tests.spark.kills import Checkpoint
from tests.spark.streams import QUERY_TIMEOUT_S, Stream
from tests.spark.target_topic import COORDINATOR, OTHER
from tests.spark.trial import SINKS, Trial
from tests.waiting import wait_until

# Two more Sparks start for the first of these tests.
KILLS_TIMEOUT_S = 3000

pytestmark = pytest.mark.timeout(KILLS_TIMEOUT_S)


@dataclass
class Killed:
    """The state after two drivers were killed while they moved rows."""

    trial: Trial
    from_latest: Query


@pytest.fixture(scope="module")
def killed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    """Kill two drivers, one after the other, each in mid-batch, while rows keep arriving."""
    folder = tmp_path_factory.mktemp("killed")
    with Trial(spark, folder, rows_a_batch=200) as trial:
        from_latest = Query(
            source={"namesrvAddr": trial.namesrv, "subscribe": trial.source},
            checkpoint=str(folder / "latest"),
        )
        trial.kill_in_mid_batch(more=1, others=[from_latest])
        trial.kill_between_commits()
        yield Killed(trial, from_latest)


def test_two_kills_landed_in_mid_batch_of_both_queries(killed: Killed) -> None:
    assert [
        {sink: len(batches) for sink, batches in kill.interrupted.items()}
        for kill in killed.trial.kills
    ] == [{"table": 1, "topic": 1}] * 2


def test_a_kill_landed_between_the_commits_of_two_brokers(killed: Killed) -> None:
    kill = killed.trial.kills[-1]
    half = kill.half

    assert half is not None
    assert kill.interrupted["topic"] == {half.batch}
    assert half.decided.keys() == {COORDINATOR, OTHER}
    assert half.visible == {COORDINATOR: half.decided[COORDINATOR], OTHER: 0}


def test_after_each_kill_rows_of_done_batches_are_present_once_and_none_twice(
    killed: Killed,
) -> None:
    assert [kill.wrong for kill in killed.trial.kills] == [{"table": {}, "topic": {}}] * 2


@pytest.mark.parametrize("sink", SINKS)
def test_each_row_is_present_once_in_the_end(killed: Killed, sink: str) -> None:
    killed.trial.run_to_the_end(sink)

    assert killed.trial.wrong_at_the_end(sink) == {}
    assert killed.trial.counted(sink).total() > 0


def test_rows_of_tasks_that_failed_were_staged_and_do_not_count(killed: Killed) -> None:
    def attempts(marks: list[DeliveryMark]) -> set[int]:
        return {mark.attempt for mark in marks if mark.partition == 0}

    assert 0 in attempts(killed.trial.target.staged_marks())
    assert 0 not in attempts(killed.trial.target.marks())


def test_a_first_batch_from_latest_that_was_killed_is_repeated_with_the_same_messages(
    spark: SparkSession, killed: Killed
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
        killed.trial.namesrv,
        checkpoint.folder,
        subscribe=killed.trial.source,
        maxOffsetsPerTrigger=1000,
    )

    query = stream.start()
    try:
        wait_until(lambda: len(stream.batches) >= 2, timeout_s=QUERY_TIMEOUT_S, what="two batches")
    finally:
        query.stop()

    read = [
        [(row["brokerName"], row["queueId"], row["queueOffset"]) for row in rows]
        for rows in stream.batches.values()
    ]
    assert planned
    assert sorted(read[0]) == planned
    # The next batch starts where it ended.
    for broker_name, queue_id in {place[:2] for place in planned}:
        offsets = [
            place[2] for place in sorted(read[0] + read[1]) if place[:2] == (broker_name, queue_id)
        ]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
