"""Locks on queues, for consumers that take messages in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq import java_json
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.requests.locking import LockedQueues, QueuesToLock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.groups.lock_file import LockFile
    from orbitmq.broker.groups.queue_locks import QueueLocks
    from orbitmq.protocol.command import Command
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler


class LockRequests:
    """Gives queues to one consumer at a time."""

    def __init__(self, locks: QueueLocks, file: LockFile) -> None:
        self._locks = locks
        self._file = file

    def by_code(self) -> Mapping[int, Handler]:
        """Give the handler of each request code."""
        return {RequestCode.LOCK_BATCH_MQ: self.lock, RequestCode.UNLOCK_BATCH_MQ: self.unlock}

    async def lock(self, _: Connection, request: Command) -> Command:
        """Take or renew locks; the reply names those that were got."""
        asked = java_json.decode(request.body, QueuesToLock)
        locked = self._locks.lock(asked.consumer_group, asked.client_id, asked.queues)
        await self._file.save()
        return request.reply(body=java_json.encode(LockedQueues(queues=locked)))

    async def unlock(self, _: Connection, request: Command) -> Command:
        """Let go of locks."""
        asked = java_json.decode(request.body, QueuesToLock)
        self._locks.unlock(asked.consumer_group, asked.client_id, asked.queues)
        await self._file.save()
        return request.reply()
