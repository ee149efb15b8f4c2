"""Records of one queue in the log that may not be visible yet.

They are found by walking over the log. A slave has those that its master does not show yet; whoever
is about to make it the master wants to know them.

Threads: any; the log may grow meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from orbitmq.errors import StoreDamagedError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.record.codec import walk
from orbitmq.record.decode import Verdict
from orbitmq.store.index.consume_queue import ENTRY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.store.log.commit_log import CommitLog

# Larger than any record; in steps, so that other threads get their turns.
_STEP_BYTES: Final = 16 * 1024 * 1024


def record_places(
    log: CommitLog, start: int, end: int, topic: str, queue_id: int
) -> Iterator[PhysicalOffset]:
    """Where the records of a queue between two offsets of the log begin, in order."""
    wanted = topic.encode(), queue_id
    at = start
    while at < end and (file := log.file_at(at)) is not None:
        first = file.first_offset
        stop = min(end, file.end_offset, at + _STEP_BYTES)
        found = walk(
            file.view,
            at - first,
            stop - first,
            first,
            check_body=False,
            delay_levels_ms=(),
            with_keys=False,
            check_places=True,
        )
        for run in found.runs.get(wanted, ()):
            for physical_offset, _, _ in ENTRY.iter_unpack(run.entries):
                yield PhysicalOffset(physical_offset)
        reached = first + found.position
        if found.stopped_by.verdict is Verdict.BLANK or stop == file.end_offset == reached:
            at = file.end_offset
        elif reached > at:
            at = reached
        else:
            raise StoreDamagedError(
                f"{file.path} at offset {at}: {found.stopped_by}",
                hint="run: orbitmq store verify",
            )
