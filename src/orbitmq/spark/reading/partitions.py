"""What one Spark task reads: ranges of queues."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from orbitmq.model.queues import MessageQueue


@dataclass(frozen=True, slots=True)
class QueueRange:
    """The messages of one queue from `start`, inclusive, to `end`, exclusive."""

    queue: MessageQueue
    start: int
    end: int

    @property
    def rows(self) -> int:
        """The number of messages."""
        return self.end - self.start

    def __str__(self) -> str:
        queue = self.queue
        return f"{queue.topic}/{queue.broker_name}/{queue.queue_id} [{self.start}, {self.end})"


@dataclass(frozen=True)
class QueuePartition(InputPartition):
    """The work of one task, apart from the options of the reader."""

    ranges: tuple[QueueRange, ...]

    @property
    def rows(self) -> int:
        """The number of messages."""
        return sum(part.rows for part in self.ranges)
