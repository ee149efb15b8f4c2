"""Progress of timers on disk: RocketMQ's file, and one of our own.

Layout of `config/timercheck`, big-endian, 4096 bytes:
    8  read time        slots before are delivered
    8  timer log end    units below are on disk
    8  queue offset     of the next message that goes into the wheel
    8  queue offset     of the master, the same here
    8  state version    8  version time    8  version counter

Layout of `<root>/orbitmq/timers`, big-endian, two slots of 512 bytes used in turn:
    8  sequence         8  read time       8  timer log end    8  queue offset
    8  cursor due time  8  cursor physical offset               8  log position
    8, 8, 8  version of `timercheck` before                     8, 8, 8  and after this save
    4  CRC-32 of these
The valid slot with the higher sequence counts. It knows more than RocketMQ's: of the slot at the
read time, what is at or below the cursor is delivered, and what is delivered besides has its copy in
the commit log after the log position.

Threads: one at a time.
Crash: the own file is on disk before `timercheck`. A `timercheck` of another version was written by
RocketMQ, and counts instead.
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from orbitmq.disk import PRIVATE, FileModes, make_folder, sync_folder
from orbitmq.model.versions import DataVersion
from orbitmq.store.files.descriptor import Descriptor, write_failure
from orbitmq.store.timers.layout import floor

FILE_NAME: Final = "timers"
CHECK_NAME: Final = "timercheck"
_CHECK: Final = struct.Struct(">qqqqqqq")
_CHECK_BYTES: Final = 4096
_FIELDS: Final = struct.Struct(">qqqqqqqqqqqqq")
_CRC: Final = struct.Struct(">I")
_SLOT_BYTES: Final = 512
_SLOTS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerProgress:
    """What was done when it was saved."""

    # Every slot before is delivered.
    read_ms: int = 0
    log_end: int = 0
    queue_offset: int = 0
    # Of the slot at `read_ms`, everything up to here is delivered.
    cursor: tuple[int, int] = (0, -1)
    # Copies delivered after this save are in the commit log from here on; None if unknown.
    commit_log_position: int | None = None


@dataclass(slots=True, eq=False)
class TimerProgressFiles:
    """The two files of one store."""

    root: Path
    modes: FileModes = PRIVATE
    saved: TimerProgress | None = field(default=None, init=False)
    version: DataVersion = field(default_factory=DataVersion, init=False)
    _sequence: int = field(default=0, init=False)

    def load(self) -> TimerProgress | None:
        """Read what was saved last, by either broker; None if nothing was."""
        check = _read(self._check_path)
        own = _newest_slot(_read(self._own_path))
        theirs: TimerProgress | None = None
        if len(check) >= _CHECK.size:
            read_ms, log_end, queue_offset, master_offset, state, stamp, counter = (
                _CHECK.unpack_from(check)
            )
            self.version = DataVersion(state_version=state, timestamp=stamp, counter=counter)
            theirs = TimerProgress(
                read_ms=floor(max(read_ms, 0)),
                log_end=max(log_end, 0),
                queue_offset=max(min(queue_offset, master_offset), 0),
            )
        if own is not None:
            self._sequence = own[0]
            versions = (_version(own[7:10]), _version(own[10:13]))
            if theirs is None or self.version in versions:
                self.version = versions[1]
                self.saved = TimerProgress(
                    read_ms=own[1],
                    log_end=own[2],
                    queue_offset=own[3],
                    cursor=(own[4], own[5]),
                    commit_log_position=own[6],
                )
                return self.saved
        self.saved = theirs
        return theirs

    def save(self, progress: TimerProgress, now_ms: int) -> None:
        """Replace the saved progress and return once it is on disk."""
        if progress == self.saved:
            return
        assert progress.commit_log_position is not None
        before, after = self.version, self.version
        if self.saved is None or replace(
            progress, commit_log_position=None, cursor=(0, -1)
        ) != replace(self.saved, commit_log_position=None, cursor=(0, -1)):
            after = before.next(now_ms)
        sequence = self._sequence + 1
        fields = _FIELDS.pack(
            sequence,
            progress.read_ms,
            progress.log_end,
            progress.queue_offset,
            *progress.cursor,
            progress.commit_log_position,
            *_numbers(before),
            *_numbers(after),
        )
        content = fields + _CRC.pack(zlib.crc32(fields))
        _write(self._own_path, content, sequence % _SLOTS * _SLOT_BYTES, self.modes)
        self._sequence = sequence
        if after != before:
            check = _CHECK.pack(
                progress.read_ms,
                progress.log_end,
                progress.queue_offset,
                progress.queue_offset,
                *_numbers(after),
            )
            _write(self._check_path, check.ljust(_CHECK_BYTES, b"\0"), 0, self.modes)
        self.version = after
        self.saved = progress

    @property
    def _own_path(self) -> Path:
        return self.root / "orbitmq" / FILE_NAME

    @property
    def _check_path(self) -> Path:
        return self.root / "config" / CHECK_NAME


def _newest_slot(content: bytes) -> tuple[int, ...] | None:
    best: tuple[int, ...] | None = None
    for at in range(0, _SLOT_BYTES * _SLOTS, _SLOT_BYTES):
        fields = content[at : at + _FIELDS.size]
        crc = content[at + _FIELDS.size : at + _FIELDS.size + _CRC.size]
        if len(fields) == _FIELDS.size and crc == _CRC.pack(zlib.crc32(fields)):
            values = _FIELDS.unpack(fields)
            best = values if best is None else max(best, values)
    return best


def _version(numbers: tuple[int, ...]) -> DataVersion:
    state, stamp, counter = numbers
    return DataVersion(state_version=state, timestamp=stamp, counter=counter)


def _numbers(version: DataVersion) -> tuple[int, int, int]:
    return version.state_version, version.timestamp, version.counter


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _write(path: Path, content: bytes, at: int, modes: FileModes) -> None:
    made = not path.exists()
    try:
        make_folder(path.parent, modes)
        descriptor = Descriptor(path, os.O_RDWR | os.O_CREAT, modes)
        descriptor.pwrite(content, at)
    except OSError as error:
        raise write_failure(path, error, what=f"{len(content)} bytes") from error
    descriptor.sync()
    if made:
        sync_folder(path.parent)
