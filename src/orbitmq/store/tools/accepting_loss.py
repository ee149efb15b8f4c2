"""Accepting a loss: replaces damaged bytes of the log with stand-in records.

Afterwards the log is valid again for every reader of RocketMQ's format (see `stand_ins`), and
queues keep their numbers. If no good record follows the damage, the log is cut after the last
message that a queue knows of. No readable record is ever given up.

Threads: none; the directory's lock is held.
Crash: the replaced bytes are on disk in `<root>/orbitmq/lost` before the first change. A half-done
change is damage again, and can be accepted again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orbitmq.disk import make_folder, modes_like, sync_folder
from orbitmq.errors import StoreError, StoreFormatError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.record.encode import encode_blank
from orbitmq.record.layout import BLANK_BYTES_MIN
from orbitmq.store.files.descriptor import Descriptor
from orbitmq.store.index.consume_queue import ENTRY, ENTRY_BYTES
from orbitmq.store.index.dispatcher import NO_INDEX
from orbitmq.store.index.watermark import FILE_NAME as WATERMARK_NAME
from orbitmq.store.index.watermark import Watermark
from orbitmq.store.log.stand_ins import (
    LOST_FOLDER,
    STAND_IN_BYTES_MIN,
    message_bytes_min,
    stand_in_for_bytes,
    stand_in_for_message,
)
from orbitmq.store.opening.abort_file import ABORT_NAME
from orbitmq.store.opening.directory_lock import DirectoryLock
from orbitmq.store.opening.parts import CHECKPOINT_NAME, OWN_FOLDER
from orbitmq.store.opening.progress import ProgressFile
from orbitmq.store.readonly.readonly_store import SHARED_RECORDS, ReadOnlyStore
from orbitmq.store.readonly.visible_end import Writer
from orbitmq.store.tools.damage import find_damage
from orbitmq.store.tools.record_search import next_record

if TYPE_CHECKING:
    from orbitmq.record.decode import Found
    from orbitmq.store.readonly.log_files import LogFile

# Largest stand-in, so that no reader needs more memory for it than for a message.
_STAND_IN_BYTES_MAX: Final = 1024 * 1024
_CHUNK_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LostMessage:
    """A message that a queue knows of; `offset` is -1 if no entry says where it was."""

    offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LostNumbers:
    """Consecutive messages of one queue."""

    topic: str
    queue_id: int
    first: int
    last: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What accepting a damage loses."""

    start: int
    end: int
    # What was found at its start, in words.
    reason: str
    files: list[str]
    messages: int
    queues: list[LostNumbers]
    # Bytes of no known message: records without a queue, or of queues that are lost too.
    other_bytes: int
    # Where the log ends afterwards; None if it continues after the damage.
    new_end: int | None
    # Where the damaged bytes are kept, once the loss is accepted.
    kept_in: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def accept_loss(root: Path, at: int, *, log_path: str = "", confirmed: bool) -> Loss:
    """Accept the damage that starts at a physical offset; without `confirmed`, only report it."""
    root = root.expanduser()
    if not root.is_dir():
        raise StoreError(f"{root} is not a folder", hint="name the storePathRootDir of a broker")
    lock = DirectoryLock(root)
    try:
        with ReadOnlyStore(root, log_path=log_path) as store:
            acceptance = _Acceptance(store, at)
            return acceptance.run() if confirmed else acceptance.loss()
    finally:
        lock.release()


class _Acceptance:
    """One acceptance; the lock is held."""

    def __init__(self, store: ReadOnlyStore, at: int) -> None:
        self._store = store
        self._log = store.log
        state = store.state
        self._progress = state.progress if store.written_by is Writer.ORBITMQ else None
        if self._progress is not None and self._progress.flushed > self._log.room_end:
            raise StoreError(
                f"the log was flushed up to {self._progress.flushed}, but its files end at "
                f"{self._log.room_end}",
                hint="restore the missing files from a replica or a backup",
            )
        if self._progress is not None and at >= self._progress.flushed:
            raise StoreError(
                f"offset {at} was not flushed; the log was flushed up to {self._progress.flushed}",
                hint="nothing to accept: recovery cuts such bytes off when the store is opened",
            )
        self._damage = find_damage(self._log, at)
        self._notes: list[str] = []
        self._messages = sorted(self._known_messages())
        self._new_end: int | None = None
        self._end = self._damage.end
        if self._damage.is_tail:
            last = self._messages[-1] if self._messages else None
            self._end = last.offset + last.size if last is not None else self._damage.start
            self._new_end = self._end
        else:
            self._messages += self._unplaced_messages()
        self._layout = list(self._lay_out())

    # --- what is lost -------------------------------------------------------------------------

    def _known_messages(self) -> Iterator[LostMessage]:
        """Messages in the damage, from the entries of their queues."""
        damage = self._damage
        found: list[LostMessage] = []
        for topic, queue_id in self._store.folder_keys():
            if topic.startswith(SHARED_RECORDS):
                continue
            try:
                queue = self._store.on_disk(topic, queue_id)
            except StoreFormatError as error:
                self._notes.append(f"cannot read queue {queue_id} of topic {topic!r}: {error}")
                continue
            number = int(queue.first_from(damage.start))
            while content := queue.entries(number, queue.end - number):
                for offset, size, _ in ENTRY.iter_unpack(content):
                    if not damage.start <= offset < damage.end:
                        break
                    found.append(
                        LostMessage(
                            offset=offset,
                            size=size,
                            topic=topic,
                            queue_id=queue_id,
                            queue_offset=number,
                        )
                    )
                    number += 1
                else:
                    continue
                break
        previous_end = damage.start
        for message in sorted(found):
            file = self._log.file_at(message.offset)
            message_end = message.offset + message.size
            fits = message_end <= min(damage.end, file.end_offset - BLANK_BYTES_MIN)
            if (
                message.offset < previous_end
                or not fits
                or message.size < message_bytes_min(message.topic.encode())
            ):
                self._notes.append(
                    f"message {message.queue_offset} of topic {message.topic!r} queue "
                    f"{message.queue_id} has a wrong entry; run: orbitmq store rebuild"
                )
                continue
            previous_end = message_end
            yield message

    def _unplaced_messages(self) -> list[LostMessage]:
        """Messages whose entries were not on disk yet, from the numbers around the damage."""
        queued_until = self._progress.dispatched if self._progress is not None else 0
        if self._store.state.is_clean or queued_until >= self._damage.end:
            return []
        ends: dict[tuple[str, int], int] = {}
        for key, first, count in self._runs(queued_until, self._damage.start):
            ends[key] = first + count
        lost: list[LostMessage] = []
        for key, first, count in self._runs(self._damage.end, self._log.room_end):
            ends[key] = max(ends.get(key, 0), int(self._store.on_disk(*key).end))
            if 0 < ends[key] < first:
                lost += [
                    LostMessage(offset=-1, size=0, topic=key[0], queue_id=key[1], queue_offset=n)
                    for n in range(ends[key], first)
                ]
            ends[key] = first + count
        return lost

    def _runs(self, start: int, end: int) -> Iterator[tuple[tuple[str, int], int, int]]:
        """Numbers of the records in a range: queue, first number, count."""
        start = max(start, self._log.start)
        for chunk in self._log.walk(start, end, on_damage=self._skip_damage):
            for (topic, queue_id), runs in chunk.found.runs.items():
                for run in runs:
                    count = len(run.entries) // ENTRY_BYTES
                    yield (topic.decode(errors="replace"), queue_id), run.first, count

    def _skip_damage(self, offset: PhysicalOffset, _: Found) -> PhysicalOffset:
        return PhysicalOffset(next_record(self._log, self._log.file_at(offset), offset + 1))

    def loss(self) -> Loss:
        """Report what is lost."""
        damage = self._damage
        known_bytes = sum(message.size for message in self._messages)
        end = damage.end
        if damage.is_tail:
            flushed = self._progress.flushed if self._progress is not None else 0
            end = max(damage.written_end, self._end, flushed)
        return Loss(
            start=damage.start,
            end=end,
            reason=damage.reason,
            files=[str(file.path) for file in self._files()],
            messages=len(self._messages),
            queues=_by_queue(self._messages),
            other_bytes=end - damage.start - known_bytes,
            new_end=self._new_end,
            notes=self._notes,
        )

    def _files(self) -> list[LogFile]:
        start, end = self._damage.start, self._damage.end
        return [f for f in self._log.files if f.end_offset > start and f.first_offset < end]

    # --- what replaces it ---------------------------------------------------------------------

    def _lay_out(self) -> Iterator[tuple[int, bytes]]:
        """The bytes that replace the damage, by offset."""
        placed = [message for message in self._messages if message.offset >= 0]
        unplaced = [message for message in self._messages if message.offset < 0]
        last_end = placed[-1].offset + placed[-1].size if placed else self._damage.start
        for file in self._files():
            start = max(file.first_offset, self._damage.start)
            end = min(file.end_offset, self._end)
            if start >= end:
                continue
            here = [message for message in placed if start <= message.offset < end]
            position = start
            for message in here:
                yield from self._fill(position, message.offset)
                yield message.offset, self._encode(message, message.offset, message.size)
                position = message.offset + message.size
            if position >= last_end:
                room_end = end - BLANK_BYTES_MIN if end == file.end_offset else end
                while unplaced and (size := self._room_for(unplaced[0], room_end - position)):
                    message = unplaced.pop(0)
                    yield position, self._encode(message, position, size)
                    position += size
            if end == file.end_offset:
                yield position, _blank(end - position)
            else:
                yield from self._fill(position, end)
        if unplaced:
            self._notes.append(
                f"there is no room to keep the numbers of {len(unplaced)} lost messages; their "
                "queues continue without a gap, as in RocketMQ"
            )

    @staticmethod
    def _room_for(message: LostMessage, room: int) -> int:
        """The size of a stand-in that leaves room for another one or none; 0 if none fits."""
        size = message_bytes_min(message.topic.encode())
        left = room - size
        if left < 0:
            return 0
        return room if left < STAND_IN_BYTES_MIN else size

    def _fill(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        if 0 < end - start < STAND_IN_BYTES_MIN:
            raise StoreError(
                f"{end - start} bytes at offset {start} are too few for a record: the entries of "
                "queues do not match the log",
                hint="restore the files from a replica or a backup",
            )
        while start < end:
            size = min(end - start, _STAND_IN_BYTES_MAX)
            if 0 < end - start - size < STAND_IN_BYTES_MIN:
                size -= STAND_IN_BYTES_MIN
            yield (
                start,
                stand_in_for_bytes(size, physical_offset=start, store_ms=self._damage.store_ms),
            )
            start += size

    def _encode(self, message: LostMessage, offset: int, size: int) -> bytes:
        return stand_in_for_message(
            size,
            topic=message.topic.encode(),
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            physical_offset=offset,
            store_ms=self._damage.store_ms,
        )

    # --- doing it -----------------------------------------------------------------------------

    def run(self) -> Loss:
        """Accept the loss."""
        loss = self._keep(self.loss())
        if self._damage.is_tail:
            self._prepare_cut()
        for file in self._files():
            descriptor = Descriptor(file.path, os.O_RDWR)
            for offset, content in self._layout:
                if file.first_offset <= offset < file.end_offset:
                    descriptor.pwrite(content, offset - file.first_offset)
            if self._new_end is not None and self._new_end < file.end_offset:
                descriptor.clear(max(0, self._new_end - file.first_offset), file.file_bytes)
            descriptor.sync()
        return loss

    def _keep(self, loss: Loss) -> Loss:
        """Copy the damaged bytes aside, unchanged."""
        folder = self._store.root / OWN_FOLDER / LOST_FOLDER
        modes = modes_like(folder.parent)
        make_folder(folder, modes)
        kept: list[str] = []
        for file in self._files():
            start = max(file.first_offset, loss.start)
            if start >= loss.end:
                continue
            path = _free_path(folder, f"{start:020d}")
            target = Descriptor(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, modes)
            end = min(file.end_offset, loss.end)
            for at in range(start, end, _CHUNK_BYTES):
                target.pwrite(self._log.read(at, min(_CHUNK_BYTES, end - at)), at - start)
            target.sync()
            kept.append(str(path))
        loss = replace(loss, kept_in=kept)
        report = _free_path(folder, f"{loss.start:020d}.json")
        target = Descriptor(report, os.O_RDWR | os.O_CREAT | os.O_EXCL, modes)
        target.pwrite(json.dumps(asdict(loss), indent=2).encode(), 0)
        target.sync()
        sync_folder(folder)
        return loss

    def _prepare_cut(self) -> None:
        """Make the next opening expect the earlier end, and run recovery."""
        assert self._new_end is not None
        root, end = self._store.root, PhysicalOffset(self._new_end)
        abort = Descriptor(root / ABORT_NAME, os.O_RDWR | os.O_CREAT | os.O_TRUNC, modes_like(root))
        abort.pwrite(str(os.getpid()).encode(), 0)
        sync_folder(root)
        if self._progress is None:
            checkpoint = self._store.state.checkpoint
            checkpoint.log_ms = min(checkpoint.log_ms, self._damage.store_ms)
            checkpoint.queues_ms = min(checkpoint.queues_ms, self._damage.store_ms)
            checkpoint.index_ms = min(checkpoint.index_ms, self._damage.store_ms)
            checkpoint.write(root / CHECKPOINT_NAME)
            return
        progress_file = ProgressFile(root / OWN_FOLDER)
        # The index may point beyond the new end; opening rebuilds it.
        progress_file.write(
            replace(
                self._progress,
                flushed=end,
                dispatched=min(self._progress.dispatched, end),
                index_name=NO_INDEX,
                index_next=0,
            )
        )
        progress_file.close()
        if (root / OWN_FOLDER / WATERMARK_NAME).exists():
            Watermark(root / OWN_FOLDER, end).close()


def _by_queue(messages: list[LostMessage]) -> list[LostNumbers]:
    """Group messages with consecutive numbers."""
    keys = sorted((m.topic, m.queue_id, m.queue_offset) for m in messages)
    bounds = [0]
    for number, (before, after) in enumerate(pairwise(keys), 1):
        if before[:2] != after[:2] or before[2] + 1 != after[2]:
            bounds.append(number)
    return [
        LostNumbers(
            topic=keys[first][0],
            queue_id=keys[first][1],
            first=keys[first][2],
            last=keys[end - 1][2],
            count=end - first,
        )
        for first, end in pairwise([*bounds, len(keys)])
        if end > first
    ]


def _blank(size: int) -> bytes:
    assert size >= BLANK_BYTES_MIN
    content = bytearray(BLANK_BYTES_MIN)
    encode_blank(content, 0, size)
    return bytes(content)


def _free_path(folder: Path, name: str) -> Path:
    number = 1
    path = folder / name
    while path.exists():
        number += 1
        path = folder / f"{name}-{number}"
    return path
