"""Reads the dead letters of consumer groups."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from orbitmq.client.core.dead_letters import DeadLetter
from orbitmq.errors import OrbitError, RemoteError, RouteNotFoundError
from orbitmq.model.names import DEAD_LETTER_PREFIX, dead_letter_topic
from orbitmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.client.aio.admin.messages import Messages
    from orbitmq.client.aio.admin.topics import Topics

_END_OF_TIME_MS: Final = 2**62


class DeadLetterCount(NamedTuple):
    """How many dead letters a group has, and when the newest was stored."""

    group: str
    letters: int
    newest_ms: int


@dataclass(slots=True, eq=False)
class DeadLetters:
    """Finds messages that groups gave up on."""

    _topics: Topics
    _messages: Messages

    async def counts(self) -> list[DeadLetterCount]:
        """Return how many dead letters each group has; groups without any are left out."""
        counts: list[DeadLetterCount] = []
        for topic in await self._topics.names():
            if topic.startswith(DEAD_LETTER_PREFIX):
                bounds = (await self._topics.bounds(topic)).values()
                count = sum(queue.max_offset - queue.min_offset for queue in bounds)
                if count:
                    newest_ms = max(queue.last_update_ms for queue in bounds)
                    group = topic.removeprefix(DEAD_LETTER_PREFIX)
                    counts.append(DeadLetterCount(group, count, newest_ms))
        return counts

    async def find(
        self,
        group: str,
        *,
        begin_ms: int = 0,
        end_ms: int = _END_OF_TIME_MS,
        key: str = "",
        cause: str = "",
    ) -> AsyncIterator[DeadLetter]:
        """Yield the dead letters of a group, queue by queue, oldest first.

        Args:
            group: the consumer group.
            begin_ms: only those that became dead letters at this time or later.
            end_ms: only those that became dead letters at this time or before.
            key: only those with this key or id.
            cause: only those whose cause contains this text, in any case.
        """
        try:
            between = self._messages.between(dead_letter_topic(group), begin_ms, end_ms)
            async for message in between:
                letter = DeadLetter(message)
                if letter.matches(key=key, cause=cause):
                    yield letter
        except RouteNotFoundError:
            # The topic is made with the first dead letter.
            return
        except RemoteError as error:
            if error.code != ResponseCode.NO_PERMISSION:
                raise
            raise OrbitError(
                f"the dead letters of group {group!r} cannot be read: {error.remark}",
                hint=f"allow it with: orbitmq topic permit {dead_letter_topic(group)} rw",
            ) from error

    async def by_ids(self, group: str, ids: Collection[str]) -> list[DeadLetter]:
        """Return dead letters of a group by their ids, oldest first in each queue."""
        topic = dead_letter_topic(group)
        found: dict[str, DeadLetter] = {}
        try:
            for one in ids:
                for message in await self._messages.all_by_id(topic, one):
                    found[message.offset_message_id] = DeadLetter(message)
        except RouteNotFoundError:
            return []
        known = {one for letter in found.values() for one in letter.ids}
        if missing := set(ids) - known:
            # The index may be off, or lack them.
            async for letter in self.find(group):
                if not missing.isdisjoint(letter.ids):
                    found[letter.message.offset_message_id] = letter
        return sorted(
            found.values(),
            key=lambda letter: (
                letter.message.queue.broker_name,
                letter.message.queue_id,
                letter.message.queue_offset,
            ),
        )
