"""Queries of Spark that go on while masters die and slaves are promoted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.killed_driver import Query
from tests.spark.kills import Checkpoint
from tests.spark.replicated import GROUPS, Place, PlaceLedger, ReplicatedCluster, messages_of
from tests.spark.streams import QUERY_TIMEOUT_S, started
from tests.waiting import wait_until

SOURCE, TARGET = "rows", "copies"
QUEUES = 2


def text_of(place: Place, key: str) -> str:
    queue, offset = place
    return f"{queue.broker_name}/{queue.queue_id}/{offset}/{key}"


@dataclass
class Site:
    """A query that copies a topic exactly once, with the place of each row in its source."""

    spark: SparkSession
    cluster: ReplicatedCluster
    ledger: PlaceLedger
    checkpoint: Checkpoint

    @property
    def at(self) -> dict[str, str]:
        return {"namesrvAddr": self.cluster.namesrv}

    def start(self, *, once: bool = False) -> StreamingQuery:
        rows = self.spark.readStream.format("rocketmq").options(
            **self.at, subscribe=SOURCE, startingOffsets="earliest"
        )
        writer = (
            texts_of(rows.load(), "brokerName", "queueId")
            .writeStream.format("rocketmq")
            .options(**self.at, topic=TARGET, delivery="exactlyOnce")
            .option("checkpointLocation", str(self.checkpoint.folder))
        )
        return started((writer.trigger(availableNow=True) if once else writer).start)

    def source(self) -> Counter[str]:
        """The rows that the copy must have, by what brokers say."""
        found = messages_of(self.cluster.namesrv, SOURCE)
        acknowledged = self.ledger.acknowledged
        assert {place: found.get(place) for place in acknowledged} == acknowledged
        return Counter(text_of(place, key) for place, key in found.items())

    def copies_at(self, broker_id: int) -> Counter[str]:
        """The rows of the copy at the brokers of an id; slaves have all when this returns."""
        self.cluster.until_copied()
        return self.cluster.bodies_at(broker_id, TARGET, queues=QUEUES)

    def until_more_is_sent(self) -> None:
        """Wait until all groups have acknowledged more."""
        before = {name: self.ledger.acknowledged_by(name) for name in GROUPS}
        wait_until(
            lambda: all(self.ledger.acknowledged_by(name) > before[name] for name in GROUPS),
            timeout_s=QUERY_TIMEOUT_S,
            what="more messages",
        )

    def until_more_is_copied(self, query: StreamingQuery) -> None:
        """Wait until rows of all groups that were acknowledged after this call are copied."""
        self.until_more_is_sent()
        ends = {queue: 0 for queue, _ in self.ledger.acknowledged}
        for queue, offset in self.ledger.acknowledged:
            ends[queue] = max(ends[queue], offset + 1)

        def is_copied() -> bool:
            assert query.isActive, query.exception()
            done = self.checkpoint.ends(self.checkpoint.done)
            return all(done.get(queue, 0) >= end for queue, end in ends.items())

        wait_until(is_copied, timeout_s=QUERY_TIMEOUT_S, what="more rows to be copied")


def texts_of(rows: DataFrame, *columns: str) -> DataFrame:
    text = "concat_ws('/', brokerName, queueId, queueOffset, keys) AS body"
    return rows.selectExpr(text, *columns)


@pytest.fixture
def site(spark: SparkSession, tmp_path: Path) -> Iterator[Site]:
    with ReplicatedCluster(tmp_path) as cluster:
        for topic in (SOURCE, TARGET):
            cluster.create_topic(topic, queues=QUEUES)
        with PlaceLedger(cluster.namesrv, SOURCE) as ledger:
            checkpoint = Checkpoint(Query(source={}, checkpoint=str(tmp_path / "checkpoint")))
            yield Site(spark, cluster, ledger, checkpoint)


def test_an_exactly_once_copy_goes_on_while_both_masters_die_and_slaves_are_promoted(
    site: Site,
) -> None:
    query = site.start()
    try:
        site.until_more_is_copied(query)
        for name in GROUPS:
            # In the middle of a batch, if the query is not too quick.
            next_batch = max(site.checkpoint.planned) + 1
            wait_until(
                partial(site.checkpoint.is_within, next_batch),
                timeout_s=QUERY_TIMEOUT_S,
                what="another batch",
            )
            site.cluster.replace_master(name)
            site.until_more_is_copied(query)
    finally:
        query.stop()

    # Started again, it goes on from its checkpoint.
    site.until_more_is_sent()
    site.ledger.end()
    for name in GROUPS:
        site.cluster.return_as_slave(name)
    again = site.start(once=True)
    assert again.awaitTermination(QUERY_TIMEOUT_S)

    source = site.source()
    assert site.copies_at(1) == source
    # The masters that died are slaves now, and agree.
    assert site.copies_at(0) == source
    read = site.spark.read.format("rocketmq").options(**site.at, subscribe=SOURCE).load()
    assert Counter(row["body"] for row in texts_of(read).collect()) == source
