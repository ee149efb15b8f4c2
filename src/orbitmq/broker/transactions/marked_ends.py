"""Where the search for ends without a mark begins, as saved on disk.

`<root>/orbitmq/transactions` is a slot file (see `store.files.slot_file`) of one block:
    8  form, 1             others are of newer versions, and not read
    8  log offset          ends of transactions below have marks, which are below as well
    8  marks               the end of their queue then
    4  CRC-32 of the log before that offset, at most 64 KiB

What RocketMQ appends lies above the offset, so it may write to the store in between. A log that was
cut below and has grown again differs before the offset.

Threads: one at a time.
Crash: it is written once the log is on disk up to the offset, and may lag behind.
"""

from __future__ import annotations

import logging
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orbitmq.broker.transactions.half_messages import QUEUE_ID
from orbitmq.disk import PRIVATE, FileModes
from orbitmq.model.names import HALF_DONE_TOPIC
from orbitmq.store.files.slot_file import SlotFile, block_layout

if TYPE_CHECKING:
    from orbitmq.model.queues import PhysicalOffset
    from orbitmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

FILE_NAME: Final = "transactions"
_LAYOUTS: Final = (block_layout("qqqI"),)
_FORM: Final = 1
_COMPARED_BYTES: Final = 64 * 1024


class MarkedEnds:
    """The file of one store."""

    def __init__(self, store: MessageStore, folder: Path, modes: FileModes = PRIVATE) -> None:
        self._store = store
        self._path = folder / FILE_NAME
        self._modes = modes
        self._slots: SlotFile | None = None
        # Where the next search begins; 0 if that is not known.
        self.position = 0

    def load(self) -> int:
        """Read the saved offset; 0 if there is none that describes this log."""
        self.position = 0
        try:
            self._slots = SlotFile(self._path, _LAYOUTS, self._modes)
        except OSError as error:
            log.warning("file not read, and not written file=%s reason=%s", self._path, error)
            return 0
        block = self._slots.found[0] if self._slots.found else None
        if block is not None and block[0] == _FORM:
            _, position, marks, fingerprint = block
            if (
                marks <= self._store.end_of(HALF_DONE_TOPIC, QUEUE_ID)
                and self._fingerprint(position) == fingerprint
            ):
                self.position = position
        return self.position

    def save(self, position: PhysicalOffset, marks: int) -> None:
        """Replace the saved offset; the log must be on disk up to it."""
        fingerprint = self._fingerprint(position)
        if fingerprint is None or self._slots is None:
            return
        self._slots.write((_FORM, position, marks, fingerprint))
        self._slots.sync()
        self._slots.close()
        self.position = position

    def _fingerprint(self, position: int) -> int | None:
        """The checksum of the log before an offset; None if it has no such bytes."""
        commit_log = self._store.parts.log
        if not commit_log.start < position <= commit_log.end:
            return None
        file = commit_log.file_at(position - 1)
        if file is None:
            return None
        size = min(position - file.first_offset, _COMPARED_BYTES)
        content = commit_log.pread(position - size, size)
        return None if content is None else zlib.crc32(content)
