"""Lock requests: queues locked by consumers that consume in order."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(slots=True, eq=False)
class LockRequests:
    """Locks each queue for one consumer at a time."""

    locks: QueueLocks
    file: LockFile

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {RequestCode.LOCK_BATCH_MQ: self.lock, RequestCode.UNLOCK_BATCH_MQ: self.unlock}

    async def lock(self, _: Connection, request: Command) -> Command:
        """Take or renew locks; the reply lists the queues that the client now holds."""
        asked = java_json.decode(request.body, QueuesToLock)
        locked = self.locks.lock(asked.consumer_group, asked.client_id, asked.queues)
        await self.file.save()
        return request.reply(body=java_json.encode(LockedQueues(queues=locked)))

    async def unlock(self, _: Connection, request: Command) -> Command:
        """Release locks."""
        asked = java_json.decode(request.body, QueuesToLock)
        self.locks.unlock(asked.consumer_group, asked.client_id, asked.queues)
        await self.file.save()
        return request.reply()
