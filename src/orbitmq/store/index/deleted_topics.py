"""Deleted topics: so that no rebuild brings their old records back.

File layout of `<root>/orbitmq/deleted_topics`: a line for each topic, the physical offset at which
it was deleted, a space, and the topic. A topic that is created again counts from 0 after it.

Threads: one writer at a time; the dispatcher reads meanwhile.
Crash: the file is replaced as a whole and on disk before a queue is deleted.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from orbitmq.disk import PRIVATE, FileModes, replace_file
from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.files.descriptor import write_failure
from orbitmq.store.index.consume_queue import ENTRY, ENTRY_BYTES

log = logging.getLogger(__name__)

FILE_NAME: Final = "deleted_topics"


class DeletedTopics:
    """Where in the log each deleted topic ends."""

    def __init__(self, folder: Path, modes: FileModes = PRIVATE) -> None:
        self._path = folder / FILE_NAME
        self._modes = modes
        self._ends: dict[bytes, int] = {}
        lines = self._path.read_bytes().splitlines() if self._path.is_file() else []
        for line in lines:
            end, _, topic = line.partition(b" ")
            if end.isdigit() and topic:
                self._ends[topic] = int(end)
            elif line.strip():
                log.warning(
                    "deleted topics not all known file=%s line=%.100r hint=if queues are rebuilt, "
                    "a deleted topic may return with its old messages",
                    self._path,
                    line,
                )

    def add(self, topic: str, end: PhysicalOffset, *, log_start: PhysicalOffset) -> None:
        """Record that a topic's records below `end` are deleted; on disk when this returns."""
        kept = {name: at for name, at in self._ends.items() if at > log_start}
        self._replace(kept | {topic.encode(): end})

    def end_of(self, topic: str) -> PhysicalOffset:
        """Where a topic ended when it was last deleted; 0 if it was not."""
        return PhysicalOffset(self._ends.get(topic.encode(), 0))

    @property
    def ends(self) -> dict[str, PhysicalOffset]:
        """Where each deleted topic ends."""
        return {
            name.decode(errors="replace"): PhysicalOffset(end) for name, end in self._ends.items()
        }

    def lower(self, topic: str, end: PhysicalOffset) -> None:
        """Note that a topic's records are deleted only below a lower end; on disk on return."""
        name = topic.encode()
        if self._ends.get(name, 0) > end:
            self._replace(self._ends | {name: end})

    def has_above(self, offset: int) -> bool:
        """Whether a topic was deleted above an offset of the log."""
        return any(end > offset for end in self._ends.values())

    def forget_above(self, offset: int) -> None:
        """Forget deletions in a part of the log that is cut; on disk when this returns.

        What they deleted below is there again, once queues are filled from the log.
        """
        if self.has_above(offset):
            self._replace({name: end for name, end in self._ends.items() if end <= offset})

    def is_deleted(self, topic: bytes, physical_offset: int) -> bool:
        """Whether a record of a topic is from before its deletion."""
        return physical_offset < self._ends.get(topic, 0)

    def count_deleted(self, topic: bytes, entries: bytes | bytearray) -> int:
        """How many entries at the start of a run belong to deleted records."""
        end = self._ends.get(topic)
        if end is None:
            return 0
        count = 0
        for at in range(0, len(entries), ENTRY_BYTES):
            if ENTRY.unpack_from(entries, at)[0] >= end:
                break
            count += 1
        return count

    def _replace(self, ends: dict[bytes, int]) -> None:
        lines = [b"%d %b\n" % (at, name) for name, at in ends.items()]
        try:
            replace_file(self._path, b"".join(lines), self._modes)
        except OSError as error:
            raise write_failure(self._path, error, what="deleted topics") from error
        # Invariant: what is not on disk does not count, so that who failed does all of it again.
        self._ends = ends
