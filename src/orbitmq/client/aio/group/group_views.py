"""Asks where the topics of a consumer are, and who else consumes them.

Threads: belongs to the event loop of its consumer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple, Protocol

from orbitmq.client.core.consuming.assignment import GroupView
from orbitmq.errors import OrbitError, RouteNotFoundError
from orbitmq.model.names import is_retry_topic
from orbitmq.model.subscriptions import BROADCASTING

if TYPE_CHECKING:
    from orbitmq.client.core.consuming.assignment import Membership
    from orbitmq.model.queues import MessageQueue

log = logging.getLogger(__name__)


class MemberCalls(Protocol):
    """Calls to brokers about the members of a group."""

    async def group_members(self, topic: str, group: str) -> list[str]:
        """Ask for the ids of the clients of a group."""


class ReadingRoutes(Protocol):
    """Routes, as consumers need them."""

    async def reading(self, topic: str) -> list[MessageQueue]:
        """Give the queues of a topic that can be read."""


class GroupViews:
    """Looks at all topics of a consumer at once."""

    def __init__(self, member: Membership, routes: ReadingRoutes, calls: MemberCalls) -> None:
        self._member = member
        self._routes = routes
        self._calls = calls
        # Topics of whose trouble the log tells already.
        self._troubled: set[str] = set()

    async def look(self, topics: Collection[str]) -> tuple[GroupView, bool]:
        """Ask for queues and members of topics; False when one has to be asked about again soon."""
        looks = await asyncio.gather(*map(self._look_at, topics))
        seen = dict(zip(topics, looks, strict=True))
        self._troubled &= seen.keys()
        view = GroupView(
            subscribed=topics,
            queues={topic: look.queues for topic, look in seen.items()},
            client_ids={topic: look.client_ids for topic, look in seen.items()},
        )
        return view, all(look.is_complete for look in looks)

    async def _look_at(self, topic: str) -> _Look:
        queues: list[MessageQueue] = []
        client_ids: list[str] = []
        try:
            queues = await self._routes.reading(topic)
            if self._member.model != BROADCASTING:
                client_ids = await self._calls.group_members(topic, self._member.group)
        except RouteNotFoundError as error:
            # Compat: brokers make the topic of retries with the first heartbeat, or later.
            if not is_retry_topic(topic):
                self._warn_once(topic, error)
            return _Look([], [], is_complete=True)
        except OrbitError as error:
            self._warn_once(topic, error)
            return _Look(queues, [], is_complete=False)
        self._troubled.discard(topic)
        return _Look(queues, client_ids, is_complete=True)

    def _warn_once(self, topic: str, error: OrbitError) -> None:
        if topic not in self._troubled:
            self._troubled.add(topic)
            log.warning(
                "queues of topic stay as they are group=%s topic=%s reason=%s",
                self._member.group,
                topic,
                error,
            )


class _Look(NamedTuple):
    """What could be learned of one topic."""

    queues: list[MessageQueue]
    client_ids: list[str]
    is_complete: bool
