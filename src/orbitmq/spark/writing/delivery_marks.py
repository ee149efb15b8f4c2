"""Delivery marks: which write of which query a message came by.

Each message that Spark writes carries one property, `SPARK_ROW`:

    query / batch / partition / attempt / sequence

Query and batch are Spark's ids of the streaming query and of its micro-batch, the query's without
its dashes; a batch write has a random id in place of the query's, and batch 0. The sequence counts
the rows of the partition from 0. A task that is tried again, or a micro-batch that is replayed
after a crash, writes its rows with the same query, batch, partition and sequence, as long as the
plan gives the same rows in the same order: consumers that keep the marks they have seen, without
the attempt, take each row once.

One property instead of five: 55 bytes a message instead of 105, and one look-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from orbitmq.errors import MessageError

MARK: Final = "SPARK_ROW"
_PARTS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryMark:
    """What the property of one message says."""

    query: str
    batch: int
    partition: int
    attempt: int
    sequence: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the value of the property."""
        parts = text.split("/")
        if len(parts) != _PARTS or not all(part.isdecimal() for part in parts[1:]):
            raise MessageError(
                f"{MARK} cannot be {text[:100]!r}",
                hint="it is query/batch/partition/attempt/sequence",
            )
        query, *numbers = parts
        batch, partition, attempt, sequence = map(int, numbers)
        return cls(
            query=query, batch=batch, partition=partition, attempt=attempt, sequence=sequence
        )

    def __str__(self) -> str:
        return f"{self.query}/{self.batch}/{self.partition}/{self.attempt}/{self.sequence}"

    @property
    def row(self) -> tuple[str, int, int, int]:
        """What stays the same when the row is written again."""
        return self.query, self.batch, self.partition, self.sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMark:
    """What all messages of one task attempt have in common."""

    query: str
    batch: int
    partition: int
    attempt: int

    @property
    def prefix(self) -> str:
        """What the marks of its messages begin with; the sequence follows."""
        return f"{self.query}/{self.batch}/{self.partition}/{self.attempt}/"
