"""Scans of the log: which records queues and index lack.

Threads: any; below the given ends the log does not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from orbitmq.model.queues import PhysicalOffset, QueueOffset
from orbitmq.record.codec import walk
from orbitmq.store.index.consume_queue import ENTRY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.record.scan import Walk
    from orbitmq.store.index.deleted_topics import DeletedTopics
    from orbitmq.store.log.commit_log import CommitLog

# How far to look for a record with keys that the index lacks; nearly all records have some.
_LOOK_BYTES: Final = 16 * 1024 * 1024


def has_keys(log: CommitLog, after: int | None, until: int) -> bool:
    """Whether records after an offset, or from the start on, and below another have keys."""
    start = int(log.start)
    if after is not None and after >= start:
        size = log.pread(PhysicalOffset(after), 4)
        start = after + int.from_bytes(size or b"\1")
    until = min(until, start + _LOOK_BYTES)
    return any(found.keys for found in _walk(log, start, until, with_keys=True))


def ends_after(
    log: CommitLog, position: int, end: int, deleted_topics: DeletedTopics
) -> dict[tuple[str, int], QueueOffset]:
    """Where queues that follow the log to a position will end once they follow it to its end."""
    ends: dict[tuple[str, int], QueueOffset] = {}
    for found in _walk(log, position, end, with_keys=False):
        for (name, queue_id), runs in found.runs.items():
            for run in runs:
                count = len(run.entries) // ENTRY_BYTES
                if deleted_topics.count_deleted(name, run.entries) < count:
                    ends[name.decode(errors="replace"), queue_id] = QueueOffset(run.first + count)
    return ends


def firsts_after(log: CommitLog, position: int, end: int) -> dict[tuple[str, int], QueueOffset]:
    """The lowest number of each queue that has records between two offsets."""
    firsts: dict[tuple[str, int], QueueOffset] = {}
    for found in _walk(log, position, end, with_keys=False):
        for (name, queue_id), runs in found.runs.items():
            key = name.decode(errors="replace"), queue_id
            first = QueueOffset(min(run.first for run in runs))
            firsts[key] = min(first, firsts.get(key, first))
    return firsts


def _walk(log: CommitLog, position: int, end: int, *, with_keys: bool) -> Iterator[Walk]:
    while position < end and (file := log.file_at(position)) is not None:
        first = file.first_offset
        yield walk(
            file.view,
            position - first,
            min(end - first, file.file_bytes),
            first,
            check_body=False,
            delay_levels_ms=(),
            with_keys=with_keys,
        )
        position = file.end_offset
