"""Two queries from a topic, to a table and to another topic, whose drivers are killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec
from pyspark.sql import SparkSession

from orbitmq.embedded import Cluster
from tests.spark.killed_driver import Query, start
from tests.spark.kills import START_TIMEOUT_S, Checkpoint, kill_when
from tests.spark.ledger import Ledger, Wrong, wrong_counts
from tests.spark.streams import started
from tests.spark.target_topic import HalfCommitted, TargetTopic
from tests.spark.topics import Topics

SINKS = ("table", "topic")
# Pauses between sends.
STEADY_S, FAST_S = 0.05, 0.001


@dataclass(frozen=True, slots=True)
class Kill:
    """State after the kill of one driver, by sink."""

    # Batches that were started and not done.
    interrupted: dict[str, set[int]]
    # Keys found too rarely or too often.
    wrong: dict[str, Wrong]
    # The batch that only one broker had moved, if the driver was killed then.
    half: HalfCommitted | None = None


class Trial(AbstractContextManager["Trial"]):
    """The queries, the ledger of what they read, and the results of each kill."""

    def __init__(self, spark: SparkSession, folder: Path, *, rows_a_batch: int) -> None:
        self._spark = spark
        self._folder = folder
        self._rows_a_batch = rows_a_batch
        self._opened = ExitStack()
        self.kills: list[Kill] = []

    def __enter__(self) -> Self:
        brokers = self._folder / "brokers"
        cluster = self._opened.enter_context(
            Cluster(
                brokers=2,
                directory=brokers,
                network_faults=True,
                options={"syncFlushTimeout": "60000"},
            )
        )
        topics = self._opened.enter_context(Topics(cluster))
        self.namesrv = cluster.namesrv
        self.source, target = topics.create(queues=2), topics.create(queues=2)
        self.queries = {
            "table": self._query("table", "parquet", path=str(self._folder / "table")),
            "topic": self._query(
                "topic",
                "rocketmq",
                namesrvAddr=cluster.namesrv,
                topic=target,
                delivery="exactlyOnce",
                # One row at a time: of a failing task, all but the last are staged.
                maxInFlightMessages="1",
            ),
        }
        self.checkpoints = {sink: Checkpoint(query) for sink, query in self.queries.items()}
        self.target = TargetTopic(
            topics, target, brokers=brokers, checkpoint=self.checkpoints["topic"].folder
        )
        self.ledger = self._opened.enter_context(
            Ledger(cluster.namesrv, self.source, pause_s=STEADY_S)
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _query(self, name: str, sink: str, **options: str) -> Query:
        return Query(
            source={
                "namesrvAddr": self.namesrv,
                "subscribe": self.source,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(self._rows_a_batch),
            },
            checkpoint=str(self._folder / f"{name}-checkpoint"),
            sink=sink,
            sink_options=options,
            columns=["keys", "body"],
            shuffle=3,
        )

    # --- kills ----------------------------------------------------------------------------------

    def kill_in_mid_batch(self, *, more: int, others: Sequence[Query] = ()) -> None:
        """Kill a driver within a batch of each query, `more` batches later.

        Others are killed in their first batch, which has rows: while they start, rows are sent so
        fast that some arrive between reading its start and reading its end.
        """
        batches = {
            checkpoint: max(checkpoint.planned, default=-1) + more
            for checkpoint in self.checkpoints.values()
        }
        firsts = [Checkpoint(query) for query in others]

        def is_time() -> bool:
            # By then the others are about to start.
            if others and self.checkpoints["topic"].done:
                self.ledger.pause_s = FAST_S
            return all(first.has_rows(0) for first in firsts) and all(
                checkpoint.is_within(batch) for checkpoint, batch in batches.items()
            )

        kill_when(is_time, [*self.queries.values(), *others], log=self._log)
        self.ledger.pause_s = STEADY_S
        self._note_kill()

    def kill_between_commits(self) -> None:
        """Kill a driver when one broker has moved the rows of a batch, and the other has not.

        Nothing of the driver is left when the other broker hears of it at last.
        """
        table = self.checkpoints["table"]
        batch = max(table.planned) + 1
        with self.target.moves_held():
            kill_when(
                lambda: table.is_within(batch) and self.target.half_committed() is not None,
                list(self.queries.values()),
                log=self._log,
                with_workers=True,
            )
            half = self.target.half_committed()
        self._note_kill(half)

    @property
    def _log(self) -> Path:
        return self._folder / f"driver-{len(self.kills)}.log"

    def _note_kill(self, half: HalfCommitted | None = None) -> None:
        interrupted = {sink: each.unfinished for sink, each in self.checkpoints.items()}
        wrong = {sink: self._wrong(sink, is_complete=half is not None) for sink in SINKS}
        self.kills.append(Kill(interrupted, wrong, half))

    def _wrong(self, sink: str, *, is_complete: bool) -> Wrong:
        """Compare with the ledger: rows of batches that are done, and of those started."""
        checkpoint = self.checkpoints[sink]
        started = self.ledger.keys_before(checkpoint.ends(checkpoint.planned))
        done = self.ledger.keys_before(checkpoint.ends(checkpoint.done))
        # A committed batch is completed without the driver.
        low = started if is_complete and sink == "topic" else done
        return wrong_counts(self.counted(sink), low=low, high=started)

    # --- the end --------------------------------------------------------------------------------

    def run_to_the_end(self, sink: str) -> None:
        """Finish a query, in large batches, after sending has stopped."""
        self.ledger.end()
        query = self.queries[sink]
        unlimited = {**query.source, "maxOffsetsPerTrigger": "1000000"}
        whole = msgspec.structs.replace(query, source=unlimited)
        running = started(lambda: start(self._spark, whole, availableNow=True))
        try:
            assert running.awaitTermination(START_TIMEOUT_S), "the query does not end"
        finally:
            running.stop()

    def counted(self, sink: str) -> Counter[str]:
        """How often each key is in the sink of a query."""
        if sink == "topic":
            return self.target.counted()
        table = Path(self.queries[sink].sink_options["path"])
        if not (table / "_spark_metadata").exists():
            return Counter()
        rows = self._spark.read.parquet(str(table)).groupBy("keys").count().collect()
        return Counter({row["keys"]: row["count"] for row in rows})

    def wrong_at_the_end(self, sink: str) -> Wrong:
        """Compare with the ledger once all is done: each row is present once."""
        sent = self.ledger.all_keys()
        return wrong_counts(self.counted(sink), low=sent, high=sent)
