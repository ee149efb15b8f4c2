"""Several name servers as one: asks the same one until it fails, then the next.

Name servers know nothing of each other and brokers report to all of them, so any one answers for
all; staying with one keeps the number of connections down.
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
    """The name servers that a client was given."""

    def __init__(
        self,
        addresses: Sequence[str],
        rpc: RpcClient,
        *,
        clock: Clock | None = None,
        call_timeout_ms: float = CALL_TIMEOUT_MS,
    ) -> None:
        """Ask these; `call_timeout_ms` is for calls that are given no time of their own."""
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
        """The name server that is asked next."""
        return self._addresses[self._chosen]

    def update(self, addresses: Sequence[str]) -> None:
        """Ask these from now on; the chosen one stays chosen if it is among them."""
        chosen = self.chosen if self._addresses else ""
        self._addresses = tuple(addresses)
        self._chosen = addresses.index(chosen) if chosen in addresses else 0

    async def route(self, topic: str, *, timeout_ms: float | None = None) -> TopicRoute:
        """Find out where a topic is; raises RouteNotFoundError when nobody holds it."""
        asked = GetRoute(topic=topic, accept_standard_json_only=True)
        reply = await self.ask(asked, timeout_ms=timeout_ms)
        try:
            return java_json.decode(reply.body, TopicRoute)
        except ProtocolError as error:
            raise ProtocolError(
                f"the route of {topic!r} from {self.chosen} cannot be read: {error}",
                hint="check that a name server runs there",
            ) from error

    async def cluster_view(self) -> ClusterView:
        """Find out about every broker."""
        return java_json.decode((await self.ask(GetClusterView())).body, ClusterView)

    async def ask(
        self, header: Header, body: bytes = b"", *, timeout_ms: float | None = None
    ) -> Command:
        """Ask the chosen name server, and each of the others once if it does not answer.

        The time is for all of them: each gets an equal share of what is left.
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
                    log.warning("name server passed over address=%s reason=%s", address, error)
                self._leave(address)
        raise NameServersUnreachableError(failures) from failures[-1]

    def _leave(self, address: str) -> None:
        """Go on to the next, unless another call did so already or the list has changed."""
        if address == self.chosen:
            self._chosen = (self._chosen + 1) % len(self._addresses)
