"""From where on the log waits for archives, and what they have left to do.

The first message of a queue that an archive lacks is found by its queue entry. It is read once, so
that a damaged entry cannot hide it; then the entry is only compared.

Threads: any.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from orbitmq.broker.statistics.archive_metrics import ArchiveState
from orbitmq.errors import StoreError
from orbitmq.model.archives import ArchiveFigures
from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.reading.queue_reader import ReadStatus
from orbitmq.store.retention import Gate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orbitmq.broker.archives.archive_table import ArchiveTable
    from orbitmq.model.archives import Archive
    from orbitmq.model.queues import QueueBounds
    from orbitmq.store.message_store import MessageStore

_EVERYTHING: Final = PhysicalOffset(0)
_READ: Final = (ReadStatus.FOUND, ReadStatus.NO_MATCHED_MESSAGE)


class _Place(NamedTuple):
    """Where a message is that was read, and when it was stored."""

    number: int
    entry: bytes
    physical_offset: PhysicalOffset
    store_ms: int


@dataclass(slots=True)
class _Left:
    """What an archive has left to do."""

    messages: int = 0
    missed: int = 0
    keep_from: PhysicalOffset | None = None
    oldest_ms: int = 0
    # The queue and offset of the message at `keep_from`.
    queue_id: int = 0
    offset: int = 0


@dataclass(slots=True, eq=False)
class ArchiveGate:
    """Measures archives against the queues of the store."""

    table: ArchiveTable
    store: MessageStore
    # The first message that an archive lacks, by topic, queue and offset.
    _places: dict[tuple[str, int, int], _Place] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __call__(self) -> Gate | None:
        """What retention has to wait for; None if for nothing. Reads the store."""
        known = self.table.known
        if known.unknown:
            return Gate(
                keep_from=_EVERYTHING,
                holder=f"archives that this broker may have lost ({known.unknown})",
                hint="open missing archives again, then: orbitmq lake release --unknown --broker NAME",
            )
        gating = [archive for archive in known.archives.values() if archive.gates]
        first: tuple[PhysicalOffset, Archive, _Left] | None = None
        for archive, left in self._measured(gating):
            if left.keep_from is not None and (first is None or left.keep_from < first[0]):
                first = left.keep_from, archive, left
        if first is None:
            return None
        keep_from, archive, left = first
        return Gate(
            keep_from=keep_from,
            holder=f"archive {archive.name!r} of topic {archive.topic!r}, which is at offset "
            f"{left.offset} of queue {left.queue_id}",
            hint=f"let it catch up, or release it: orbitmq lake release {archive.name}",
        )

    def state(self) -> ArchiveState:
        """The state that metrics show; reads the store."""
        return ArchiveState(known=self.table.known, figures=self.figures())

    def figures(self) -> dict[str, ArchiveFigures]:
        """What each archive has left to do; reads the store."""
        end = self.store.log_end
        return {
            archive.name: ArchiveFigures(
                unarchived_messages=left.messages,
                held_log_bytes=0 if left.keep_from is None else max(end - left.keep_from, 0),
                oldest_ms=left.oldest_ms,
                held_files=0
                if left.keep_from is None or not archive.gates
                else self.store.overdue_files(left.keep_from),
                missed_messages=left.missed,
            )
            for archive, left in self._measured(list(self.table.known.archives.values()))
        }

    def _measured(self, archives: list[Archive]) -> Iterable[tuple[Archive, _Left]]:
        if not archives:
            with self._lock:
                self._places.clear()
            return ()
        topics = {archive.topic for archive in archives}
        deleted = self.store.deleted_topics()
        queues: dict[str, list[QueueBounds]] = {topic: [] for topic in topics}
        for bounds in self.store.queues(topics):
            queues[bounds.topic].append(bounds)
        places: dict[tuple[str, int, int], _Place] = {}
        measured = [
            (one, self._left(_with_valid_marks(one, deleted), queues[one.topic], places))
            for one in archives
        ]
        with self._lock:
            self._places = places
        return measured

    def _left(
        self,
        archive: Archive,
        queues: list[QueueBounds],
        places: dict[tuple[str, int, int], _Place],
    ) -> _Left:
        left = _Left()
        for bounds in queues:
            mark = archive.mark(bounds.queue_id)
            first = max(mark, bounds.start)
            left.missed += max(min(bounds.start, bounds.end) - mark, 0)
            if first >= bounds.end:
                continue
            left.messages += bounds.end - first
            place = self._place(archive.topic, bounds.queue_id, first, places)
            if left.keep_from is None or place.physical_offset < left.keep_from:
                left.keep_from = place.physical_offset
                left.queue_id, left.offset = bounds.queue_id, first
            if place.store_ms and (not left.oldest_ms or place.store_ms < left.oldest_ms):
                left.oldest_ms = place.store_ms
        return left

    def _place(
        self,
        topic: str,
        queue_id: int,
        number: int,
        places: dict[tuple[str, int, int], _Place],
    ) -> _Place:
        """Where a message of a queue is; the start of everything if that is not sure."""
        key = topic, queue_id, number
        known = places.get(key) or self._places.get(key)
        entry = self.store.encoded_entries(topic, queue_id, number, 1)
        if known is None or not entry or entry != known.entry:
            known = self._read(topic, queue_id, number)
        places[key] = known
        return known

    def _read(self, topic: str, queue_id: int, number: int) -> _Place:
        unsure = _Place(number, b"", _EVERYTHING, 0)
        try:
            found = self.store.read(topic, queue_id, number, 1)
            if found.status not in _READ:
                return unsure
            # The read has repaired the entry if it was damaged.
            entry = self.store.encoded_entries(topic, queue_id, number, 1)
            store_ms = self.store.store_ms_of(topic, queue_id, number) or 0
        except (OSError, StoreError):
            return unsure
        if not entry:
            return unsure
        return _Place(number, entry, PhysicalOffset(int.from_bytes(entry[:8])), store_ms)


def _with_valid_marks(archive: Archive, deleted: Mapping[str, int]) -> Archive:
    """An archive without marks of a life that the store knows to be over, and the table not yet.

    A broker that was promoted learns of deletions from its log, also after its start.
    """
    if deleted.get(archive.topic, 0) <= archive.life_from:
        return archive
    return msgspec.structs.replace(archive, marks={})
