"""Progress of an official master's timers, kept by its slave for a promotion.

Layout of `<root>/orbitmq/mastertimers`, big-endian:
    8   log end        of the master, once it had made this progress
    56  checkpoint     as RocketMQ's `timercheck`
    4   CRC-32 of these
What the progress counts as delivered has its copy in the commit log below the log end.

Threads: one at a time.
Crash: the file is replaced whole. It is only written once the slave's log has reached the log end.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orbitmq.disk import PRIVATE, FileModes, replace_file
from orbitmq.errors import ConfigFileError, ProtocolError
from orbitmq.protocol.requests.metadata import TimerCheckpoint
from orbitmq.store.timers.layout import floor
from orbitmq.store.timers.timer_progress import TimerProgress

FILE_NAME: Final = "mastertimers"
_LOG_END: Final = struct.Struct(">q")
_CRC: Final = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class MasterTimers:
    """How far the timers of a master were, and a log end above all that they had delivered."""

    checkpoint: TimerCheckpoint
    log_end: int

    @property
    def progress(self) -> TimerProgress:
        """What the master had done, for the timers of its former slave."""
        queue_offset = min(self.checkpoint.queue_offset, self.checkpoint.master_queue_offset)
        return TimerProgress(
            read_ms=floor(max(self.checkpoint.read_ms, 0)), queue_offset=max(queue_offset, 0)
        )


def write_master_timers(folder: Path, timers: MasterTimers, modes: FileModes = PRIVATE) -> None:
    """Replace the file in a folder; returns once it is on disk."""
    content = _LOG_END.pack(timers.log_end) + timers.checkpoint.encode()
    path = folder / FILE_NAME
    try:
        replace_file(path, content + _CRC.pack(zlib.crc32(content)), modes)
    except OSError as error:
        raise ConfigFileError(
            f"cannot write {path}: {error.strerror}",
            hint="the folder of the store must be writable, with room on its disk",
        ) from error


def read_master_timers(folder: Path) -> MasterTimers | None:
    """Read the file in a folder; None if there is none, or it is damaged."""
    try:
        whole = (folder / FILE_NAME).read_bytes()
    except FileNotFoundError:
        return None
    content, crc = whole[: -_CRC.size], whole[-_CRC.size :]
    if crc != _CRC.pack(zlib.crc32(content)):
        return None
    try:
        checkpoint = TimerCheckpoint.decode(content[_LOG_END.size :])
    except ProtocolError:
        return None
    return MasterTimers(checkpoint, _LOG_END.unpack_from(content)[0])
