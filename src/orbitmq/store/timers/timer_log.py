"""The timer log: units of 52 bytes, one for each message that has a due time.

File layout: see `layout`. A file is named by the position of its first byte, has its full size
from the start and is sparse. A filler ends a file that has no room for another unit.

Threads: one at a time.
Crash: units have no checksum; what the saved progress does not cover is cleared on opening.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from orbitmq.disk import PRIVATE, FileModes, sync_folder
from orbitmq.errors import StoreDamagedError
from orbitmq.record.layout import MAGIC_BLANK
from orbitmq.store.files.file_names import file_name, offset_of
from orbitmq.store.files.open_files import OpenFiles
from orbitmq.store.timers.fast_forms import chain_units
from orbitmq.store.timers.layout import FILLER, UNIT
from orbitmq.store.timers.unit_runs import ChainUnit

FOLDER: Final = "timerlog"
# Units that one read of the disk takes.
_READ_UNITS: Final = 1260
_OPEN_FILES_MAX: Final = 8
_MAGIC_AT: Final = 12
_BLANK: Final = MAGIC_BLANK.to_bytes(4)


class TimerLog:
    """The units of one store."""

    def __init__(self, folder: Path, file_bytes: int, modes: FileModes = PRIVATE) -> None:
        self._folder = folder
        self._file_bytes = file_bytes
        self._files = OpenFiles(_OPEN_FILES_MAX, writable=True, modes=modes)
        # Starts of the files, oldest first.
        self.starts = sorted(
            start
            for path in (folder.iterdir() if folder.is_dir() else ())
            if (start := offset_of(path)) is not None
        )
        # The position of the next unit.
        self.end = self.starts[0] if self.starts else 0
        self._unwritten = bytearray()
        self._unwritten_at = self.end
        self._unsynced: set[Path] = set()
        self._created = False

    def check_files(self) -> None:
        """Raise StoreDamagedError unless the files follow each other and have their full size."""
        for number, start in enumerate(self.starts):
            path = self._path(start)
            size = path.stat().st_size
            if size != self._file_bytes:
                raise StoreDamagedError(f"{path} has {size} bytes, not {self._file_bytes}")
            if start % self._file_bytes or start != self.starts[0] + number * self._file_bytes:
                raise StoreDamagedError(f"{path} does not follow the file before it")

    # --- writing ------------------------------------------------------------------------------

    def next_position(self) -> int:
        """Where the next unit goes."""
        rest = self._file_bytes - self.end % self._file_bytes
        if rest >= UNIT.size + FILLER.size:
            return self.end
        return self.end + rest

    def append(self, unit: bytes) -> int:
        """Add a unit, for the next `write`; returns its position."""
        position = self.next_position()
        if position != self.end:
            rest = position - self.end
            self._unwritten += FILLER.pack(rest, 0, MAGIC_BLANK).ljust(rest, b"\0")
        self._unwritten += unit
        self.end = position + len(unit)
        return position

    def write(self) -> None:
        """Write the units added since the last call; what fails is written by the next one."""
        while self._unwritten:
            start = self._unwritten_at - self._unwritten_at % self._file_bytes
            content = bytes(self._unwritten[: start + self._file_bytes - self._unwritten_at])
            path = self._path(start)
            if not self.starts or start > self.starts[-1]:
                # Before the write: one that fails may have made the file.
                self._created = True
                self.starts.append(start)
            self._files.pwrite(
                path, content, self._unwritten_at - start, file_bytes=self._file_bytes
            )
            self._unsynced.add(path)
            del self._unwritten[: len(content)]
            self._unwritten_at += len(content)

    def sync(self) -> None:
        """Return once everything written is on disk."""
        self.write()
        for path in self._unsynced:
            self._files.sync(path)
        self._unsynced.clear()
        if self._created:
            sync_folder(self._folder)
            sync_folder(self._folder.parent)
            self._created = False

    def cut(self, end: int) -> None:
        """Continue at a position; whatever is behind it is cleared."""
        self._unwritten.clear()
        self.end = self._unwritten_at = end
        for start in [start for start in self.starts if start >= end]:
            self._delete(start)
        if self.starts and end > self.starts[-1]:
            path = self._path(self.starts[-1])
            if self._files.clear(path, end - self.starts[-1], self._file_bytes):
                self._unsynced.add(path)

    def delete_before(self, position: int) -> None:
        """Delete the files that end at or below a position, but not the newest."""
        for start in self.starts[:-1]:
            if start + self._file_bytes > position:
                break
            self._delete(start)

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def _delete(self, start: int) -> None:
        path = self._path(start)
        self._files.forget(path)
        self._unsynced.discard(path)
        path.unlink(missing_ok=True)
        self.starts.remove(start)

    # --- reading ------------------------------------------------------------------------------

    def runs(self, units_max: int) -> Iterator[tuple[int, bytes]]:
        """Read all bytes from the start, in runs of as many units; each with its position.

        Bytes that are no unit end the run in which they are, and all after a filler are skipped.
        """
        self.write()
        run_bytes = units_max * UNIT.size
        for start in list(self.starts):
            for at in range(0, self._file_bytes - UNIT.size + 1, run_bytes):
                content = self._files.pread(self._path(start), run_bytes, at)
                yield start + at, content
                if _has_filler(content):
                    break

    def chain(self, last: int, slot_ms: int) -> Iterator[ChainUnit]:
        """Read a chain from its last unit to its first; raises StoreDamagedError if it is broken."""
        position = last
        while position >= 0:
            units, position = self.run(position, slot_ms, _READ_UNITS)
            yield from units

    def run(self, position: int, slot_ms: int, units_max: int) -> tuple[list[ChainUnit], int]:
        """Read the units of a chain that are near a position; returns where the next one is, or -1.

        Raises StoreDamagedError if the chain is broken there.
        """
        self.write()
        start = position - position % self._file_bytes
        if start not in self.starts:
            raise StoreDamagedError(f"the timer log has no position {position}")
        content_at = max(start, position + UNIT.size - units_max * UNIT.size)
        size = position + UNIT.size - content_at
        content = self._files.pread(self._path(start), size, content_at - start)
        units, following = chain_units(content, content_at, position, slot_ms)
        if following >= content_at:
            raise StoreDamagedError(f"no unit of the timer log for {slot_ms} is at {following}")
        return units, following

    def _path(self, start: int) -> Path:
        return self._folder / file_name(start)


def _has_filler(content: bytes) -> bool:
    """Whether a run of units ends with the filler of its file."""
    at = content.rfind(_BLANK)
    return at >= _MAGIC_AT and (at - _MAGIC_AT) % UNIT.size == 0
