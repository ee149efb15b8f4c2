"""What a task of a store scan reads: entries whose records lie close together.

All that a task needs is in here, and nothing in here changes: the newest entries, which a live
broker may not have written to its queues yet, travel along as they were found in the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class StorePlace:
    """One store directory, and what its broker is called."""

    root: str
    broker_name: str
    log_path: str = ""


@dataclass(frozen=True, slots=True)
class QueueSlice:
    """Entries `first` to `end` of one queue: those below `disk_end` are in its files."""

    topic: str
    queue_id: int
    first: int
    end: int
    disk_end: int
    file_bytes: int
    # Entries from `disk_end` or `first` on, whichever is later.
    tail: bytes = b""

    @property
    def count(self) -> int:
        """How many entries there are."""
        return self.end - self.first


class StorePartition(InputPartition):
    """One task: slices of queues of one store."""

    def __init__(self, place: StorePlace, slices: Sequence[QueueSlice]) -> None:
        super().__init__(None)
        self.place = place
        self.slices = tuple(slices)

    @property
    def count(self) -> int:
        """How many entries its slices have."""
        return sum(one.count for one in self.slices)

    def __repr__(self) -> str:
        return f"StorePartition({self.place.root!r}, {len(self.slices)} queues, {self.count} rows)"
