"""Where topics are: routes as name servers tell them, kept and renewed.

Threads: one event loop. One question per topic is under way at a time; whoever asks meanwhile
waits for the same answer.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from orbitmq.client.core.topic_routes import (
    PublishRoute,
    java_text_order,
    publish_route,
    reading_queues,
    template_route,
)
from orbitmq.clock import time_limit
from orbitmq.errors import (
    NameServersUnreachableError,
    NoQueueError,
    OrbitError,
    RouteNotFoundError,
    TransportError,
)
from orbitmq.lifecycle import OwnedTasks
from orbitmq.model.names import TEMPLATE_TOPIC
from orbitmq.model.routes import MASTER_ID, TopicRoute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orbitmq.client.aio.instance.name_servers import NameServers
    from orbitmq.clock import Clock
    from orbitmq.model.queues import MessageQueue

log = logging.getLogger(__name__)

_TEMPLATE_QUEUES: Final = 4
# Questions under way at once while all routes are renewed.
_RENEWED_AT_ONCE: Final = 16


class BrokerAddress(NamedTuple):
    """One broker of a group, and where it is."""

    broker_name: str
    broker_id: int
    address: str


class _Known(NamedTuple):
    """A route, and what it means."""

    route: TopicRoute
    publishing: PublishRoute
    reading: tuple[MessageQueue, ...]


class Routes:
    """The routes of the topics that a client uses."""

    def __init__(
        self,
        name_servers: NameServers,
        *,
        clock: Clock,
        call_timeout_ms: float,
        on_change: Callable[[str], None],
    ) -> None:
        self._name_servers = name_servers
        self._clock = clock
        self._call_timeout_ms = call_timeout_ms
        self._on_change = on_change
        # By topic, the one that changed last at the end: what it says of brokers counts.
        self._known: dict[str, _Known] = {}
        # What topics that do not exist yet will look like.
        self._templates: dict[str, PublishRoute] = {}
        # What they will be made after.
        self._template_topics: set[str] = set()
        self._brokers: dict[str, dict[int, str]] = {}
        self._addresses: frozenset[str] = frozenset()
        # Topics somebody asked for since `renew` last looked.
        self._asked: set[str] = set()
        self._missing: set[str] = set()
        self._under_way: dict[str, asyncio.Future[bool]] = {}
        self._tasks = OwnedTasks()

    # --- topics -------------------------------------------------------------------------------

    def cached_publishing(self, topic: str) -> PublishRoute | None:
        """Give the queues a producer may send to, as far as known; never one without queues."""
        known = self._known.get(topic)
        found = self._templates.get(topic) if known is None else known.publishing
        return found if found is not None and found.queues else None

    async def publishing(
        self,
        topic: str,
        *,
        timeout_ms: float,
        template_queues: int = _TEMPLATE_QUEUES,
        template_topic: str = TEMPLATE_TOPIC,
    ) -> PublishRoute:
        """Give the queues a producer may send to; raises RouteNotFoundError or NoQueueError.

        A topic that does not exist gets the queues it will be made with by the first send, as
        many as `template_queues` per broker, where `template_topic` is; 0 takes that for an
        error.
        """
        self._asked.add(topic)
        cached = self.cached_publishing(topic)
        if cached is not None:
            return cached
        end_ms = self._clock.monotonic_ms() + timeout_ms
        try:
            await self.refresh(topic, timeout_ms=timeout_ms)
        except RouteNotFoundError as missing:
            left_ms = end_ms - self._clock.monotonic_ms()
            if template_queues <= 0 or not await self._refresh_template(template_topic, left_ms):
                raise
            template = self._known[template_topic].route
            self._templates[topic] = template_route(topic, template, queues_max=template_queues)
            found = self.cached_publishing(topic)
            if found is None:
                raise missing from None
            return found
        found = self.cached_publishing(topic)
        if found is None:
            raise NoQueueError(
                f"topic {topic!r} has no queue that takes messages",
                hint="its brokers have no master, or writing to it is forbidden",
            )
        return found

    async def reading(self, topic: str) -> list[MessageQueue]:
        """Give the queues that can be read, in the order all clients agree on."""
        self._asked.add(topic)
        if topic not in self._known:
            await self.refresh(topic)
        return list(self._known[topic].reading)

    def cached_reading(self, topic: str) -> list[MessageQueue] | None:
        """Give the queues that can be read, as far as known."""
        known = self._known.get(topic)
        return None if known is None else list(known.reading)

    async def refresh(self, topic: str, *, timeout_ms: float | None = None) -> bool:
        """Ask a name server where a topic is; gives whether that changed.

        Raises RouteNotFoundError when no name server knows it; what was known stays.
        """
        self._asked.add(topic)
        timeout_ms = self._call_timeout_ms if timeout_ms is None else timeout_ms
        under_way = self._under_way.get(topic)
        try:
            async with time_limit(self._clock, timeout_ms):
                if under_way is not None:
                    # Who gives up must not take the answer from the others; nor must one who had
                    # less time to give.
                    with suppress(NameServersUnreachableError):
                        return await asyncio.shield(under_way)
                return await asyncio.shield(self._begin(topic, timeout_ms))
        except TimeoutError as error:
            asked = ", ".join(self._name_servers.addresses)
            late = TransportError(f"no answer from {asked} within {timeout_ms:.0f} ms")
            raise NameServersUnreachableError([late]) from error

    async def renew(self, topics: Iterable[str]) -> None:
        """Ask for these topics anew, and let those go that nobody has asked for since last time."""
        wanted = set(topics)
        if self._templates:
            wanted |= self._template_topics
        kept = wanted | self._asked
        self._asked = set()
        if not kept.issuperset(self._known):
            self._known = {topic: known for topic, known in self._known.items() if topic in kept}
            self._map_brokers()
        for forgotten in self._templates.keys() - kept:
            del self._templates[forgotten]
        self._missing &= kept
        ordered = sorted(wanted)
        for start in range(0, len(ordered), _RENEWED_AT_ONCE):
            part = ordered[start : start + _RENEWED_AT_ONCE]
            if not all(await asyncio.gather(*map(self._renew_one, part))):
                # No name server answers: the next topics would only wait for the same.
                break
        self._asked -= wanted

    async def stop(self) -> None:
        """Give up the questions under way."""
        await self._tasks.cancel()

    # --- brokers ------------------------------------------------------------------------------

    def master_of(self, broker_name: str) -> str | None:
        """Give the address of a group's master."""
        return self._brokers.get(broker_name, {}).get(MASTER_ID)

    def address_of(
        self, broker_name: str, broker_id: int, *, only_this: bool = False
    ) -> tuple[str, bool] | None:
        """Give the address of a broker, or unless `only_this` of another of its group.

        The second value says whether it is a slave.
        """
        addresses = self._brokers.get(broker_name)
        if not addresses:
            return None
        found = addresses.get(broker_id)
        if found is not None:
            return found, broker_id != MASTER_ID
        if broker_id != MASTER_ID and (found := addresses.get(broker_id + 1)) is not None:
            return found, True
        if only_this:
            return None
        other_id = min(addresses)
        return addresses[other_id], other_id != MASTER_ID

    def broker_of_topic(self, topic: str) -> str | None:
        """Give the address of some broker that has the topic, a master if there is one."""
        known = self._known.get(topic)
        groups = [group for group in known.route.brokers if group.addresses] if known else []
        if not groups:
            return None
        addresses = random.choice(groups).addresses  # noqa: S311  # spreads load, keeps no secret
        return addresses.get(MASTER_ID) or random.choice(list(addresses.values()))  # noqa: S311

    def addresses(self) -> list[BrokerAddress]:
        """Give every broker that some route tells of."""
        return [
            BrokerAddress(name, broker_id, address)
            for name, addresses in self._brokers.items()
            for broker_id, address in addresses.items()
        ]

    def is_broker(self, address: str) -> bool:
        """Whether some route tells of a broker at an address."""
        return address in self._addresses

    # --- inside -------------------------------------------------------------------------------

    def _begin(self, topic: str, timeout_ms: float) -> asyncio.Future[bool]:
        """Ask, unless somebody does already."""
        found = self._under_way.get(topic)
        if found is None:
            found = asyncio.get_running_loop().create_future()
            self._under_way[topic] = found
            self._tasks.start(self._ask(topic, timeout_ms, found), name=f"route of {topic}")
        return found

    async def _ask(self, topic: str, timeout_ms: float, found: asyncio.Future[bool]) -> None:
        failure: OrbitError = NameServersUnreachableError([OrbitError("the client is stopping")])
        changed: bool | None = None
        try:
            route = await self._name_servers.route(topic, timeout_ms=timeout_ms)
            changed = self._take(topic, route)
        except OrbitError as error:
            failure = error
        except Exception as error:
            failure = OrbitError(f"the route of topic {topic!r} cannot be taken: {error!r}")
            raise
        finally:
            del self._under_way[topic]
            if changed is not None:
                found.set_result(changed)
            else:
                found.set_exception(failure)
                # All who asked may have given up; asking once keeps asyncio from complaining.
                found.exception()

    def _take(self, topic: str, route: TopicRoute) -> bool:
        route = _sorted(route)
        self._missing.discard(topic)
        self._templates.pop(topic, None)
        before = self._known.get(topic)
        if before is not None and before.route == route:
            return False
        known = _Known(route, publish_route(topic, route), reading_queues(topic, route))
        self._known.pop(topic, None)
        self._known[topic] = known
        self._map_brokers()
        if topic in self._template_topics:
            self._templates.clear()
        log.info(
            "route changed topic=%s brokers=%s",
            topic,
            ",".join(group.name for group in route.brokers),
        )
        self._on_change(topic)
        return True

    def _map_brokers(self) -> None:
        self._brokers = {
            group.name: group.addresses
            for known in self._known.values()
            for group in known.route.brokers
        }
        self._addresses = frozenset(
            address for addresses in self._brokers.values() for address in addresses.values()
        )

    async def _refresh_template(self, template_topic: str, timeout_ms: float) -> bool:
        """Learn where topics are made that do not exist; False when they are made nowhere."""
        self._template_topics.add(template_topic)
        if template_topic in self._known:
            return True
        try:
            await self.refresh(template_topic, timeout_ms=timeout_ms)
        except RouteNotFoundError:
            return False
        return True

    async def _renew_one(self, topic: str) -> bool:
        """Ask for one topic; False when no name server answers."""
        try:
            await self.refresh(topic)
        except RouteNotFoundError:
            # Told once: a retry topic is made by the first retry, others by the first send.
            if topic not in self._missing:
                log.info("topic has no route topic=%s", topic)
                self._missing.add(topic)
        except TransportError as error:
            log.warning("routes not renewed reason=%s", error)
            return False
        except OrbitError as error:
            log.warning("route not renewed topic=%s reason=%s", topic, error)
        return True


def _sorted(route: TopicRoute) -> TopicRoute:
    """Bring a route's parts into one order, so that equal ones compare equal."""
    return msgspec.structs.replace(
        route,
        brokers=sorted(route.brokers, key=lambda group: java_text_order(group.name)),
        queues=sorted(route.queues, key=lambda part: java_text_order(part.broker_name)),
    )
