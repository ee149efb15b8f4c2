"""Fetches what a rebalance is planned from: queues of topics, and members.

A topic that does not exist is waited for: a first message may create it, or its name is misspelt.
That is logged with the names that are nearest, and again every ten minutes.

Threads: belongs to the event loop of its consumer.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from orbitmq.client.core.consuming.assignment import GroupView, Membership
from orbitmq.errors import OrbitError, RouteNotFoundError, TopicBrokersMissingError
from orbitmq.model.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, is_retry_topic, is_system_topic
from orbitmq.model.subscriptions import BROADCASTING

if TYPE_CHECKING:
    from orbitmq.clock import Clock
    from orbitmq.model.queues import MessageQueue

log = logging.getLogger(__name__)

# How often a topic that is still missing is logged again.
REPEAT_MS: Final = 600_000
# Names compared with a misspelt one, of those whose length differs by at most this.
_COMPARED_MAX: Final = 2_000
_LENGTH_DIFFERENCE_MAX: Final = 3


class MemberCalls(Protocol):
    """Calls to brokers about the members of a group."""

    async def group_members(self, topic: str, group: str) -> list[str]:
        """Fetch the ids of the clients of a group."""


class ReadingRoutes(Protocol):
    """Routes, as consumers need them."""

    async def reading(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic."""

    async def topic_names(self) -> list[str]:
        """Look up the names of all topics."""


@dataclass(slots=True, eq=False)
class GroupViews:
    """Fetches the queues and members of all topics of a consumer."""

    _member: Membership
    _routes: ReadingRoutes
    _calls: MemberCalls
    _clock: Clock
    # When the failure of a topic was last logged.
    _warned_ms: dict[str, float] = field(default_factory=dict, init=False)

    async def fetch(self, topics: Collection[str]) -> tuple[GroupView, bool]:
        """Fetch queues and members of topics; False if a topic must be retried soon."""
        fetched = await asyncio.gather(*map(self._fetch_topic, topics))
        by_topic = dict(zip(topics, fetched, strict=True))
        for topic in self._warned_ms.keys() - by_topic.keys():
            del self._warned_ms[topic]
        view = GroupView(
            subscribed=topics,
            queues={topic: found.queues for topic, found in by_topic.items()},
            client_ids={topic: found.client_ids for topic, found in by_topic.items()},
        )
        return view, all(found.is_complete for found in fetched)

    async def _fetch_topic(self, topic: str) -> _TopicView:
        queues: list[MessageQueue] = []
        client_ids: list[str] = []
        try:
            queues = await self._routes.reading(topic)
            if self._member.model != BROADCASTING:
                client_ids = await self._calls.group_members(topic, self._member.group)
        except RouteNotFoundError as error:
            # Compat: brokers create the retry topic with the first heartbeat, or later.
            if not is_retry_topic(topic):
                await self._warn_missing(topic, error)
            return _TopicView([], [], is_complete=True)
        except OrbitError as error:
            if topic not in self._warned_ms:
                self._warned_ms[topic] = self._clock.monotonic_ms()
                log.warning(
                    "topic keeps its current queues group=%s topic=%s reason=%s",
                    self._member.group,
                    topic,
                    error,
                )
            return _TopicView(queues, [], is_complete=False)
        if self._warned_ms.pop(topic, None) is not None:
            log.info("topic is found group=%s topic=%s", self._member.group, topic)
        return _TopicView(queues, client_ids, is_complete=True)

    async def _warn_missing(self, topic: str, error: RouteNotFoundError) -> None:
        now_ms = self._clock.monotonic_ms()
        warned_ms = self._warned_ms.get(topic)
        if warned_ms is not None and now_ms - warned_ms < REPEAT_MS:
            return
        self._warned_ms[topic] = now_ms
        if isinstance(error, TopicBrokersMissingError):
            log.warning(
                "nothing is consumed, the brokers of the topic are missing group=%s topic=%s "
                "reason=%s",
                self._member.group,
                topic,
                error,
            )
            return
        log.warning(
            "nothing is consumed, the topic does not exist; waiting for it group=%s topic=%s hint=%s",
            self._member.group,
            topic,
            await self._hint(topic),
        )

    async def _hint(self, topic: str) -> str:
        try:
            names = await self._routes.topic_names()
        except OrbitError:
            names = []
        alike = islice(filter(lambda name: _may_be_meant(name, topic), names), _COMPARED_MAX)
        nearest = difflib.get_close_matches(topic, alike, n=3)
        if nearest:
            return f"did you mean {' or '.join(nearest)}?"
        return "create it, or check its name"


def _may_be_meant(name: str, topic: str) -> bool:
    return (
        abs(len(name) - len(topic)) <= _LENGTH_DIFFERENCE_MAX
        and not name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
        and not is_system_topic(name)
    )


class _TopicView(NamedTuple):
    """What is known about one topic."""

    queues: list[MessageQueue]
    client_ids: list[str]
    is_complete: bool
