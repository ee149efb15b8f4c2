"""Which filter class a group filters a topic by.

A pull of our clients names it. Java's clients do not: they upload the class to every filter server
of the route (302) when they subscribe, and every 30 s. Its source is dropped unread: code from the
network never runs here. A filter server that has just started has seen no upload yet, and asks the
broker what the group subscribes to.

Threads: the event loop's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from orbitmq.errors import FilterMissingError, RequestRefusedError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.requests.pulling import PullFlag

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.model.subscriptions import Subscription
    from orbitmq.protocol.requests.filter_servers import RegisterFilterClass
    from orbitmq.protocol.requests.pulling import PullMessages

log = logging.getLogger(__name__)

CLASSES_MAX: Final = 10_000
NAME_LENGTH_MAX: Final = 255


class FilterClasses:
    """The classes by group and topic, those registered last."""

    def __init__(
        self, subscription_of: Callable[[str, str], Awaitable[Subscription | None]]
    ) -> None:
        """Remember classes; `subscription_of` asks the broker for that of a group to a topic."""
        self._subscription_of = subscription_of
        self._names: dict[tuple[str, str], str] = {}

    def __len__(self) -> int:
        return len(self._names)

    def register(self, asked: RegisterFilterClass) -> None:
        """Remember the class that a group names."""
        for what, value in (
            ("consumerGroup", asked.consumer_group),
            ("topic", asked.topic),
            ("className", asked.class_name),
        ):
            if not 0 < len(value) <= NAME_LENGTH_MAX:
                raise RequestRefusedError(
                    ResponseCode.INVALID_PARAMETER,
                    f"{what} has {len(value)} characters",
                    hint=f"it takes 1 to {NAME_LENGTH_MAX}",
                )
        self._remember(asked.consumer_group, asked.topic, asked.class_name)

    async def of(self, asked: PullMessages) -> str:
        """The class that a pull is to be filtered by."""
        if asked.system_flag & PullFlag.CLASS_FILTER and asked.expression:
            return asked.expression
        group, topic = asked.consumer_group, asked.topic
        name = self._names.get((group, topic))
        if name is None:
            subscription = await self._subscription_of(group, topic)
            if subscription is None or not subscription.class_filter:
                raise FilterMissingError(
                    f"group {group!r} has named no filter class for topic {topic!r}",
                    hint="subscribe with one; a pull without a filter goes to the broker",
                )
            name = subscription.expression
            self._remember(group, topic, name)
        return name

    def _remember(self, group: str, topic: str, name: str) -> None:
        if self._names.pop((group, topic), None) != name:
            log.info("filter class registered group=%s topic=%s class=%s", group, topic, name)
        # Last in the row, so that it is dropped last.
        self._names[group, topic] = name
        if len(self._names) > CLASSES_MAX:
            del self._names[next(iter(self._names))]
