"""The queue locks that an ordered consumer holds at brokers.

Threads: belongs to the event loop of its consumer. Only one lock operation runs at a time, so that
a renewal never overtakes an unlock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from orbitmq.errors import OrbitError
from orbitmq.model.queues import MessageQueue, by_broker

if TYPE_CHECKING:
    from orbitmq.client.core.consuming.assignment import Membership

log = logging.getLogger(__name__)


class LockCalls(Protocol):
    """Calls to brokers about locks."""

    async def lock(
        self,
        broker_name: str,
        group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        *,
        trust_ms: int,
    ) -> set[MessageQueue]:
        """Lock queues or renew their locks; returns the queues that the client now holds."""

    async def unlock(
        self, broker_name: str, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> None:
        """Unlock queues."""


@dataclass(slots=True, eq=False)
class MemberLocks:
    """The locks of one consumer."""

    _member: Membership
    _calls: LockCalls
    _held: set[MessageQueue] = field(default_factory=set, init=False)
    _step_lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    @property
    def held(self) -> AbstractSet[MessageQueue]:
        """The locked queues, as far as the client knows."""
        return frozenset(self._held)

    async def lock(self, queues: Collection[MessageQueue]) -> None:
        """Lock those queues that no other client holds."""
        async with self._step_lock:
            given, _refused = await self._ask(queues)
            self._held |= given

    async def renew(self) -> tuple[AbstractSet[MessageQueue], AbstractSet[MessageQueue]]:
        """Renew all locks; returns the renewed queues, and those that another client now holds.

        Queues of a broker that does not answer are in neither set: they may still be locked.
        """
        async with self._step_lock:
            renewed, lost = await self._ask(self._held)
            self._held -= lost
            return renewed, lost

    async def unlock(self, queues: AbstractSet[MessageQueue]) -> None:
        """Unlock those of these queues that are locked; stays locked what a broker did not unlock."""
        async with self._step_lock:
            parts = by_broker(queues & self._held)
            await asyncio.gather(*(self._unlock_at(name, part) for name, part in parts.items()))

    async def _unlock_at(self, broker_name: str, queues: list[MessageQueue]) -> None:
        member = self._member
        try:
            await self._calls.unlock(broker_name, member.group, member.client_id, queues)
        except OrbitError as error:
            self._warn("queues not unlocked", broker_name, len(queues), error)
        else:
            self._held.difference_update(queues)

    async def _ask(
        self, queues: Collection[MessageQueue]
    ) -> tuple[set[MessageQueue], set[MessageQueue]]:
        answers = await asyncio.gather(
            *(self._ask_broker(name, part) for name, part in by_broker(queues).items())
        )
        given = {queue for answer in answers for queue in answer[0]}
        refused = {queue for answer in answers for queue in answer[1]}
        return given, refused

    async def _ask_broker(
        self, broker_name: str, queues: list[MessageQueue]
    ) -> tuple[set[MessageQueue], set[MessageQueue]]:
        member, asked = self._member, set(queues)
        try:
            given = await self._calls.lock(
                broker_name,
                member.group,
                member.client_id,
                queues,
                trust_ms=member.lock_trust_ms,
            )
        except OrbitError as error:
            self._warn("queues not locked", broker_name, len(queues), error)
            return set(), set()
        return asked & given, asked - given

    def _warn(self, what: str, broker_name: str, count: int, error: OrbitError) -> None:
        log.warning(
            "%s group=%s broker=%s queues=%d reason=%s",
            what,
            self._member.group,
            broker_name,
            count,
            error,
        )
