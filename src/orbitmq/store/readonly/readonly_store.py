"""A store directory, opened read-only, also while a broker writes it.

The entry point for tools and Spark tasks: arguments are plain values, opening reads a few small
files but not the log, and any number of processes may open the same store. It takes no lock and
changes nothing, so a read-only mount is enough. Readers see the store up to a visible end that
`refresh` advances; `visible_end` explains where that is.

A broker collects entries of consume queues in memory and writes them about once a second, so the
newest ones are not on disk. They are read from the log when needed: from where all entries are
known to be on disk (OrbitMQ's saved progress, or the newest entry that RocketMQ wrote to any
queue) to the visible end. That is what a broker writes in a second, read once per `refresh`.

Threads: one at a time. Crash: nothing is written.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.errors import RecordsDeletedError, StoreDamagedError, StoreError
from orbitmq.model.queues import PhysicalOffset, QueueBounds, QueueOffset
from orbitmq.record.decode import StoredMessage, Verdict, decode_record, examine
from orbitmq.record.layout import MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_AT
from orbitmq.record.scan import EntryRun
from orbitmq.store.files.open_files import OpenFiles
from orbitmq.store.files.record_checks import damage_of, queue_offset_of
from orbitmq.store.index.consume_queue import ENTRY, ENTRY_BYTES
from orbitmq.store.log.stand_ins import is_stand_in
from orbitmq.store.opening.parts import log_folders
from orbitmq.store.opening.refusals import refuse_foreign_kinds, refuse_misplaced
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
from orbitmq.store.readonly.queue_times import QueueTimes
from orbitmq.store.readonly.visible_end import StoreState, Writer, find_visible_end, read_state
from orbitmq.store.readonly.visible_queue import VisibleQueue

__all__ = ["LogChunk", "QueueBounds", "ReadOnlyStore"]

_OPEN_QUEUE_FILES_MAX: Final = 64
# Enough of a record to contain its own offset.
_HEAD_BYTES: Final = PHYSICAL_OFFSET_AT + 8
_READ_BYTES_MAX: Final = 64 * 1024 * 1024
# Adjacent records of one queue are read together up to this size.
_TOGETHER_BYTES_MAX: Final = 1024 * 1024
# Queues examined to find the visible end of a RocketMQ store.
_HINTS_MAX: Final = 8
_HEAD: Final = struct.Struct(">II")

# Compat: queues of topics with this prefix point to records of other topics.
SHARED_RECORDS: Final = "%LMQ%"

QueueKey = tuple[str, int]


class LogChunk(NamedTuple):
    """Adjacent whole records, and where in the log they start."""

    offset: PhysicalOffset
    records: bytes


class ReadOnlyStore:
    """A store directory that is only read."""

    def __init__(
        self, root: Path | str, *, log_path: str = "", log_file_bytes: int | None = None
    ) -> None:
        """Open a store; `log_path` is a broker's storePathCommitLog, sizes come from the files."""
        self.root = Path(root).expanduser()
        if not self.root.is_dir():
            raise StoreError(
                f"{self.root} is not a folder", hint="name the storePathRootDir of a broker"
            )
        refuse_misplaced(self.root)
        refuse_foreign_kinds(self.root)
        self.log = ReadOnlyLog(log_folders(self.root, log_path), log_file_bytes)
        self._open_files = OpenFiles(_OPEN_QUEUE_FILES_MAX, writable=False)
        self._on_disk: dict[QueueKey, ReadOnlyQueue] = {}
        self._queues: dict[QueueKey, VisibleQueue] = {}
        self._tail: dict[QueueKey, bytearray] | None = None
        self._tail_firsts: dict[QueueKey, int] = {}
        self.state: StoreState = read_state(self.root)
        # The watermark may point into a file that was created after the log was listed.
        self.log.refresh()
        self._end: PhysicalOffset | None = None
        self._known_until: PhysicalOffset | None = None

    def __enter__(self) -> ReadOnlyStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        self.log.close()
        self._open_files.close()

    # --- contents -----------------------------------------------------------------------------

    def refresh(self) -> PhysicalOffset:
        """Re-read the visible end, which never moves back."""
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
        """The visible end: records below it survive a crash of the broker."""
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
        """The bounds of one queue; both are 0 if it does not exist."""
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
        """Read up to `count` records from `offset` on, fewer if they are large.

        Empty if `offset` is at or beyond the visible end, or if all later messages are lost.
        Raises RecordsDeletedError, with the new start, if the offset was deleted.
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
            for number, record in enumerate(found, offset):
                place = physical_offset_in(record, 0)
                stray = self._stray(queue, topic, queue_id, number, place, record)
                if stray:
                    raise StoreDamagedError(
                        f"entry {number} of queue {queue_id} of topic {topic!r} leads to the record "
                        f"{self.log.describe_offset(place)}: {stray}",
                        hint="run: orbitmq store verify",
                    )
            offset += len(found)
            records = [record for record in found if not is_stand_in(record)]
        return records

    def _read_some(
        self, queue: VisibleQueue, offset: int, count: int, bytes_max: int
    ) -> list[bytes]:
        """Read records, including stand-ins for lost ones."""
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
        """Like `read`, but decoded."""
        return [decode_record(record) for record in self.read(topic, queue_id, offset, count)]

    def offset_at(
        self, topic: str, queue_id: int, time_ms: int, boundary: Boundary = Boundary.LOWER
    ) -> QueueOffset:
        """The queue offset at a store time, by binary search: store times never fall in a queue."""
        queue = self.queue(topic, queue_id)
        times = QueueTimes(self.log, queue, topic, queue_id)
        if boundary is Boundary.LOWER:
            found = first_where(queue.start, queue.end, lambda n: times.from_number(n) >= time_ms)
            return QueueOffset(found)
        later = first_where(queue.start, queue.end, lambda n: times.from_number(n) > time_ms)
        return QueueOffset(max(queue.start, later - 1))

    def store_ms(self, topic: str, queue_id: int, offset: int) -> int:
        """The store time of one message of a queue; the message must exist."""
        return self.log.store_ms(self.queue(topic, queue_id).entry(offset)[0])

    def _records(self, places: list[tuple[int, int]]) -> list[bytes]:
        """Read adjacent records."""
        for physical_offset, record_bytes in places:
            if physical_offset < 0 or record_bytes < _HEAD_BYTES:
                raise self._no_record(physical_offset, record_bytes)
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
                raise self._no_record(physical_offset, record_bytes)
        return [content[at - base : at - base + size] for at, size in places]

    def _stray(
        self,
        queue: VisibleQueue,
        topic: str,
        queue_id: int,
        number: int,
        physical_offset: int,
        record: bytes,
    ) -> str:
        """Say why a record is not that of an entry; empty if it is."""
        if topic.startswith(SHARED_RECORDS):
            return ""
        damage = damage_of(
            record, physical_offset, topic=topic.encode(), queue_id=queue_id, check_body=False
        )
        found = queue_offset_of(record)
        if damage or found == number:
            return damage
        # Compat: after a loss, queues have their entries without gaps, but still lead forward.
        around = (n for n in (number - 1, number, number + 1) if queue.start <= n < queue.end)
        places = [queue.entry(n)[:2] for n in around]
        if any(left[0] + left[1] > right[0] for left, right in itertools.pairwise(places)):
            return f"it is that of message {found}"
        return ""

    def _no_record(self, physical_offset: int, record_bytes: int) -> StoreDamagedError:
        return StoreDamagedError(
            f"a queue points to a record of {record_bytes} bytes "
            f"{self.log.describe_offset(physical_offset)}, but there is none",
            hint="run: orbitmq store verify",
        )

    # --- reading the log ----------------------------------------------------------------------

    def chunks(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> Iterator[LogChunk]:
        """The records that start in a range of the log, a chunk at a time.

        The range starts at a record or a file; by default it is everything visible. A record
        belongs to the range where it starts, so adjacent ranges contain each record once.
        """
        start = self.start if start is None else start
        end = self.end if end is None else min(end, self.end)
        for chunk in self.log.walk(start, end, limit=self.end, chunk_bytes=chunk_bytes):
            yield LogChunk(chunk.offset, chunk.content[: chunk.found.position])

    def records(
        self, start: int | None = None, end: int | None = None
    ) -> Iterator[tuple[PhysicalOffset, bytes]]:
        """The records that start in a range of the log, one at a time; ranges as in `chunks`."""
        for offset, records in self.chunks(start, end):
            at = 0
            while at < len(records):
                size = int.from_bytes(records[at : at + 4])
                if not is_stand_in(records, at):
                    yield PhysicalOffset(offset + at), records[at : at + size]
                at += size

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """The message that starts at a physical offset; None if no visible one does."""
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

    # --- queues -------------------------------------------------------------------------------

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
        """The visible entries of one queue; empty if it does not exist."""
        key = (topic, queue_id)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = self._open_queue(topic, queue_id)
        return queue

    def _open_queue(self, topic: str, queue_id: int) -> VisibleQueue:
        # Invariant: the visible end and the progress are read before the entries on disk, so every
        # entry that is not in the tail is on disk.
        tail = bytes(self._tail_entries().get((topic, queue_id), b""))
        on_disk = self.on_disk(topic, queue_id)
        start = on_disk.first_from(self.start)
        disk_end = self._visible_disk_end(on_disk, topic, queue_id)
        if disk_end > start or on_disk.end > on_disk.first:
            last = begins_at(on_disk.entry(disk_end - 1)) if disk_end > on_disk.first else -1
            offsets = [entry[0] for entry in ENTRY.iter_unpack(tail)]
            tail = tail[bisect.bisect_right(offsets, last) * ENTRY_BYTES :]
        else:
            # Nothing on disk yet: the queue starts at the number of its first record.
            disk_end = start = QueueOffset(self._tail_firsts.get((topic, queue_id), 0))
        return VisibleQueue(on_disk, QueueOffset(min(start, disk_end)), disk_end, tail)

    def _visible_disk_end(self, on_disk: ReadOnlyQueue, topic: str, queue_id: int) -> QueueOffset:
        """The end without entries of records beyond the visible end, and without stale ones."""
        end = int(on_disk.end)
        progress = self.state.progress if self.written_by is Writer.ORBITMQ else None
        if self.state.is_clean and progress is not None and progress.dispatched == self.end:
            # Nothing is beyond the visible end, and nothing stale.
            return QueueOffset(end)
        if end > on_disk.first and ends_at(on_disk.entry(end - 1)) > self.end:
            end = first_where(
                on_disk.first, end, lambda number: ends_at(on_disk.entry(number)) > self.end
            )
        # Compat: RocketMQ leaves entries after the end of a queue that recovery truncated.
        if end > on_disk.first and self._is_stale(on_disk, end - 1, topic, queue_id):
            end = first_where(
                on_disk.first,
                end,
                lambda number: self._is_stale(on_disk, number, topic, queue_id),
            )
        return QueueOffset(end)

    def _is_stale(self, on_disk: ReadOnlyQueue, number: int, topic: str, queue_id: int) -> bool:
        """Whether an entry was written for a record other than the one it points to."""
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
            # Invariant: the end is known before queues are read; see `_open_queue`.
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
            # The topic was deleted and created again; the earlier entries are the old one's.
            entries.clear()
            self._tail_firsts[key] = run.first
        entries += run.entries

    @property
    def entries_known_until(self) -> PhysicalOffset:
        """Entries of records below this physical offset are on disk; at most the visible end."""
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
        # Compat: RocketMQ's single dispatcher thread writes entries in log order. Queues are
        # opened again afterwards, so they contain everything below this offset.
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
        """Starts of records near the visible end, from the queues with the newest records."""
        queues = [queue for _, queue in self._fresh_queues() if queue.end > queue.first]
        queues.sort(key=lambda queue: begins_at(queue.entry(queue.end - 1)), reverse=True)
        hints: list[PhysicalOffset] = []
        for queue in queues[:_HINTS_MAX]:
            # A queue that lacks a file gives no hint.
            with contextlib.suppress(StoreDamagedError):
                too_new = self._first_too_new(queue)
                if too_new > queue.first:
                    hints.append(PhysicalOffset(begins_at(queue.entry(too_new - 1))))
        return sorted(hints, reverse=True)

    def _first_too_new(self, queue: ReadOnlyQueue) -> int:
        return first_where(
            queue.first, queue.end, lambda number: self._is_too_new(queue.entry(number))
        )

    def _is_too_new(self, entry: Entry) -> bool:
        physical_offset = begins_at(entry)
        if physical_offset < self.log.start:
            return False
        if physical_offset < self.log.room_end and self.log.find_file(physical_offset) is None:
            # A file is missing, but not the last one.
            return False
        found = self.log.record_at(physical_offset, self.log.room_end)
        if found is None:
            return True
        return not self.state.is_clean and found[1] >= self.state.checkpoint.log_ms
