"""Lowers what the broker keeps about a log that was cut.

    committed offsets    to the ends of the queues, so that groups get what the new master stores there
    commits of clients   forgotten: they say what was consumed of the old log
    delay progress       forgotten: what it says was delivered may be cut, and the master's is copied

Threads: the event loop's; files are written off it.
Crash: the store says that it was cut until all of this is on disk; the next start repeats it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.disk import off_loop

if TYPE_CHECKING:
    from orbitmq.broker.delay.progress import DelayProgress
    from orbitmq.broker.groups.committed_offsets import CommittedOffsets
    from orbitmq.store.message_store import MessageStore

log = logging.getLogger(__name__)


async def lower_after_cut(
    store: MessageStore, offsets: CommittedOffsets, delays: DelayProgress
) -> None:
    """Lower what is above the end of a log that was cut; does nothing if none was."""
    if store.was_cut is None:
        return
    queues = await off_loop(store.appended_queues)
    ends = {(queue.topic, queue.queue_id): queue.end for queue in queues}
    offsets.lower_to_ends(lambda topic, queue_id: ends.get((topic, queue_id), 0))
    offsets.forget_commits(offsets.commits_here)
    await offsets.save()
    await delays.forget()
    await off_loop(store.forget_cut)
