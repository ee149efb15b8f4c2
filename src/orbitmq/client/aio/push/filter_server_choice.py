"""Which filter server to pull a queue from, if its topic is filtered by a class.

Compat: any of those that the route shows for the queue's broker, as Java's clients choose. A broker
does not filter by classes, so it never takes the place of a filter server.

Threads: one event loop.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from orbitmq.errors import FilterServerMissingError

if TYPE_CHECKING:
    from orbitmq.client.aio.instance.routes import Routes
    from orbitmq.model.queues import MessageQueue


class FilterServerChoice:
    """Chooses filter servers for the queues of one consumer."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        # The one that each queue is pulled from.
        self._chosen: dict[MessageQueue, str] = {}
        # The one that failed a queue last.
        self._avoided: dict[MessageQueue, str] = {}

    async def choose(self, queue: MessageQueue, broker_address: str, filter_class: str) -> str:
        """Return the address of a filter server; raises FilterServerMissingError."""
        found = self._routes.filter_servers(queue.topic, broker_address)
        if not found or queue in self._avoided:
            # It may have moved, or have been started just now.
            await self._routes.refresh(queue.topic)
            found = self._routes.filter_servers(queue.topic, broker_address)
        if not found:
            raise FilterServerMissingError(queue.topic, queue.broker_name, filter_class)
        avoided = self._avoided.pop(queue, None)
        others = [address for address in found if address != avoided]
        chosen = random.choice(others or found)  # noqa: S311  # spreads load, keeps no secret
        self._chosen[queue] = chosen
        return chosen

    def failed(self, queue: MessageQueue) -> None:
        """Choose another one for the next pull of a queue, if there is another."""
        chosen = self._chosen.pop(queue, None)
        if chosen is not None:
            self._avoided[queue] = chosen

    def forget(self, queue: MessageQueue) -> None:
        """Forget a queue that is no longer pulled."""
        self._chosen.pop(queue, None)
        self._avoided.pop(queue, None)
