"""Several name servers as one: asks the same one until it fails, then the next.

Brokers register with all name servers, which do not know each other, so any of them can reply.
Staying with one saves connections.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq import java_json
from orbitmq.clock import SystemClock
from orbitmq.errors import (
    NameServersUnreachableError,
    ProtocolError,
    SettingsError,
    TransportError,
)
from orbitmq.model.routes import ClusterView, TopicRoute
from orbitmq.protocol.requests.routing import GetClusterView, GetRoute
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
        """Look up the route of a topic; raises RouteNotFoundError if no broker has it."""
        asked = GetRoute(topic=topic, accept_standard_json_only=True)
        reply = await self.ask(asked, timeout_ms=timeout_ms)
        try:
            return java_json.decode(reply.body, TopicRoute)
        except ProtocolError as error:
            raise ProtocolError(
                f"the route of {topic!r} from {self.chosen} cannot be decoded: {error}",
                hint="check that a name server runs there",
            ) from error

    async def cluster_view(self) -> ClusterView:
        """Look up every broker and cluster."""
        return java_json.decode((await self.ask(GetClusterView())).body, ClusterView)

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
