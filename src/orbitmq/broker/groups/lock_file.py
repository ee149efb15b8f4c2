"""Owners of queue locks on disk, so that a restart does not give a lock away.

A Java client trusts its lock for 30 s without contact with the broker. A broker that forgot the lock
would give the queue to another client meanwhile, and both would consume it, out of order.

File layout, JSON: [[group, broker name, topic, queue id, client id], …]

Threads: the event loop's; the file is written off it, by one write at a time.
Crash: the file is replaced whole. It is not synced: after a power failure a machine takes longer to
come back than any client trusts its lock.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.disk import PRIVATE, FileModes, make_folder, off_loop, open_file
from orbitmq.model.queues import MessageQueue

if TYPE_CHECKING:
    from orbitmq.broker.groups.queue_locks import QueueLocks

log = logging.getLogger(__name__)

FILE_NAME: Final = "queue_locks"
_Row = tuple[str, str, str, int, str]


class LockFile:
    """Saves and restores the owners of locks."""

    def __init__(self, folder: Path, locks: QueueLocks, modes: FileModes = PRIVATE) -> None:
        self._modes = modes
        self._path = folder / FILE_NAME
        self._locks = locks
        self._saved_changes = 0
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """Restore the locks; a file that cannot be read is ignored."""
        try:
            rows = msgspec.json.decode(await off_loop(self._path.read_bytes), type=list[_Row])
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("queue locks not restored file=%s reason=%s", self._path, error)
            return
        for group, broker_name, topic, queue_id, client_id in rows:
            queue = MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)
            self._locks.restore(group, queue, client_id)
        self._saved_changes = self._locks.changes

    async def save(self) -> None:
        """Write the owners, if they changed; concurrent callers share a write."""
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
                await off_loop(_replace, self._path, msgspec.json.encode(rows), self._modes)
            except OSError as error:
                log.warning("queue locks not saved file=%s reason=%s", self._path, error)
            self._saved_changes = changes


def _replace(path: Path, content: bytes, modes: FileModes) -> None:
    make_folder(path.parent, modes)
    temporary = path.with_name(f".{path.name}.tmp")
    with os.fdopen(
        open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, modes), "wb"
    ) as file:
        file.write(content)
    temporary.replace(path)
