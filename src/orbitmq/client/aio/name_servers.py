"""Several name servers as one: asks the same one until it fails, then the next.

Name servers know nothing of each other and brokers report to all of them, so any one answers for
all; staying with one keeps the number of connections down.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq import java_json
from orbitmq.errors import SettingsError, TransportError
from orbitmq.model.routes import ClusterView, TopicRoute
from orbitmq.protocol.requests.routing import GetClusterView, GetRoute
from orbitmq.transport.rpc_client import CALL_TIMEOUT_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.protocol.command import Command
    from orbitmq.protocol.headers import Header
    from orbitmq.transport.rpc_client import RpcClient

log = logging.getLogger(__name__)


class NameServers:
    """The name servers that a client was given."""

    def __init__(self, addresses: Sequence[str], rpc: RpcClient) -> None:
        if not addresses:
            raise SettingsError("there is no name server to ask", hint="set namesrvAddr")
        self._addresses = list(addresses)
        self._rpc = rpc
        self._chosen = 0

    @property
    def chosen(self) -> str:
        """The name server that is asked next."""
        return self._addresses[self._chosen]

    async def route(self, topic: str) -> TopicRoute:
        """Find out where a topic is; raises RouteNotFoundError when nobody holds it."""
        reply = await self.ask(GetRoute(topic=topic, accept_standard_json_only=True))
        return java_json.decode(reply.body, TopicRoute)

    async def cluster_view(self) -> ClusterView:
        """Find out about every broker."""
        return java_json.decode((await self.ask(GetClusterView())).body, ClusterView)

    async def ask(
        self, header: Header, body: bytes = b"", *, timeout_ms: float = CALL_TIMEOUT_MS
    ) -> Command:
        """Ask the chosen name server, and each of the others once if it does not answer."""
        for others_left in range(len(self._addresses) - 1, -1, -1):
            try:
                return await self._rpc.call(self.chosen, header, body, timeout_ms=timeout_ms)
            except TransportError as error:
                log.warning("name server does not answer address=%s reason=%s", self.chosen, error)
                if not others_left:
                    raise
                self._chosen = (self._chosen + 1) % len(self._addresses)
        raise AssertionError("there is at least one name server")
