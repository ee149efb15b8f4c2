"""How far each delay queue is emptied, kept in `delayOffset.json`.

File layout, JSON: {"dataVersion": …, "offsetTable": {level: next offset}}, as RocketMQ's

Threads: the event loop's.
Crash: it lags behind what was delivered, never leads: after a crash some messages are delivered
again, none is lost.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq import java_json
from orbitmq.broker.config_file import ConfigFile
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
    """The offset at which each level goes on."""

    def __init__(self, folder: Path, *, clock: Clock) -> None:
        self._file = ConfigFile(folder / FILE_NAME, DelayDocument())
        self._clock = clock

    async def load(self) -> None:
        """Read the file."""
        await self._file.load()

    def offset(self, level: int) -> QueueOffset:
        """Where a level goes on."""
        return QueueOffset(self._file.document.offsets.get(level, 0))

    async def save(self, offsets: Mapping[int, QueueOffset]) -> None:
        """Keep where the levels go on."""

        def whole(document: DelayDocument) -> DelayDocument:
            changed = document.offsets | dict(offsets)
            if changed == document.offsets:
                return document
            version = document.data_version.next(self._clock.now_ms())
            return DelayDocument(data_version=version, offsets=changed)

        await self._file.change(whole)

    def as_json(self) -> bytes:
        """What the file says, for slaves."""
        return java_json.encode(self._file.document)
