"""Which tables of a master changed: its slaves copy these at once.

Threads: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from orbitmq.broker.archives.archive_table import ArchiveTable
    from orbitmq.broker.groups.group_table import GroupTable
    from orbitmq.broker.groups.queue_locks import QueueLocks
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.model.versions import DataVersion

TOPICS: Final = "topics"
GROUPS: Final = "groups"
LOCKS: Final = "queue locks"
ARCHIVES: Final = "archives"
_TABLES: Final = (TOPICS, GROUPS, LOCKS, ARCHIVES)


@dataclass(slots=True, eq=False)
class TableChanges:
    """Watches the tables that a promoted slave should have as they were when the master died."""

    topics: TopicTable
    groups: GroupTable
    locks: QueueLocks
    archives: ArchiveTable
    # Called after each change.
    on_change: Callable[[], None] = field(default=lambda: None, init=False)

    def __post_init__(self) -> None:
        self.topics.listen(self._changed)
        self.groups.listen(self._changed)
        self.locks.on_change = self._changed
        self.archives.on_change = self._changed

    def _changed(self, *_: object) -> None:
        self.on_change()

    def state(self) -> str:
        """A text that differs after each change: a word for each table."""
        return ",".join(
            (
                _word(self.topics.data_version),
                _word(self.groups.data_version),
                str(self.locks.changes),
                str(self.archives.known.revision),
            )
        )


def _word(version: DataVersion) -> str:
    return f"{version.state_version}.{version.timestamp}.{version.counter}"


def changed_tables(known: str, state: str) -> frozenset[str]:
    """The tables that changed between two states of one master; all if nothing is known."""
    before, now = known.split(","), state.split(",")
    if len(before) != len(_TABLES) or len(now) != len(_TABLES):
        return frozenset(_TABLES)
    return frozenset(
        table for table, old, new in zip(_TABLES, before, now, strict=True) if old != new
    )
