"""Inspection: lists the contents of a store directory; can count its messages.

It changes nothing and takes no lock.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from orbitmq.errors import StoreDamagedError, StoreFormatError
from orbitmq.store.index.consume_queue import ENTRY_BYTES
from orbitmq.store.opening.abort_file import ABORT_NAME
from orbitmq.store.opening.parts import OWN_FOLDER
from orbitmq.store.reading.reserved_offsets import ReservedOffsets
from orbitmq.store.readonly.index_files import ReadOnlyIndexFile, list_index_files
from orbitmq.store.readonly.readonly_store import ReadOnlyStore

_LOCK_NAME: Final = "lock"
_LOCKS: Final = Path("/proc/locks")
# Topics that a warning names.
_NAMED_MAX: Final = 10

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFileFacts:
    """One file of the log."""

    path: str
    first_offset: int
    file_bytes: int
    # Bytes before the visible end.
    used_bytes: int
    disk_bytes: int
    modified_ms: int
    # -1 if no visible record starts in it.
    first_store_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """One queue."""

    topic: str
    queue_id: int
    start: int
    end: int
    # Entries up to here are on disk.
    disk_end: int
    # -1 if the queue has no messages left.
    first_store_ms: int
    last_store_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryQueueFacts:
    """One queue of a topic that is kept in memory."""

    topic: str
    queue_id: int
    # Where it resumes after a crash; after a clean stop, where it ended.
    reserved_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFileFacts:
    """One file of the key index."""

    path: str
    file_bytes: int
    keys: int
    begin_ms: int
    end_ms: int
    begin_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFacts:
    """The contents of the small files."""

    written_by: str
    # Neither open in a broker nor left by a crash.
    is_clean: bool
    # The process that has the store open; None if no process has, or it is unknown.
    locked_by: int | None
    abort_pid: str
    watermark: int | None
    flushed_mark: int | None
    dispatched_mark: int | None
    checkpoint_log_ms: int
    checkpoint_queues_ms: int
    checkpoint_index_ms: int


@dataclass(slots=True, kw_only=True)
class Counts:
    """What a scan counted."""

    records: int = 0
    record_bytes: int = 0
    queued: Counter[str] = field(default_factory=Counter)  # by topic
    # Half and rolled-back messages of transactions, which have no entry in a queue.
    unqueued: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """Everything an inspection found."""

    root: str
    state: StateFacts
    log_start: int
    log_end: int
    log_file_bytes: int
    log_files: tuple[LogFileFacts, ...]
    first_store_ms: int
    last_store_ms: int
    topics: tuple[str, ...]
    queues: tuple[QueueFacts, ...]
    # None of their messages is in a file.
    memory_queues: tuple[MemoryQueueFacts, ...]
    index_files: tuple[IndexFileFacts, ...]
    strange_files: tuple[str, ...]
    unreadable: tuple[str, ...]
    # What to know before a broker of the other kind opens the store.
    warnings: tuple[str, ...]
    counts: Counts | None = None


def inspect(
    store: ReadOnlyStore,
    *,
    with_counts: bool = False,
    on_progress: OnProgress = lambda _done, _total: None,
) -> Inspection:
    """Inspect a store; `with_counts` scans its log."""
    unreadable: list[str] = []
    queues = _queues(store, unreadable)
    memory_queues = _memory_queues(store.root, queues, unreadable)
    index_files, strange_files = _index_files(store.root, unreadable)
    log_files = tuple(_log_file(store, number) for number in range(len(store.log.files)))
    times = [queue.last_store_ms for queue in queues]
    firsts = [file.first_store_ms for file in log_files if file.first_store_ms >= 0]
    return Inspection(
        root=str(store.root),
        state=_state(store),
        log_start=store.start,
        log_end=store.end,
        log_file_bytes=store.log.file_bytes,
        log_files=log_files,
        first_store_ms=firsts[0] if firsts else -1,
        last_store_ms=max([*times, *firsts[-1:]], default=-1),
        topics=tuple(sorted({queue.topic for queue in queues})),
        queues=queues,
        memory_queues=memory_queues,
        index_files=index_files,
        strange_files=tuple(str(path) for path in (*store.log.strange_files, *strange_files)),
        unreadable=tuple(unreadable),
        warnings=_warnings(memory_queues),
        counts=_count(store, on_progress) if with_counts else None,
    )


def lock_holder(root: Path) -> int | None:
    """The process that holds the directory's lock; None if there is none or it is unknown.

    Read from the system's table of locks: opening and closing the lock file would release the lock
    if this process holds it.
    """
    try:
        status = (root / _LOCK_NAME).stat()
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return None
    device = status.st_dev
    wanted = f"{os.major(device):02x}:{os.minor(device):02x}:{status.st_ino}"
    for line in lines:
        fields = line.split()
        if wanted in fields and not {"POSIX", "OFDLCK"}.isdisjoint(fields):
            holder = int(fields[fields.index(wanted) - 1])
            # An OrbitMQ broker locks the open file, and the system lists no process for that.
            return holder if holder > 0 else _process_in(root / ABORT_NAME)
    return None


def _process_in(abort: Path) -> int | None:
    """The process that opened the store, from its abort file."""
    try:
        return int(abort.read_text())
    except (OSError, ValueError):
        return None


def _state(store: ReadOnlyStore) -> StateFacts:
    state = store.state
    abort = store.root / ABORT_NAME
    progress = state.progress
    return StateFacts(
        written_by=state.written_by.value,
        is_clean=state.is_clean,
        locked_by=lock_holder(store.root),
        abort_pid=abort.read_text(errors="replace").strip() if abort.is_file() else "",
        watermark=state.watermark,
        flushed_mark=progress.flushed if progress is not None else None,
        dispatched_mark=progress.dispatched if progress is not None else None,
        checkpoint_log_ms=state.checkpoint.log_ms,
        checkpoint_queues_ms=state.checkpoint.queues_ms,
        checkpoint_index_ms=state.checkpoint.index_ms,
    )


def _log_file(store: ReadOnlyStore, number: int) -> LogFileFacts:
    file = store.log.files[number]
    found = store.log.record_at(file.first_offset, store.end)
    return LogFileFacts(
        path=str(file.path),
        first_offset=file.first_offset,
        file_bytes=file.file_bytes,
        used_bytes=min(max(store.end - file.first_offset, 0), file.file_bytes),
        disk_bytes=file.path.stat().st_blocks * 512,
        modified_ms=file.modified_ms,
        first_store_ms=found[1] if found is not None else -1,
    )


def _queues(store: ReadOnlyStore, unreadable: list[str]) -> tuple[QueueFacts, ...]:
    found: list[QueueFacts] = []
    for topic, queue_id in store.queue_keys():
        try:
            bounds = store.bounds(topic, queue_id)
            disk_end = store.on_disk(topic, queue_id).end
        except StoreFormatError as error:
            unreadable.append(str(error))
            continue
        is_empty = bounds.start == bounds.end
        found.append(
            QueueFacts(
                topic=topic,
                queue_id=queue_id,
                start=bounds.start,
                end=bounds.end,
                disk_end=disk_end,
                first_store_ms=-1 if is_empty else store.store_ms(topic, queue_id, bounds.start),
                last_store_ms=-1 if is_empty else store.store_ms(topic, queue_id, bounds.end - 1),
            )
        )
    return tuple(found)


def _memory_queues(
    root: Path, queues: tuple[QueueFacts, ...], unreadable: list[str]
) -> tuple[MemoryQueueFacts, ...]:
    try:
        reserved = ReservedOffsets(root / OWN_FOLDER)
    except StoreDamagedError as error:
        unreadable.append(str(error))
        return ()
    on_disk = {(queue.topic, queue.queue_id): queue.end for queue in queues}
    return tuple(
        MemoryQueueFacts(topic=topic, queue_id=queue_id, reserved_end=bound)
        for (topic, queue_id), bound in sorted(reserved.bounds.items())
        # A queue that moved to disk continues there.
        if not (topic in reserved.on_disk and on_disk.get((topic, queue_id), 0) > 0)
    )


def _warnings(memory_queues: tuple[MemoryQueueFacts, ...]) -> tuple[str, ...]:
    topics = sorted({queue.topic for queue in memory_queues})
    if not topics:
        return ()
    more = f" and {len(topics) - _NAMED_MAX} more" if len(topics) > _NAMED_MAX else ""
    return (
        f"kept in memory: {', '.join(topics[:_NAMED_MAX])}{more}; a Java broker would start their "
        "queues at offset 0, or where messages on disk end, and consumers that committed higher "
        "offsets would miss messages there",
    )


def _index_files(
    root: Path, unreadable: list[str]
) -> tuple[tuple[IndexFileFacts, ...], list[Path]]:
    paths, strange_files = list_index_files(root / "index")
    found: list[IndexFileFacts] = []
    for path in paths:
        try:
            file = ReadOnlyIndexFile.open(path)
        except StoreFormatError as error:
            unreadable.append(str(error))
            continue
        found.append(
            IndexFileFacts(
                path=str(path),
                file_bytes=file.file_bytes,
                keys=file.next_number - 1,
                begin_ms=file.begin_ms,
                end_ms=file.end_ms,
                begin_offset=file.begin_offset,
                end_offset=file.end_offset,
            )
        )
    return tuple(found), strange_files


def _count(store: ReadOnlyStore, on_progress: OnProgress) -> Counts:
    counts = Counts()
    for chunk in store.log.walk(store.start, store.end):
        found = chunk.found
        counts.records += found.records
        counts.record_bytes += found.position
        queued = 0
        for (topic, _), runs in found.runs.items():
            entries = sum(len(run.entries) for run in runs) // ENTRY_BYTES
            counts.queued[topic.decode(errors="replace")] += entries
            queued += entries
        counts.unqueued += found.records - queued
        on_progress(chunk.offset + found.position - store.start, store.end - store.start)
    return counts
