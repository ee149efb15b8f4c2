"""Lowers what the broker keeps about a log that was cut.

    committed offsets    to the ends of the queues, so that groups get what the new master stores there
    commits of clients   forgotten: they say what was consumed of the old log
    marks of archives    to the ends of the queues, since what comes there is not archived
    delay progress       forgotten: what it says was delivered may be cut, and the master's is copied

Threads: the event loop's; files are written off it.
Crash: the store says that it was cut until all of this is on disk; the next start repeats it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.disk import off_loop

if TYPE_CHECKING:
    from orbitmq.broker.archives.archive_table import ArchiveTable
    from orbitmq.broker.delay.progress import DelayProgress
    from orbitmq.broker.groups.committed_offsets import CommittedOffsets
    from orbitmq.store.message_store import MessageStore

log = logging.getLogger(__name__)


async def ends_of(store: MessageStore) -> dict[tuple[str, int], int]:
    """Where the queues end in the log, visible or not."""
    queues = await off_loop(store.appended_queues)
    return {(queue.topic, queue.queue_id): queue.end for queue in queues}


async def lower_after_cut(
    store: MessageStore,
    offsets: CommittedOffsets,
    delays: DelayProgress,
    archives: ArchiveTable,
) -> None:
    """Lower what is above the end of a log that was cut; does nothing if none was."""
    if store.was_cut is None:
        return
    ends = await ends_of(store)
    offsets.lower_to_ends(lambda topic, queue_id: ends.get((topic, queue_id), 0))
    offsets.forget_commits(offsets.commits_here)
    await offsets.save()
    # Unlike at other starts, no later one would do it again.
    await archives.lower_to_ends(ends)
    await archives.save()
    await delays.forget()
    await off_loop(store.forget_cut)
