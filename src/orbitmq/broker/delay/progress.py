"""The next offset of each delay queue, kept in `delayOffset.json`.

File layout, JSON: {"dataVersion": …, "offsetTable": {level: next offset}}, as in RocketMQ

Threads: the event loop's.
Crash: it may lag behind what was delivered, but never runs ahead: after a crash some messages are
delivered again, none is lost.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.broker.config_file import ConfigFile
from orbitmq.disk import PRIVATE, FileModes
from orbitmq.java_json import JavaInt, JavaLong
from orbitmq.model.queues import QueueOffset
from orbitmq.model.versions import DataVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.clock import Clock

FILE_NAME: Final = "delayOffset.json"


class DelayDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `delayOffset.json` holds."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion, name="dataVersion")
    offsets: dict[JavaInt, JavaLong] = msgspec.field(default_factory=dict, name="offsetTable")


class DelayProgress:
    """The next offset of each level."""

    def __init__(self, folder: Path, *, clock: Clock, modes: FileModes = PRIVATE) -> None:
        self._file = ConfigFile(folder / FILE_NAME, DelayDocument(), modes)
        self._clock = clock
        # Whether there is a file. One without offsets is written, too: if it is missing later, it
        # was lost.
        self.is_written = False

    @property
    def is_found(self) -> bool:
        """Whether there was a file to load."""
        return self._file.is_found

    async def load(self) -> None:
        """Read the file."""
        await self._file.load()
        self.is_written = self._file.is_found

    def offset(self, level: int) -> QueueOffset:
        """The next offset of a level."""
        return QueueOffset(self._file.document.offsets.get(level, 0))

    def document(self, offsets: Mapping[int, QueueOffset]) -> DelayDocument:
        """What the file would hold with these offsets, for a slave."""
        saved = self._file.document
        return DelayDocument(data_version=saved.data_version, offsets=saved.offsets | dict(offsets))

    async def follow(self, document: DelayDocument) -> None:
        """Replace everything by what the master holds."""

        def replaced(current: DelayDocument) -> DelayDocument:
            return current if document == current and self.is_written else document

        await self._file.change(replaced)
        self.is_written = True

    async def forget(self) -> None:
        """Begin anew: delayed messages are delivered again, unless a master's progress comes."""

        def emptied(document: DelayDocument) -> DelayDocument:
            return DelayDocument(data_version=document.data_version.next(self._clock.now_ms()))

        await self._file.change(emptied)
        self.is_written = True

    async def save(self, offsets: Mapping[int, QueueOffset]) -> None:
        """Write the next offsets to the file."""

        def with_offsets(document: DelayDocument) -> DelayDocument:
            changed = document.offsets | dict(offsets)
            if changed == document.offsets and self.is_written:
                return document
            version = document.data_version.next(self._clock.now_ms())
            return DelayDocument(data_version=version, offsets=changed)

        await self._file.change(with_offsets)
        self.is_written = True
