"""What a task of a store scan reads: entries whose records are close together.

A partition has everything that a task needs, and never changes: the newest entries, which a live
broker may not have written to its queue files yet, are part of it, as found in the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """One store directory, and the name of its broker."""

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
    # Entries from `disk_end` or `first`, whichever is later.
    tail: bytes = b""

    @property
    def count(self) -> int:
        """The number of entries."""
        return self.end - self.first


class StorePartition(InputPartition):
    """One task: slices of queues of one store."""

    def __init__(self, location: StoreLocation, slices: Sequence[QueueSlice]) -> None:
        super().__init__(None)
        self.location = location
        self.slices = tuple(slices)

    @property
    def count(self) -> int:
        """The number of entries in all slices."""
        return sum(one.count for one in self.slices)

    def __repr__(self) -> str:
        return (
            f"StorePartition({self.location.root!r}, {len(self.slices)} queues, {self.count} rows)"
        )
