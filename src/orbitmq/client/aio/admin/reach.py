"""How the admin client reaches servers: finds them, and asks one or several."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from orbitmq import java_json
from orbitmq.errors import ClusterMissingError, MasterMissingError
from orbitmq.model.names import retry_topic
from orbitmq.model.routes import MASTER_ID
from orbitmq.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orbitmq.client.aio.instance.broker_calls import BrokerCalls
    from orbitmq.client.aio.instance.client_instance import ClientInstance
    from orbitmq.client.aio.instance.name_servers import NameServers
    from orbitmq.clock import Clock
    from orbitmq.model.routes import BrokerGroup, ClusterView, MissingBroker, TopicRoute
    from orbitmq.protocol.headers import Header

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Reach:
    """Finds the servers for a request, and asks them."""

    # Raises unless the client runs.
    _running: Callable[[], ClientInstance]
    # Called once for each missing broker that a request would have gone to.
    _on_missing: Callable[[MissingBroker], None] | None = None
    _noted: set[str] = field(default_factory=set)

    @property
    def name_servers(self) -> NameServers:
        """The name servers."""
        return self._running().name_servers

    @property
    def clock(self) -> Clock:
        """The client's clock."""
        return self._running().clock

    @property
    def calls(self) -> BrokerCalls:
        """The typed calls to brokers."""
        return self._running().brokers

    # --- finding ------------------------------------------------------------------------------

    async def route(self, topic: str) -> TopicRoute:
        """Look up the route of a topic; brokers that are missing from it are noted."""
        route = await self.name_servers.route(topic)
        self._note(route.missing_brokers)
        return route

    async def masters(self, cluster: str | None = None) -> dict[str, str]:
        """Find the masters of a cluster, or of all: address by broker name; notes missing ones."""
        view = await self.name_servers.cluster_view()
        missing = view.missing_brokers or ()
        self._note([one for one in missing if cluster in {None, one.cluster}])
        return self._masters(view, cluster)

    async def note_missing(self) -> None:
        """Note all brokers that are missing."""
        self._note((await self.name_servers.cluster_view()).missing_brokers)

    def _note(self, missing: Iterable[MissingBroker] | None) -> None:
        for one in missing or ():
            if one.name not in self._noted and not one.is_served:
                self._noted.add(one.name)
                if self._on_missing is not None:
                    self._on_missing(one)
                else:
                    log.warning("broker is missing, what it has is left out name=%s", one.name)

    def _masters(self, view: ClusterView, cluster: str | None) -> dict[str, str]:
        names = self._members(view, cluster)
        return {
            name: view.brokers[name].addresses[MASTER_ID]
            for name in sorted(names)
            if name in view.brokers and MASTER_ID in view.brokers[name].addresses
        }

    async def targets(self, cluster: str | None, broker: str | None) -> dict[str, str]:
        """Find the broker given, or the masters of a cluster or of all clusters.

        Raises if there is none: a change that reaches no broker would look as if it had worked.
        """
        if broker is not None:
            return {broker: await self.broker(broker)}
        masters = await self.masters(cluster)
        if not masters:
            raise ClusterMissingError("master", there=())
        return masters

    async def broker(self, name: str) -> str:
        """Find the address of a broker by name; an address is returned as it is."""
        if ":" in name:
            return name
        view = await self.name_servers.cluster_view()
        masters = self._masters(view, None)
        if name not in masters:
            self._note([one for one in view.missing_brokers or () if one.name == name])
            if name in view.brokers:
                raise MasterMissingError(name)
            raise ClusterMissingError("broker", name, there=masters)
        return masters[name]

    async def reader(self, name: str) -> str:
        """Find the address of a broker by name, or of its slave if it has no master now."""
        slaves = {} if ":" in name else await self.lone_slaves()
        return slaves[name] if name in slaves else await self.broker(name)

    async def lone_slaves(self) -> dict[str, str]:
        """Find the brokers that have no master now: the address of a slave by broker name."""
        view = await self.name_servers.cluster_view()
        return {
            name: _reader(group)
            for name, group in sorted(view.brokers.items())
            if group.addresses and MASTER_ID not in group.addresses
        }

    async def masters_of(self, topic: str) -> dict[str, str]:
        """Find the masters that have a topic: address by broker name."""
        return addresses_of(await self.route(topic))

    async def masters_of_group(self, group: str) -> dict[str, str]:
        """Find the masters that a group consumes from: address by broker name."""
        # Compat: brokers create a group's retry topic when members connect; tools rely on it.
        return await self.masters_of(retry_topic(group))

    async def name_of(self, address: str) -> str:
        """Find the name of the broker at an address; empty if no name server knows it."""
        view = await self.name_servers.cluster_view()
        names = [name for name, one in view.brokers.items() if address in one.addresses.values()]
        return names[0] if names else ""

    async def require_name(self, broker: str) -> str:
        """Find the name of a broker by name or address; raises if the address is unknown."""
        if ":" not in broker:
            return broker
        if name := await self.name_of(broker):
            return name
        raise ClusterMissingError("broker", broker, there=await self.masters())

    async def check_broker(self, name: str) -> None:
        """Raise unless a broker of this name has registered with the name servers."""
        view = await self.name_servers.cluster_view()
        if name not in view.brokers:
            raise ClusterMissingError("broker", name, there=view.brokers)

    @staticmethod
    def _members(view: ClusterView, cluster: str | None) -> Iterable[str]:
        if cluster is None:
            return view.brokers
        if cluster not in view.clusters:
            raise ClusterMissingError("cluster", cluster, there=view.clusters)
        return view.clusters[cluster]

    # --- asking -------------------------------------------------------------------------------

    async def ask(
        self, address: str, header: Header, body: bytes = b"", *, timeout_ms: float | None = None
    ) -> Command:
        """Ask one server; a failure code raises its error."""
        instance = self._running()
        return await instance.rpc.call(
            address, header, body, timeout_ms=timeout_ms or instance.options.call_timeout_ms
        )

    async def ask_for(self, address: str, header: Header, kind: type[T], body: bytes = b"") -> T:
        """Ask one server, and decode the body of its reply."""
        return java_json.decode((await self.ask(address, header, body)).body, kind)

    async def ask_each(
        self, addresses: Iterable[str], header: Header, body: bytes = b""
    ) -> dict[str, Command]:
        """Ask several servers in parallel; raises the first failure once all have replied."""
        asked = list(addresses)
        replies = await asyncio.gather(
            *(self.ask(address, header, body) for address in asked), return_exceptions=True
        )
        answered: dict[str, Command] = {}
        for address, reply in zip(asked, replies, strict=True):
            if isinstance(reply, BaseException):
                raise reply
            answered[address] = reply
        return answered

    async def ask_name_servers(self, header: Header) -> None:
        """Ask every name server, since they do not know each other."""
        await self.ask_each(self.name_servers.addresses, header)


def readers_of(route: TopicRoute) -> dict[str, str]:
    """The brokers of a route that can be read, masters or else slaves: address by broker name."""
    return {
        group.name: _reader(group)
        for group in sorted(route.brokers, key=lambda group: group.name)
        if group.addresses
    }


def _reader(group: BrokerGroup) -> str:
    return group.addresses[min(group.addresses)]


def addresses_of(route: TopicRoute) -> dict[str, str]:
    """The masters of a route: address by broker name."""
    return {
        group.name: group.addresses[MASTER_ID]
        for group in sorted(route.brokers, key=lambda group: group.name)
        if MASTER_ID in group.addresses
    }
