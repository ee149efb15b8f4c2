"""Routes of topics, looked up at the name servers, cached and renewed.

Threads: one event loop. One lookup per topic is in flight at a time; later callers wait for the
same reply.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from orbitmq.client.core.silent_brokers import SilentBrokers
from orbitmq.client.core.topic_routes import (
    MissingQueues,
    PublishRoute,
    java_text_order,
    masterless,
    missing_queues,
    publish_route,
    reading_queues,
    template_route,
)
from orbitmq.clock import time_limit
from orbitmq.errors import (
    NameServersUnreachableError,
    NoMasterError,
    NoQueueError,
    OrbitError,
    RouteNotFoundError,
    TransportError,
)
from orbitmq.lifecycle import OwnedTasks
from orbitmq.model.names import TEMPLATE_TOPIC
from orbitmq.model.routes import MASTER_ID, TopicRoute

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from orbitmq.client.aio.instance.name_servers import NameServers
    from orbitmq.clock import Clock
    from orbitmq.model.queues import MessageQueue
    from orbitmq.model.routes import BrokerGroup

log = logging.getLogger(__name__)

_TEMPLATE_QUEUES: Final = 4
# Concurrent lookups while all routes are renewed.
_RENEWED_AT_ONCE: Final = 16


class BrokerAddress(NamedTuple):
    """The address of one broker of a group."""

    broker_name: str
    broker_id: int
    address: str


class _CachedRoute(NamedTuple):
    """A route, and the queues it means for producers and consumers."""

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
        # By topic, the last one changed at the end: its broker addresses win.
        self._known: dict[str, _CachedRoute] = {}
        # The expected queues of topics that do not exist yet.
        self._templates: dict[str, PublishRoute] = {}
        # The topics that they are created from.
        self._template_topics: set[str] = set()
        self._brokers: dict[str, dict[int, str]] = {}
        # Brokers that no cached route needs to have.
        self._further_brokers: Mapping[str, BrokerGroup] = {}
        self._addresses: frozenset[str] = frozenset()
        self.silent = SilentBrokers(clock.monotonic_ms)
        # Topics used since the last `renew`.
        self._asked: set[str] = set()
        self._missing: set[str] = set()
        self._in_flight: dict[str, asyncio.Future[bool]] = {}
        self._tasks = OwnedTasks()

    # --- topics -------------------------------------------------------------------------------

    def cached_publishing(self, topic: str) -> PublishRoute | None:
        """Return the cached queues a producer may send to; None if there are none."""
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
        """Return the queues a producer may send to.

        Raises RouteNotFoundError or NoQueueError; NoMasterError if that may pass by itself.

        For a missing topic these are the queues that the first send will create:
        `template_queues` on each broker that has `template_topic`. With 0 a missing topic is an
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
            if names := self.masterless(topic):
                raise NoMasterError(topic, names)
            raise NoQueueError(
                f"topic {topic!r} has no queue that takes messages",
                hint="writing to it is forbidden, or it has only queues to read",
            )
        return found

    def masterless(self, topic: str) -> list[str]:
        """Return the brokers of a cached topic that would take messages if they had a master."""
        known = self._known.get(topic)
        return [] if known is None else masterless(known.route)

    async def topic_names(self) -> list[str]:
        """Look up the names of all topics."""
        return await self._name_servers.topics()

    async def reading(self, topic: str) -> list[MessageQueue]:
        """Return the queues that can be read, in the same order on all clients."""
        self._asked.add(topic)
        if topic not in self._known:
            await self.refresh(topic)
        return list(self._known[topic].reading)

    def cached_reading(self, topic: str) -> list[MessageQueue] | None:
        """Return the cached queues that can be read."""
        known = self._known.get(topic)
        return None if known is None else list(known.reading)

    def cached_missing(self, topic: str) -> list[MissingQueues]:
        """Return what the cached route of a topic lacks, as brokers are missing."""
        known = self._known.get(topic)
        return [] if known is None else missing_queues(topic, [known.route])

    async def refresh(self, topic: str, *, timeout_ms: float | None = None) -> bool:
        """Look up the route of a topic; returns whether it changed.

        Raises RouteNotFoundError if no name server knows it; a cached route stays.
        """
        self._asked.add(topic)
        timeout_ms = self._call_timeout_ms if timeout_ms is None else timeout_ms
        in_flight = self._in_flight.get(topic)
        try:
            async with time_limit(self._clock, timeout_ms):
                if in_flight is not None:
                    # Shielded, as others wait for this lookup, too. It may have less time than this
                    # caller, which then looks up again.
                    with suppress(NameServersUnreachableError):
                        return await asyncio.shield(in_flight)
                return await asyncio.shield(self._start_lookup(topic, timeout_ms))
        except TimeoutError as error:
            asked = ", ".join(self._name_servers.addresses)
            late = TransportError(f"no answer from {asked} within {timeout_ms:.0f} ms")
            raise NameServersUnreachableError([late]) from error

    async def renew(self, topics: Iterable[str]) -> None:
        """Look up these topics again, and drop cached ones not used since the last call."""
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
                # No name server replies: the next topics would wait in vain.
                break
        self._asked -= wanted

    async def stop(self) -> None:
        """Cancel the lookups in flight."""
        await self._tasks.cancel()

    # --- brokers ------------------------------------------------------------------------------

    def master_of(self, broker_name: str) -> str | None:
        """Return the address of a broker group's master."""
        return self._brokers.get(broker_name, {}).get(MASTER_ID)

    def address_of(
        self, broker_name: str, broker_id: int, *, avoids_silent: bool = True
    ) -> tuple[str, bool] | None:
        """Return the address of a broker, or of another of its group if it is not there.

        The second value says whether it is a slave.

        Args:
            broker_name: the group of brokers.
            broker_id: the one of them that is wanted.
            avoids_silent: whether another is better than one that did not answer lately.
        """
        addresses = self._brokers.get(broker_name)
        if not addresses:
            return None
        found = addresses.get(broker_id)
        if found is not None and not (avoids_silent and found in self.silent):
            return found, broker_id != MASTER_ID
        # Compat: Java's clients try the next slave, too.
        wanted = (broker_id,) if broker_id == MASTER_ID else (broker_id, broker_id + 1)
        order = [one for one in (*wanted, *sorted(addresses)) if one in addresses]
        answering = [one for one in order if not avoids_silent or addresses[one] not in self.silent]
        chosen = (answering or order)[0]
        return addresses[chosen], chosen != MASTER_ID

    def broker_of_topic(self, topic: str) -> str | None:
        """Return the address of any broker that has the topic, preferably a master."""
        known = self._known.get(topic)
        names = [group.name for group in known.route.brokers if group.addresses] if known else []
        random.shuffle(names)
        found = [one for name in names if (one := self.address_of(name, MASTER_ID)) is not None]
        if not found:
            return None
        return next((address for address, _ in found if address not in self.silent), found[0][0])

    def clusters_of(self, broker_names: Collection[str]) -> set[str]:
        """Return the clusters that these brokers belong to, as far as cached routes tell."""
        return {
            group.cluster
            for known in self._known.values()
            for group in known.route.brokers
            if group.name in broker_names
        }

    def filter_servers(self, topic: str, broker_address: str) -> list[str]:
        """Return the filter servers of a broker, as the cached route of a topic has them."""
        known = self._known.get(topic)
        return [] if known is None else known.route.filter_servers.get(broker_address, [])

    async def find_all_brokers(self) -> None:
        """Look up all brokers, for which the routes of topics are not enough."""
        self._further_brokers = (await self._name_servers.cluster_view()).brokers
        self._map_brokers()

    def forget_further_brokers(self) -> None:
        """Forget the brokers that no cached route has."""
        if self._further_brokers:
            self._further_brokers = {}
            self._map_brokers()

    def addresses(self) -> list[BrokerAddress]:
        """Return every known broker."""
        return [
            BrokerAddress(name, broker_id, address)
            for name, addresses in self._brokers.items()
            for broker_id, address in addresses.items()
        ]

    def is_broker(self, address: str) -> bool:
        """Whether a known broker has this address."""
        return address in self._addresses

    # --- inside -------------------------------------------------------------------------------

    def _start_lookup(self, topic: str, timeout_ms: float) -> asyncio.Future[bool]:
        """Look up a topic, or join the lookup in flight."""
        found = self._in_flight.get(topic)
        if found is None:
            found = asyncio.get_running_loop().create_future()
            self._in_flight[topic] = found
            self._tasks.start(self._look_up(topic, timeout_ms, found), name=f"route of {topic}")
        return found

    async def _look_up(self, topic: str, timeout_ms: float, found: asyncio.Future[bool]) -> None:
        failure: OrbitError = NameServersUnreachableError([OrbitError("the client is stopping")])
        changed: bool | None = None
        try:
            route = await self._name_servers.route(topic, timeout_ms=timeout_ms)
            changed = self._store(topic, route)
        except OrbitError as error:
            failure = error
        except Exception as error:
            failure = OrbitError(f"the route of topic {topic!r} cannot be used: {error!r}")
            raise
        finally:
            del self._in_flight[topic]
            if changed is not None:
                found.set_result(changed)
            else:
                found.set_exception(failure)
                # Maybe nobody waits; reading the exception keeps asyncio from complaining.
                found.exception()

    def _store(self, topic: str, route: TopicRoute) -> bool:
        route = _sorted(route)
        self._missing.discard(topic)
        self._templates.pop(topic, None)
        before = self._known.get(topic)
        if before is not None and before.route == route:
            return False
        known = _CachedRoute(route, publish_route(topic, route), reading_queues(topic, route))
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
        for missing in self.cached_missing(topic):
            log.warning("route is incomplete topic=%s: %s", topic, missing)
        self._on_change(topic)
        return True

    def _map_brokers(self) -> None:
        groups = [group for known in self._known.values() for group in known.route.brokers]
        self._brokers = {
            group.name: group.addresses for group in (*self._further_brokers.values(), *groups)
        }
        self._addresses = frozenset(
            address for addresses in self._brokers.values() for address in addresses.values()
        )
        self.silent.keep(self._addresses)

    async def _refresh_template(self, template_topic: str, timeout_ms: float) -> bool:
        """Look up where missing topics are created; False if no broker creates them."""
        self._template_topics.add(template_topic)
        if template_topic in self._known:
            return True
        try:
            await self.refresh(template_topic, timeout_ms=timeout_ms)
        except RouteNotFoundError:
            return False
        return True

    async def _renew_one(self, topic: str) -> bool:
        """Look up one topic; False if no name server replies."""
        try:
            await self.refresh(topic)
        except RouteNotFoundError:
            # Logged once: a member's heartbeat or the first send may create the topic later.
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
    """Sort a route's parts, so that equal routes compare equal."""
    return msgspec.structs.replace(
        route,
        brokers=sorted(route.brokers, key=lambda group: java_text_order(group.name)),
        queues=sorted(route.queues, key=lambda part: java_text_order(part.broker_name)),
    )
