"""Sends a replay, chunk by chunk.

A chunk is read, compared with the plan, and written as one batch under the name
`replay/DIGEST/NUMBER`. Of all batches of one name OrbitMQ's brokers write the first. So a run that was
killed in a chunk sends it again, and its messages are there once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from orbitmq.errors import ReplaySourceError
from orbitmq.pipelines.replaying.planning import CHECKSUM
from orbitmq.pipelines.replaying.spark_failures import reported

if TYPE_CHECKING:
    from orbitmq.clock import Clock
    from orbitmq.pipelines.replaying.plan import Chunk, Plan
    from orbitmq.pipelines.replaying.selection import Selection
    from orbitmq.pipelines.replaying.state import ReplayState

_RESUME: Final = "once that is mended, the same command resumes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A chunk that was sent."""

    number: int
    messages: int
    rows: int


@dataclass(slots=True, kw_only=True)
class Replay:
    """A plan that is being sent."""

    selection: Selection
    state: ReplayState
    # Options of Spark's sink; the name of the batch is added.
    target: Mapping[str, str]
    rate: float | None
    clock: Clock
    # Waits so many milliseconds at most; returns whether to end after the current chunk.
    stops_within: Callable[[float], bool]
    on_chunk: Callable[[Sent], None]

    def run(self) -> None:
        """Send what is not sent yet, or until asked to stop."""
        plan = self.state.plan
        assert plan is not None
        left = range(self.state.progress.chunks, len(plan.chunks))
        for number in left:
            if self.stops_within(0):
                return
            begun_ms = self.clock.monotonic_ms()
            chunk = plan.chunks[number]
            self.state.begin(self.clock.now_ms())
            rows = self._send(plan, number, chunk)
            self.state.end(rows, self.clock.now_ms())
            self.on_chunk(Sent(number=number, messages=chunk.messages, rows=rows))
            if number + 1 < len(plan.chunks):
                self._keep_pace(rows, begun_ms)

    def _keep_pace(self, rows: int, begun_ms: float) -> None:
        """Return once the next chunk may be sent, or the replay is to stop."""
        if self.rate is None:
            return
        due_ms = begun_ms + rows * 1000 / self.rate
        self.stops_within(max(0.0, due_ms - self.clock.monotonic_ms()))

    def _send(self, plan: Plan, number: int, chunk: Chunk) -> int:
        what = f"chunk {number + 1} of {len(plan.chunks)} of replay {plan.id} was not sent"
        with reported(what, hint=_RESUME):
            messages = self._messages(chunk).persist(StorageLevel.MEMORY_AND_DISK)
            try:
                self._compare(messages, number, chunk)
                rows = self.selection.shaped(messages)
                count = rows.count() if self.selection.transforms else chunk.messages
                # Also without rows: what names a batch is its number, not its content.
                if count:
                    self._write(rows, write_id(plan, number))
                return count
            finally:
                messages.unpersist()

    def _messages(self, chunk: Chunk) -> DataFrame:
        """The messages of a chunk, each queue in one partition and in order."""
        spark = self.selection.spark
        read = self.selection.matching(self.selection.source.pieces(spark, chunk.pieces))
        tasks = min(len(chunk.pieces), spark.sparkContext.defaultParallelism)
        queue = "brokerName", "queueId"
        return read.repartition(tasks, *queue).sortWithinPartitions(*queue, "queueOffset")

    def _compare(self, messages: DataFrame, number: int, chunk: Chunk) -> None:
        found = messages.selectExpr(
            "count(*) AS messages", f"coalesce(bit_xor({CHECKSUM}), 0L) AS checksum"
        ).first()
        # Invariant: an aggregate has a row.
        assert found is not None
        if found.messages != chunk.messages:
            raise ReplaySourceError(
                f"{found.messages} of the {chunk.messages} messages of chunk {number + 1} are left "
                f"in {self.selection.source.name}"
            )
        if found.checksum != chunk.checksum:
            raise ReplaySourceError(
                f"{self.selection.source.name} has other messages now in chunk {number + 1}: was it deleted "
                "and created again?"
            )

    def _write(self, rows: DataFrame, name: str) -> None:
        options = {**self.target}
        if options["delivery"] == "exactlyOnce":
            options["writeId"] = name
        rows.write.format("rocketmq").mode("append").options(**options).save()


def write_id(plan: Plan, number: int) -> str:
    """The name under which brokers know a chunk."""
    return f"replay/{plan.digest}/{number + 1}"
