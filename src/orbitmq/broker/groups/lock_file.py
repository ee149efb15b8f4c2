"""Who has which queue locked, kept so that a restart does not give it to another.

A Java client trusts its lock for 30 s without hearing of the broker. A broker that forgot it would
lock the queue for another client meanwhile, and two would consume it at once, out of order.

File layout, JSON: [[group, broker name, topic, queue id, client id], …]

Threads: the event loop's; the file is written off it, by one write at a time.
Crash: the file is replaced whole. It is not synced: a machine that lost its power takes longer to
come back than any client trusts its lock.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.disk import off_loop
from orbitmq.model.queues import MessageQueue

if TYPE_CHECKING:
    from orbitmq.broker.groups.queue_locks import QueueLocks

log = logging.getLogger(__name__)

FILE_NAME: Final = "queue_locks"
_Row = tuple[str, str, str, int, str]


class LockFile:
    """Keeps the owners of locks on disk."""

    def __init__(self, folder: Path, locks: QueueLocks) -> None:
        self._path = folder / FILE_NAME
        self._locks = locks
        self._saved_changes = 0
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """Give the locks back to those who had them; a file that cannot be read is left out."""
        try:
            rows = msgspec.json.decode(await off_loop(self._path.read_bytes), type=list[_Row])
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("locks of queues are forgotten file=%s reason=%s", self._path, error)
            return
        for group, broker_name, topic, queue_id, client_id in rows:
            queue = MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)
            self._locks.restore(group, queue, client_id)
        self._saved_changes = self._locks.changes

    async def save(self) -> None:
        """Write who has what, if that changed; many who wait share a write."""
        wanted = self._locks.changes
        if wanted == self._saved_changes:
            return
        async with self._writing:
            if self._saved_changes >= wanted:
                return
            changes = self._locks.changes
            rows: list[_Row] = [
                (group, queue.broker_name, queue.topic, queue.queue_id, client_id)
                for group, queue, client_id in self._locks.owners()
            ]
            try:
                await off_loop(_replace, self._path, msgspec.json.encode(rows))
            except OSError as error:
                log.warning("locks of queues are not kept file=%s reason=%s", self._path, error)
            self._saved_changes = changes


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)
