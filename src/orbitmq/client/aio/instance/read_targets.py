"""Which broker of its group each queue is read from: the master or a slave.

Each reply suggests one for the next read. While the master does not answer, or no name server lists
it, a slave is read; it leads back to the master once that is alive.

Threads: one event loop.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from orbitmq.client.aio.instance.broker_calls import NO_ANSWER, PullStatus
from orbitmq.errors import BrokerUnknownError, OrbitError
from orbitmq.model.routes import MASTER_ID

if TYPE_CHECKING:
    from orbitmq.client.aio.instance.broker_calls import Pulled
    from orbitmq.client.aio.instance.routes import Routes
    from orbitmq.model.queues import MessageQueue

# Compat: RocketMQ's slaves answer at once, without messages, if they are behind the consumer or
# their master is alive. If the client has nobody else to ask, it would ask in a loop.
SLAVE_PAUSE_MS: Final = 1_000


class ReadTarget(NamedTuple):
    """The broker that a queue is read from."""

    address: str
    is_slave: bool


class ReadTargets:
    """Chooses the broker that each queue is read from."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        # By queue, the broker of its group that the last reply suggested.
        self._suggested: dict[MessageQueue, int] = {}

    async def choose(self, queue: MessageQueue) -> ReadTarget:
        """Return where to read a queue, looking up the route if its broker is unknown."""
        found = self._find(queue)
        if found is None:
            await self._routes.refresh(queue.topic)
            found = self._find(queue)
        if found is None:
            raise BrokerUnknownError(queue.broker_name, topic=queue.topic)
        return found

    def forget(self, queue: MessageQueue) -> None:
        """Drop what was suggested for a queue: the next read goes to the master."""
        self._suggested.pop(queue, None)

    async def note_reply(
        self, queue: MessageQueue, target: ReadTarget, offset: int, pulled: Pulled
    ) -> float:
        """Record a reply to a read from an offset; returns how long to wait before the next."""
        self._suggested[queue] = pulled.suggested_broker_id
        if (
            not target.is_slave
            or pulled.status is not PullStatus.NO_MATCH
            or pulled.next_offset > offset
            or self._find(queue) != target
        ):
            return 0
        # The slave is behind, or knows that the master is back.
        self._routes.silent.heard(self._routes.master_of(queue.broker_name))
        await self._look_up(queue)
        return SLAVE_PAUSE_MS if self._find(queue) == target else 0

    async def note_failure(
        self, queue: MessageQueue, target: ReadTarget, error: OrbitError
    ) -> bool:
        """Record that a read failed; returns whether another broker can be asked at once."""
        self.forget(queue)
        if isinstance(error, NO_ANSWER):
            self._routes.silent.note(target.address)
            await self._look_up(queue)
        elif target.is_slave:
            # It may not allow reading, or not know the topic yet.
            self._routes.silent.heard(self._routes.master_of(queue.broker_name))
            return False
        found = self._find(queue)
        return found is not None and found.address != target.address

    def _find(self, queue: MessageQueue) -> ReadTarget | None:
        broker_id = self._suggested.get(queue, MASTER_ID)
        found = self._routes.address_of(queue.broker_name, broker_id)
        return None if found is None else ReadTarget(*found)

    async def _look_up(self, queue: MessageQueue) -> None:
        with suppress(OrbitError):
            await self._routes.refresh(queue.topic)
