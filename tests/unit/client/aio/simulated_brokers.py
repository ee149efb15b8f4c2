"""Brokers and routes of one group, in memory, with their failures, for rebalancing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from orbitmq.errors import ConnectError, RemoteError, RouteNotFoundError
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.codes import ResponseCode


def queue(queue_id: int, topic: str = "orders", broker_name: str = "broker-a") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)


def queues(count: int, topic: str = "orders", broker_name: str = "broker-a") -> list[MessageQueue]:
    return [queue(number, topic, broker_name) for number in range(count)]


class SimulatedBrokers:
    """What the brokers of a cluster know; those whose names are in `down` do not answer."""

    def __init__(self, **topics: list[MessageQueue]) -> None:
        self.topics = dict(topics)
        self.client_ids = ["c1"]
        self.committed: dict[MessageQueue, int] = {}
        self.oneway_commits: list[MessageQueue] = []
        self.has_only_slaves = False
        self.begun_commits: list[tuple[MessageQueue, int]] = []
        self._commits_go_on = asyncio.Event()
        self._commits_go_on.set()
        self.locks: dict[MessageQueue, str] = {}
        self._renewed: set[MessageQueue] = set()
        self.trusted_ms: int | None = None
        self.down: set[str] = set()
        self.deleted: set[str] = set()
        self.calls: list[str] = []

    def hold_commits(self) -> None:
        """Hold all commits until they are released."""
        self._commits_go_on.clear()

    def release_commits(self) -> None:
        self._commits_go_on.set()

    def _answer(self, call: str, broker_name: str) -> None:
        if broker_name in self.down:
            raise ConnectError(broker_name, "it is down")
        self.calls.append(call)

    async def reading(self, topic: str) -> list[MessageQueue]:
        if "name server" in self.down:
            raise ConnectError("name server", "it is down")
        if topic not in self.topics:
            raise RouteNotFoundError(
                ResponseCode.TOPIC_NOT_EXIST, "no topic", call="route", address="name server"
            )
        return self.topics[topic]

    async def topic_names(self) -> list[str]:
        return [*self.topics]

    async def group_members(self, topic: str, _group: str) -> list[str]:
        self._answer("members", self.topics[topic][0].broker_name)
        return list(self.client_ids)

    async def lock(
        self,
        broker_name: str,
        _group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        *,
        trust_ms: int,
    ) -> set[MessageQueue]:
        self.trusted_ms = trust_ms
        self._answer("lock", broker_name)
        given = {one for one in queues if self.locks.setdefault(one, client_id) == client_id}
        self._renewed |= given
        return given

    def expire_locks(self) -> None:
        """Drop the locks that nobody has renewed since the last call."""
        self.locks = {one: holder for one, holder in self.locks.items() if one in self._renewed}
        self._renewed = set()

    async def unlock(
        self, broker_name: str, _group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> None:
        self._answer("unlock", broker_name)
        for one in queues:
            if self.locks.get(one) == client_id:
                del self.locks[one]

    async def committed_offset(self, queue: MessageQueue, _group: str) -> int | None:
        self._answer("committed", queue.broker_name)
        return self.committed.get(queue)

    async def commit_offset(
        self, queue: MessageQueue, _group: str, offset: int, *, oneway: bool = True
    ) -> bool:
        self._answer("commit", queue.broker_name)
        self.begun_commits.append((queue, offset))
        await self._commits_go_on.wait()
        if queue.topic in self.deleted:
            raise RemoteError(
                ResponseCode.TOPIC_NOT_EXIST, "no topic", call="commit", address=queue.broker_name
            )
        self.committed[queue] = offset
        if oneway:
            self.oneway_commits.append(queue)
        return not self.has_only_slaves

    async def min_offset(self, queue: MessageQueue) -> int:
        self._answer("min", queue.broker_name)
        return 10

    async def max_offset(self, queue: MessageQueue, *, at_master: bool = False) -> int:
        assert at_master, "a slave may lag"
        self._answer("max", queue.broker_name)
        return 90

    async def offset_at(
        self, queue: MessageQueue, timestamp_ms: int, *, at_master: bool = False
    ) -> int:
        assert at_master, "a slave may lag"
        self._answer("time", queue.broker_name)
        return timestamp_ms // 1000
