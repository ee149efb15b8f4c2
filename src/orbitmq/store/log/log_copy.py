"""Copying: takes the bytes of a master's log as they are.

Bytes arrive in pieces that end anywhere. They are written after the log's end, which moves once
they make whole records: to everybody else the log always ends with a whole record.

Threads: one writes; moving the end holds the appender's lock.
Crash: recovery cuts a record of which only a part arrived, as it cuts any torn tail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from orbitmq.errors import CopyError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.record.codec import whole_records
from orbitmq.record.decode import Found, Verdict
from orbitmq.record.layout import BLANK_BYTES_MIN

if TYPE_CHECKING:
    import threading

    from orbitmq.store.files.mapped_file import MappedFile
    from orbitmq.store.log.commit_log import CommitLog
    from orbitmq.store.log.obstacles import Obstacles

# A record is awaited again this often if its checksum does not match; then the master has it so.
_BAD_BODIES_MAX = 3


@dataclass(slots=True, eq=False)
class LogCopy:
    """Writes what a master sends to the log."""

    log: CommitLog
    _: KW_ONLY
    # Held while the log's end moves.
    lock: threading.Lock
    obstacles: Obstacles
    # Called when the log has grown.
    on_growth: Callable[[], None]
    # Called with the start of a log that begins with the first copied byte.
    on_start: Callable[[PhysicalOffset], None]
    # Everything below has been received; the log's end, or within the record after it.
    received: PhysicalOffset = field(init=False)
    _file: MappedFile | None = field(default=None, init=False)
    # Where a body did not match its checksum, and how often.
    _bad_body: tuple[int, int] = field(default=(-1, 0), init=False)

    def __post_init__(self) -> None:
        self.received = self.log.end

    @property
    def is_empty(self) -> bool:
        """Whether the log has no byte yet, so that it may begin anywhere."""
        return not self.log.files

    def begin(self, offset: int) -> None:
        """Let an empty log begin at `offset`, the start of one of the master's files."""
        if not self.is_empty:
            raise CopyError(f"the log begins at {self.log.start} already, not at {offset}")
        if offset % self.log.file_bytes:
            raise CopyError(
                f"the master's log begins at {offset}, which is no multiple of "
                f"mappedFileSizeCommitLog={self.log.file_bytes}",
                hint="set mappedFileSizeCommitLog to the master's value",
            )
        with self.lock:
            self.log.begin_at(PhysicalOffset(offset))
        self.received = PhysicalOffset(offset)
        self.on_start(self.received)

    def room(self) -> memoryview:
        """The bytes to receive into, at `received`; they end with a file of the log."""
        if self.obstacles.errors:
            self.obstacles.check()
        file = self._file
        if file is None or not file.first_offset <= self.received < file.end_offset:
            file = self._file = self.log.file_for_copy(self.received)
        return file.view[self.received - file.first_offset :]

    def take(self, count: int) -> bool:
        """Count bytes that were written to the room; returns whether they complete a record."""
        file = self._file
        assert file is not None
        assert count <= file.end_offset - self.received
        self.received = PhysicalOffset(self.received + count)
        end = self._whole_until(file)
        if end == self.log.end:
            return False
        with self.lock:
            self.log.end = end
        self.on_growth()
        return True

    def drop_part(self) -> None:
        """Drop the part of a record that has arrived: its bytes are zero again."""
        end = self.log.end
        if self.received > end and self._file is not None:
            at = end - self._file.first_offset
            stop = self.received - self._file.first_offset
            self._file.view[at:stop] = bytes(stop - at)
        self.received = end

    def _whole_until(self, file: MappedFile) -> PhysicalOffset:
        """Where the log ends with what has been received; raises CopyError if it is no log."""
        base = file.first_offset
        at, stop = self.log.end - base, self.received - base
        while True:
            at, _, found = whole_records(file.view, at, stop, base, check_body=True)
            if found.verdict is not Verdict.BAD_BODY or not self._is_so_at_master(base + at):
                break
            end, _, found = whole_records(file.view, at, at + found.size, base, check_body=False)
            if end == at:
                break
            at = end
        self._check(file, at, found)
        is_over = found.verdict is Verdict.BLANK or file.file_bytes - at < BLANK_BYTES_MIN
        if is_over and self.received == file.end_offset:
            return PhysicalOffset(file.end_offset)
        return PhysicalOffset(base + at)

    def _check(self, file: MappedFile, at: int, found: Found) -> None:
        rest = file.file_bytes - at
        offset = file.first_offset + at
        if found.verdict in (Verdict.BROKEN, Verdict.BAD_BODY) or (
            found.verdict is Verdict.NOTHING and offset < self.received and rest >= BLANK_BYTES_MIN
        ):
            raise CopyError(f"the master sent no record at offset {offset}: {found}")
        if (found.verdict is Verdict.CUT_OFF and found.size > rest) or (
            found.verdict is Verdict.BLANK and found.size != rest
        ):
            raise CopyError(
                f"the record at offset {offset} has {found.size} bytes, and the log's file has "
                f"{rest} left",
                hint="set mappedFileSizeCommitLog to the master's value and empty this store",
            )

    def _is_so_at_master(self, offset: int) -> bool:
        """Whether a body has arrived broken so often that the master's own must be."""
        before, count = self._bad_body
        self._bad_body = offset, count + 1 if offset == before else 1
        return self._bad_body[1] >= _BAD_BODIES_MAX
