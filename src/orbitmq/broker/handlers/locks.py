"""Lock requests: queues locked by consumers that consume in order.

Only queues that exist are locked, for groups that exist or of which the client is a member: clients
send a heartbeat before they lock. Other queues are not in the reply, as if another client had them.

A member that does not get all it asked for is notified, like one whose group changed, when a lock of
its group is released: clients then ask again at once instead of a second or twenty later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq import java_json
from orbitmq.broker.groups.members import CLIENT_ID_LENGTH_MAX
from orbitmq.broker.groups.queue_locks import TRUST_MS
from orbitmq.errors import GroupRefusedError
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.requests.locking import BODY_TOLERATED_BYTES_MAX, LockedQueues, QueuesToLock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orbitmq.broker.groups.group_table import GroupTable
    from orbitmq.broker.groups.lock_file import LockFile
    from orbitmq.broker.groups.members import Members
    from orbitmq.broker.groups.notices import MemberNotices
    from orbitmq.broker.groups.queue_locks import QueueLocks
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.protocol.command import Command
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler


# The queues of one client on one broker; each takes about 3 µs on the event loop.
QUEUES_PER_REQUEST_MAX: Final = 10_000


@dataclass(slots=True, eq=False, kw_only=True)
class LockRequests:
    """Locks each queue for one consumer at a time."""

    broker_name: str
    topics: TopicTable
    groups: GroupTable
    members: Members
    locks: QueueLocks
    notices: MemberNotices
    file: LockFile

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
            RequestCode.LIST_QUEUE_LOCKS: self.list_all,
        }

    async def lock(self, connection: Connection, request: Command) -> Command:
        """Take or renew locks; the reply lists the queues that the client now holds."""
        asked = _decode(request)
        if self.members.client_id(connection, asked.consumer_group) is None:
            self.groups.require(asked.consumer_group)
        locked = self.locks.lock(
            asked.consumer_group,
            asked.client_id,
            self._existing(asked),
            trust_ms=TRUST_MS if asked.trust_ms is None else asked.trust_ms,
        )
        group = self.members.groups.get(asked.consumer_group)
        if group is not None and len(locked) < len(asked.queues):
            group.note_lock_wait(connection)
        await self.file.save()
        # Perf: java_json takes 10 µs a queue, and writes the same.
        return request.reply(body=msgspec.json.encode(LockedQueues(queues=locked)))

    async def unlock(self, _: Connection, request: Command) -> Command:
        """Release locks."""
        asked = _decode(request)
        group = asked.consumer_group
        if self.locks.unlock(group, asked.client_id, asked.queues):
            self.notices.send([self.members.take_lock_waiters(group)])
        await self.file.save()
        return request.reply()

    async def list_all(self, _: Connection, request: Command) -> Command:
        """Return the owners of all locks."""
        return request.reply(body=await self.file.content())

    def _existing(self, asked: QueuesToLock) -> Iterator[MessageQueue]:
        """The queues that this broker has, with names of its own: those of the request are dropped."""
        for queue in asked.queues:
            topic = self.topics.get(queue.topic)
            if (
                topic is not None
                and queue.broker_name == self.broker_name
                and 0 <= queue.queue_id < topic.read_queues
            ):
                yield MessageQueue(
                    topic=topic.name, broker_name=self.broker_name, queue_id=queue.queue_id
                )


def _decode(request: Command) -> QueuesToLock:
    # Clients write standard JSON; mending other text would take up to 0.2 s.
    asked = java_json.decode(
        request.body, QueuesToLock, tolerated_bytes_max=BODY_TOLERATED_BYTES_MAX
    )
    if len(asked.queues) > QUEUES_PER_REQUEST_MAX:
        raise GroupRefusedError(
            f"{len(asked.queues)} queues in one request are more than {QUEUES_PER_REQUEST_MAX}",
            hint="lock them in several requests, or add members to the group",
        )
    if not 0 < len(asked.client_id) <= CLIENT_ID_LENGTH_MAX:
        raise GroupRefusedError(
            f"a client id of {len(asked.client_id)} characters cannot lock queues",
            hint=f"it has 1 to {CLIENT_ID_LENGTH_MAX} characters",
        )
    return asked
