"""A note on disk while queues are rebuilt: where they ended before.

The log fills dropped queues again. Of a queue whose records were all deleted it knows nothing, and
numbers that start over would be read twice or never. So the ends are on disk before the files go.

File layout of `<root>/orbitmq/rebuild_note`: a line with the CRC-32 of the rest in eight
hexadecimal digits, then a line for each queue: its end, its queue id and its topic.

Threads: one at a time: the thread that opens the store, then the one that saves its progress.
Crash: the file is on disk before a queue is deleted, and is deleted once progress that covers the
rebuilt queues is on disk. An opening that finds it rebuilds again.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from orbitmq.disk import PRIVATE, FileModes, replace_file, sync_folder
from orbitmq.model.queues import QueueOffset
from orbitmq.store.files.descriptor import write_failure

log = logging.getLogger(__name__)

FILE_NAME: Final = "rebuild_note"

Ends = Mapping[tuple[str, int], QueueOffset]


class RebuildNote:
    """The note of one store."""

    def __init__(self, folder: Path, modes: FileModes = PRIVATE) -> None:
        self._path = folder / FILE_NAME
        self._modes = modes
        # The ends that queues had before a rebuild that is not over; None if there is none.
        self.ends: Ends | None = self._read()

    def write(self, ends: Ends) -> None:
        """Note that queues with these ends are about to be deleted; on disk when this returns."""
        lines = b"".join(
            b"%d %d %b\n" % (end, queue_id, os.fsencode(topic))
            for (topic, queue_id), end in ends.items()
        )
        try:
            replace_file(self._path, b"%08x\n%b" % (zlib.crc32(lines), lines), self._modes)
        except OSError as error:
            raise write_failure(self._path, error, what=f"{len(lines)} bytes") from error
        self.ends = ends

    def clear(self) -> None:
        """Forget a rebuild that is over; on disk when this returns."""
        if self.ends is None:
            return
        for path in (self._path, self._path.with_name(FILE_NAME + ".bak")):
            path.unlink(missing_ok=True)
        sync_folder(self._path.parent)
        self.ends = None

    def _read(self) -> Ends | None:
        try:
            checksum, _, lines = self._path.read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        if checksum != b"%08x" % zlib.crc32(lines):
            log.warning(
                "ends of queues not known file=%s reason=its checksum is wrong hint=a queue "
                "without messages may start over at 0",
                self._path,
            )
            return {}
        ends = {}
        for line in lines.splitlines():
            end, queue_id, topic = line.split(b" ", 2)
            ends[os.fsdecode(topic), int(queue_id)] = QueueOffset(int(end))
        return ends
