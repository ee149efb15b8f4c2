"""A store directory, opened for reading only, also while a broker writes it.

The door for tools and Spark tasks: the arguments are plain, opening reads a few small files and no
log, and any number of processes may have one store open. No lock is taken and nothing is changed,
so a read-only mount will do. What is shown ends at a visible end that `refresh` moves on; see
`visible_end` for where that is.

A broker gathers entries of consume queues in memory and writes them about once a second, so the
newest ones are not on disk. Where they are needed the log is walked over from where all entries
are known written (OrbitMQ's saved progress, or the newest entry of any queue that RocketMQ wrote) to the
visible end: as much as a broker writes in that second, once for each `refresh`.

Threads: one at a time. Crash: nothing is written.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.errors import RecordsDeletedError, StoreDamagedError, StoreError
from orbitmq.model.queues import PhysicalOffset, QueueBounds, QueueOffset
from orbitmq.record.decode import StoredMessage, Verdict, decode_record, examine
from orbitmq.record.layout import MAGIC_V1, MAGIC_V2
from orbitmq.record.scan import EntryRun
from orbitmq.store.files.open_files import OpenFiles
from orbitmq.store.index.consume_queue import ENTRY, ENTRY_BYTES
from orbitmq.store.log.stand_ins import is_stand_in
from orbitmq.store.opening.parts import log_folders
from orbitmq.store.opening.refusals import refuse_foreign_kinds
from orbitmq.store.reading.queue_times import Boundary
from orbitmq.store.readonly.log_files import (
    CHUNK_BYTES,
    LogFile,
    ReadOnlyLog,
    physical_offset_in,
)
from orbitmq.store.readonly.queue_files import (
    Entry,
    ReadOnlyQueue,
    begins_at,
    ends_at,
    first_where,
)
from orbitmq.store.readonly.visible_end import StoreState, Writer, find_visible_end, read_state
from orbitmq.store.readonly.visible_queue import VisibleQueue

__all__ = ["LogChunk", "QueueBounds", "ReadOnlyStore"]

_OPEN_QUEUE_FILES_MAX: Final = 64
_READ_BYTES_MAX: Final = 64 * 1024 * 1024
# Records of one queue that lie back to back are read together up to this size.
_TOGETHER_BYTES_MAX: Final = 1024 * 1024
# Queues asked where the visible end of a RocketMQ store may be.
_HINTS_MAX: Final = 8
_HEAD: Final = struct.Struct(">II")

# Compat: entries of queues of such topics lead to records of other topics.
SHARED_RECORDS: Final = "%LMQ%"

QueueKey = tuple[str, int]


class LogChunk(NamedTuple):
    """Whole records, back to back, and where in the log they begin."""

    offset: PhysicalOffset
    records: bytes


class ReadOnlyStore:
    """A store directory that is only read."""

    def __init__(
        self, root: Path | str, *, log_path: str = "", log_file_bytes: int | None = None
    ) -> None:
        """Open a store; `log_path` as a broker's storePathCommitLog, sizes from the files."""
        self.root = Path(root).expanduser()
        if not self.root.is_dir():
            raise StoreError(
                f"{self.root} is not a folder", hint="name the storePathRootDir of a broker"
            )
        refuse_foreign_kinds(self.root)
        self.log = ReadOnlyLog(log_folders(self.root, log_path), log_file_bytes)
        self._open_files = OpenFiles(_OPEN_QUEUE_FILES_MAX, writable=False)
        self._on_disk: dict[QueueKey, ReadOnlyQueue] = {}
        self._queues: dict[QueueKey, VisibleQueue] = {}
        self._tail: dict[QueueKey, bytearray] | None = None
        self._tail_firsts: dict[QueueKey, int] = {}
        self.state: StoreState = read_state(self.root)
        # The watermark may be in a file that was not there when the log was listed.
        self.log.refresh()
        self._end: PhysicalOffset | None = None
        self._known_until: PhysicalOffset | None = None

    def __enter__(self) -> ReadOnlyStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the files go."""
        self.log.close()
        self._open_files.close()

    # --- what there is ------------------------------------------------------------------------

    def refresh(self) -> PhysicalOffset:
        """Look again what is visible; the end never moves back."""
        before = self.end
        self.state = read_state(self.root)
        self.log.refresh()
        found = find_visible_end(self.state, self.log, known=before)
        self._open_files.close()
        self._on_disk.clear()
        self._queues.clear()
        self._tail = None
        self._known_until = None
        self._end = PhysicalOffset(max(before, found, self.log.start))
        return self._end

    @property
    def start(self) -> PhysicalOffset:
        """The oldest byte of the log."""
        return self.log.start

    @property
    def end(self) -> PhysicalOffset:
        """The visible end: records below it are there to stay."""
        if self._end is None:
            hints = [] if self.state.written_by is Writer.ORBITMQ else self._hints()
            self._end = find_visible_end(self.state, self.log, hints=hints)
        return self._end

    @property
    def written_by(self) -> Writer:
        """Which broker wrote the store last."""
        return self.state.written_by

    def log_files(self) -> list[LogFile]:
        """The files of the log that hold something visible, oldest first."""
        return [file for file in self.log.files if file.first_offset < self.end]

    def topics(self) -> list[str]:
        """Every topic that has a queue, sorted."""
        return sorted({topic for topic, _ in self.queue_keys()})

    def queue_keys(self) -> list[QueueKey]:
        """Topic and queue id of every queue, sorted."""
        return sorted({*self.folder_keys(), *self._tail_entries()})

    def queues(self, topic: str | None = None) -> list[QueueBounds]:
        """The bounds of every queue, or of those of one topic, sorted."""
        return [
            self.bounds(name, queue_id)
            for name, queue_id in self.queue_keys()
            if topic is None or name == topic
        ]

    def bounds(self, topic: str, queue_id: int) -> QueueBounds:
        """The bounds of one queue; both are 0 when it is not there."""
        queue = self.queue(topic, queue_id)
        return QueueBounds(topic, queue_id, queue.start, queue.end)

    # --- reading queues -----------------------------------------------------------------------

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count: int,
        *,
        bytes_max: int = _READ_BYTES_MAX,
    ) -> list[bytes]:
        """Read up to `count` records from `offset` on, fewer when they are large.

        Nothing when `offset` is the visible end or beyond, or all behind it is lost;
        RecordsDeletedError, which tells the new start, when it was deleted.
        """
        queue = self.queue(topic, queue_id)
        if offset < queue.start:
            raise RecordsDeletedError(
                f"offset {offset} of queue {queue_id} of topic {topic!r} was deleted",
                start=queue.start,
            )
        records: list[bytes] = []
        while not records and offset < queue.end and count > 0:
            found = self._read_some(queue, offset, count, bytes_max)
            offset += len(found)
            records = [record for record in found if not is_stand_in(record)]
        return records

    def _read_some(
        self, queue: VisibleQueue, offset: int, count: int, bytes_max: int
    ) -> list[bytes]:
        """Read records, and those in the place of lost ones."""
        records: list[bytes] = []
        together: list[tuple[int, int]] = []
        read_bytes = 0
        for physical_offset, record_bytes, _ in queue.entries(offset, count):
            if read_bytes + record_bytes > bytes_max and read_bytes:
                break
            if together and (
                sum(together[-1]) != physical_offset
                or physical_offset + record_bytes - together[0][0] > _TOGETHER_BYTES_MAX
            ):
                records += self._records(together)
                together = []
            together.append((physical_offset, record_bytes))
            read_bytes += record_bytes
        if together:
            records += self._records(together)
        return records

    def messages(self, topic: str, queue_id: int, offset: int, count: int) -> list[StoredMessage]:
        """Read as `read` does, and decode."""
        return [decode_record(record) for record in self.read(topic, queue_id, offset, count)]

    def offset_at(
        self, topic: str, queue_id: int, time_ms: int, boundary: Boundary = Boundary.LOWER
    ) -> QueueOffset:
        """The offset of a queue at a store time, by halving: store times never fall in a queue."""
        queue = self.queue(topic, queue_id)

        def store_ms(number: int) -> int:
            return self.store_ms(topic, queue_id, number)

        if boundary is Boundary.LOWER:
            found = first_where(queue.start, queue.end, lambda n: store_ms(n) >= time_ms)
            return QueueOffset(found)
        behind = first_where(queue.start, queue.end, lambda n: store_ms(n) > time_ms)
        return QueueOffset(max(queue.start, behind - 1))

    def store_ms(self, topic: str, queue_id: int, offset: int) -> int:
        """The store time of one message of a queue, which must be there."""
        return self.log.store_ms(self.queue(topic, queue_id).entry(offset)[0])

    def _records(self, places: list[tuple[int, int]]) -> list[bytes]:
        """Read records that lie back to back."""
        base = places[0][0]
        content = self.log.read(base, sum(places[-1]) - base)
        for physical_offset, record_bytes in places:
            at = physical_offset - base
            size, magic = _HEAD.unpack_from(content, at)
            if (
                size != record_bytes
                or magic not in (MAGIC_V1, MAGIC_V2)
                or physical_offset_in(content, at) != physical_offset
            ):
                raise StoreDamagedError(
                    f"a queue says that a record of {record_bytes} bytes lies "
                    f"{self.log.place(physical_offset)}, but none does",
                    hint="run: orbitmq store verify",
                )
        return [content[at - base : at - base + size] for at, size in places]

    # --- reading the log ----------------------------------------------------------------------

    def chunks(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> Iterator[LogChunk]:
        """The records that begin in a range of the log, some at a time.

        The range begins where a record or a file does; by default it is all that is visible. A
        record that begins in the range and ends beyond it is shown, so ranges that meet show
        each record once.
        """
        start = self.start if start is None else start
        end = self.end if end is None else min(end, self.end)
        for chunk in self.log.walk(start, end, limit=self.end, chunk_bytes=chunk_bytes):
            yield LogChunk(chunk.offset, chunk.content[: chunk.found.position])

    def records(
        self, start: int | None = None, end: int | None = None
    ) -> Iterator[tuple[PhysicalOffset, bytes]]:
        """The records that begin in a range of the log, one at a time, as `chunks` finds them."""
        for offset, records in self.chunks(start, end):
            at = 0
            while at < len(records):
                size = int.from_bytes(records[at : at + 4])
                if not is_stand_in(records, at):
                    yield PhysicalOffset(offset + at), records[at : at + size]
                at += size

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """The message that begins at a physical offset; None when no visible one does."""
        if not self.start <= physical_offset <= self.end - _HEAD.size:
            return None
        size = int.from_bytes(self.log.read(physical_offset, 4))
        file = self.log.file_at(physical_offset)
        if physical_offset + size > min(self.end, file.end_offset):
            return None
        record = self.log.read(physical_offset, size)
        if examine(record, 0, size, check_body=True).verdict is not Verdict.RECORD:
            return None
        message = decode_record(record)
        return message if message.physical_offset == physical_offset else None

    # --- queues inside ------------------------------------------------------------------------

    def folder_keys(self) -> list[QueueKey]:
        """Every queue that has a folder."""
        keys: list[QueueKey] = []
        folder = self.root / "consumequeue"
        for topic_folder in folder.iterdir() if folder.is_dir() else ():
            if topic_folder.is_dir():
                keys += [
                    (topic_folder.name, int(queue_folder.name))
                    for queue_folder in topic_folder.iterdir()
                    if queue_folder.name.isascii() and queue_folder.name.isdigit()
                ]
        return keys

    def on_disk(self, topic: str, queue_id: int) -> ReadOnlyQueue:
        """The entries of a queue that are on disk, visible or not."""
        key = (topic, queue_id)
        queue = self._on_disk.get(key)
        if queue is None:
            folder = self.root / "consumequeue" / topic / str(queue_id)
            queue = self._on_disk[key] = ReadOnlyQueue(folder, self._open_files)
        return queue

    def queue(self, topic: str, queue_id: int) -> VisibleQueue:
        """The visible entries of one queue; none when it is not there."""
        key = (topic, queue_id)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = self._open_queue(topic, queue_id)
        return queue

    def _open_queue(self, topic: str, queue_id: int) -> VisibleQueue:
        # Invariant: the visible end and the progress are read before the entries on disk, so that
        # what the tail leaves out is on disk.
        tail = bytes(self._tail_entries().get((topic, queue_id), b""))
        on_disk = self.on_disk(topic, queue_id)
        start = on_disk.first_from(self.start)
        disk_end = self._visible_disk_end(on_disk, topic, queue_id)
        if disk_end > start or on_disk.end > on_disk.first:
            last = begins_at(on_disk.entry(disk_end - 1)) if disk_end > on_disk.first else -1
            offsets = [entry[0] for entry in ENTRY.iter_unpack(tail)]
            tail = tail[bisect.bisect_right(offsets, last) * ENTRY_BYTES :]
        else:
            # Nothing on disk yet: the queue begins where its first record says.
            disk_end = start = QueueOffset(self._tail_firsts.get((topic, queue_id), 0))
        return VisibleQueue(on_disk, QueueOffset(min(start, disk_end)), disk_end, tail)

    def _visible_disk_end(self, on_disk: ReadOnlyQueue, topic: str, queue_id: int) -> QueueOffset:
        """Leave out entries of records beyond the visible end, and stale ones."""
        end = int(on_disk.end)
        if end > on_disk.first and ends_at(on_disk.entry(end - 1)) > self.end:
            end = first_where(
                on_disk.first, end, lambda number: ends_at(on_disk.entry(number)) > self.end
            )
        # Compat: RocketMQ leaves entries behind the end of a queue that it cut in recovery.
        if end > on_disk.first and self._is_stale(on_disk, end - 1, topic, queue_id):
            end = first_where(
                on_disk.first,
                end,
                lambda number: self._is_stale(on_disk, number, topic, queue_id),
            )
        return QueueOffset(end)

    def _is_stale(self, on_disk: ReadOnlyQueue, number: int, topic: str, queue_id: int) -> bool:
        """Whether the record of an entry is another one than the entry was made for."""
        physical_offset = begins_at(on_disk.entry(number))
        if physical_offset < self.start or topic.startswith(SHARED_RECORDS):
            return False
        message = self.message_at(physical_offset)
        return (
            message is None
            or (message.topic, message.queue_id) != (topic, queue_id)
            or message.queue_offset < number
        )

    def _tail_entries(self) -> dict[QueueKey, bytearray]:
        """Entries of the newest records of every queue, read from the log."""
        if self._tail is None:
            self._tail, self._tail_firsts = {}, {}
            # Invariant: the end is known before the queues are looked at; see `_open_queue`.
            end = self.end
            for chunk in self.log.walk(self.entries_known_until, end):
                for (topic, queue_id), runs in chunk.found.runs.items():
                    for run in runs:
                        self._add_to_tail((topic.decode(errors="replace"), queue_id), run)
        return self._tail

    def _add_to_tail(self, key: QueueKey, run: EntryRun) -> None:
        assert self._tail is not None
        entries = self._tail.setdefault(key, bytearray())
        first = self._tail_firsts.setdefault(key, run.first)
        if run.first < first + len(entries) // ENTRY_BYTES:
            # The topic was deleted and made again; what lies before is of the old one.
            entries.clear()
            self._tail_firsts[key] = run.first
        entries += run.entries

    @property
    def entries_known_until(self) -> PhysicalOffset:
        """Entries of records below this physical offset are on disk; never above the end."""
        if self._known_until is None:
            self._known_until = PhysicalOffset(
                max(self.start, min(self._find_known_until(), self.end))
            )
        return self._known_until

    def _find_known_until(self) -> int:
        if self.state.is_clean:
            return self.end
        if self.state.written_by is Writer.ORBITMQ:
            return self.state.progress.dispatched if self.state.progress is not None else self.start
        # Compat: RocketMQ's one dispatching thread writes entries in the order of the log. The
        # queues are opened again afterwards, so that everything below this is in them.
        known = 0
        for key, queue in self._fresh_queues():
            end = self._visible_disk_end(queue, *key)
            if end > queue.first:
                known = max(known, ends_at(queue.entry(end - 1)))
        return known

    def _fresh_queues(self) -> Iterator[tuple[QueueKey, ReadOnlyQueue]]:
        for topic, queue_id in self.folder_keys():
            folder = self.root / "consumequeue" / topic / str(queue_id)
            yield (topic, queue_id), ReadOnlyQueue(folder, self._open_files)

    def _hints(self) -> list[PhysicalOffset]:
        """Where records begin that are near the visible end, by the queues with the newest ones."""
        queues = [queue for _, queue in self._fresh_queues() if queue.end > queue.first]
        queues.sort(key=lambda queue: begins_at(queue.entry(queue.end - 1)), reverse=True)
        hints: list[PhysicalOffset] = []
        for queue in queues[:_HINTS_MAX]:
            behind = self._first_too_new(queue)
            if behind > queue.first:
                hints.append(PhysicalOffset(begins_at(queue.entry(behind - 1))))
        return sorted(hints, reverse=True)

    def _first_too_new(self, queue: ReadOnlyQueue) -> int:
        return first_where(
            queue.first, queue.end, lambda number: self._is_too_new(queue.entry(number))
        )

    def _is_too_new(self, entry: Entry) -> bool:
        physical_offset = begins_at(entry)
        if physical_offset < self.log.start:
            return False
        found = self.log.record_at(physical_offset, self.log.room_end)
        if found is None:
            return True
        return not self.state.is_clean and found[1] >= self.state.checkpoint.log_ms
