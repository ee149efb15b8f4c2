"""Several name servers as one: asks the same one until it fails, then the next.

Brokers register with all name servers, which do not know each other, so any of them can reply.
Staying with one saves connections.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq import java_json
from orbitmq.client.core.topic_routes import missing_queues
from orbitmq.clock import SystemClock
from orbitmq.errors import (
    NameServersUnreachableError,
    ProtocolError,
    RouteNotFoundError,
    SettingsError,
    TopicBrokersMissingError,
    TransportError,
)
from orbitmq.model.routes import ClusterView, TopicRoute
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.requests.routing import GetClusterView, GetRoute, ListTopics, TopicList
from orbitmq.transport.rpc_client import CALL_TIMEOUT_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.clock import Clock
    from orbitmq.protocol.command import Command
    from orbitmq.protocol.headers import Header
    from orbitmq.transport.rpc_client import RpcClient

log = logging.getLogger(__name__)


class NameServers:
    """The name servers of a client."""

    def __init__(
        self,
        addresses: Sequence[str],
        rpc: RpcClient,
        *,
        clock: Clock | None = None,
        call_timeout_ms: float = CALL_TIMEOUT_MS,
    ) -> None:
        """Use these servers; `call_timeout_ms` is for calls without a timeout of their own."""
        self._rpc = rpc
        self._call_timeout_ms = call_timeout_ms
        self._clock = clock or SystemClock()
        self._addresses: tuple[str, ...] = ()
        self._chosen = 0
        self.update(addresses)

    @property
    def addresses(self) -> tuple[str, ...]:
        """All of them, in the order they are tried."""
        return self._addresses

    @property
    def chosen(self) -> str:
        """The name server that the next call asks."""
        return self._addresses[self._chosen]

    def update(self, addresses: Sequence[str]) -> None:
        """Replace the list; the chosen server stays chosen if it is still there."""
        chosen = self.chosen if self._addresses else ""
        self._addresses = tuple(addresses)
        self._chosen = addresses.index(chosen) if chosen in addresses else 0

    async def route(self, topic: str, *, timeout_ms: float | None = None) -> TopicRoute:
        """Look up the route of a topic; raises RouteNotFoundError if no broker has it.

        OrbitMQ's name servers add the brokers that are missing.
        """
        reply = await self.ask(_route_request(topic), timeout_ms=timeout_ms)
        route = _decoded_route(topic, reply, self.chosen)
        if not route.brokers and route.missing_brokers:
            raise TopicBrokersMissingError(
                ResponseCode.TOPIC_NOT_EXIST,
                "; ".join(map(str, missing_queues(topic, [route]))),
                call=RequestCode.GET_ROUTEINFO_BY_TOPIC.name,
                address=self.chosen,
                hint="start its brokers again; orbitmq cluster forget forgets one that is lost",
            )
        return route

    async def routes_everywhere(self, topic: str) -> list[TopicRoute]:
        """Look up a topic at every name server that replies, the chosen one first.

        One that has no broker of the topic, live or missing, returns a route without any. Raises
        if none replies.
        """
        chosen = self.chosen
        replies = await asyncio.gather(
            *(self._route_at(address, topic) for address in self._addresses), return_exceptions=True
        )
        found: dict[str, TopicRoute] = {}
        failures: list[TransportError] = []
        for address, reply in zip(self._addresses, replies, strict=True):
            if isinstance(reply, TransportError):
                failures.append(reply)
            elif isinstance(reply, BaseException):
                raise reply
            else:
                found[address] = reply
        if not found:
            raise NameServersUnreachableError(failures) from failures[-1]
        return [found[one] for one in sorted(found, key=lambda one: one != chosen)]

    async def _route_at(self, address: str, topic: str) -> TopicRoute:
        try:
            reply = await self._rpc.call(
                address, _route_request(topic), timeout_ms=self._call_timeout_ms
            )
        except RouteNotFoundError:
            return TopicRoute(brokers=[], queues=[])
        return _decoded_route(topic, reply, address)

    async def topics(self) -> list[str]:
        """Look up the names of all topics."""
        return list(java_json.decode((await self.ask(ListTopics())).body, TopicList).topics)

    async def cluster_view(self) -> ClusterView:
        """Look up every broker and cluster, and at OrbitMQ's name servers the missing brokers."""
        asked = GetClusterView(with_missing_brokers=True)
        return java_json.decode((await self.ask(asked)).body, ClusterView)

    async def ask(
        self, header: Header, body: bytes = b"", *, timeout_ms: float | None = None
    ) -> Command:
        """Ask the chosen name server; if it does not reply, each of the others once.

        The timeout is for all of them: each gets an equal share of the time left.
        """
        if not self._addresses:
            raise SettingsError("there is no name server to ask", hint="set namesrvAddr")
        timeout_ms = self._call_timeout_ms if timeout_ms is None else timeout_ms
        end_ms = self._clock.monotonic_ms() + timeout_ms
        order = self._addresses[self._chosen :] + self._addresses[: self._chosen]
        failures: list[TransportError] = []
        for tried, address in enumerate(order):
            share_ms = (end_ms - self._clock.monotonic_ms()) / (len(order) - tried)
            try:
                return await self._rpc.call(address, header, body, timeout_ms=share_ms)
            except TransportError as error:
                failures.append(error)
                if len(failures) < len(order):
                    log.warning("name server failed address=%s reason=%s", address, error)
                self._switch_from(address)
        raise NameServersUnreachableError(failures) from failures[-1]

    def _switch_from(self, address: str) -> None:
        """Choose the next one, unless another call did so or the list has changed."""
        if address == self.chosen:
            self._chosen = (self._chosen + 1) % len(self._addresses)


def _route_request(topic: str) -> GetRoute:
    return GetRoute(topic=topic, accept_standard_json_only=True, with_missing_brokers=True)


def _decoded_route(topic: str, reply: Command, address: str) -> TopicRoute:
    try:
        return java_json.decode(reply.body, TopicRoute)
    except ProtocolError as error:
        raise ProtocolError(
            f"the route of {topic!r} from {address} cannot be decoded: {error}",
            hint="check that a name server runs there",
        ) from error
