"""Heartbeats: tell brokers what this client produces and consumes.

A broker ties a client to the connection of its heartbeat, so each new connection needs one at
once. One heartbeat per broker is in flight at a time: an older one that says less must not arrive
after a newer one.

Threads: one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq import java_json
from orbitmq.client.aio.instance.broker_calls import NO_ANSWER
from orbitmq.errors import OrbitError
from orbitmq.lifecycle import OwnedTasks
from orbitmq.model.routes import MASTER_ID
from orbitmq.protocol.requests.clients import Heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orbitmq.client.aio.instance.routes import Routes
    from orbitmq.protocol.requests.clients import HeartbeatBody
    from orbitmq.transport.rpc_client import RpcClient

log = logging.getLogger(__name__)


class Heartbeats:
    """The heartbeats of one client to all brokers it knows."""

    def __init__(
        self,
        rpc: RpcClient,
        routes: Routes,
        *,
        content: Callable[[], HeartbeatBody],
        on_reconnect: Callable[[], None],
        timeout_ms: float,
    ) -> None:
        self._rpc = rpc
        self._routes = routes
        self._content = content
        self._on_reconnect = on_reconnect
        self._timeout_ms = timeout_ms
        self._round = asyncio.Lock()
        self._locks: dict[str, asyncio.Lock] = {}
        self._tasks = OwnedTasks()
        # The version of each broker in its last reply, by address.
        self.broker_versions: dict[str, int] = {}
        # Brokers that have acknowledged one on their present connection.
        self.acknowledged: set[str] = set()

    async def send_to_all(self) -> None:
        """Send one to every broker, or only to masters if this client consumes nothing."""
        async with self._round:
            masters_only = not self._content().consumers
            targets = {
                broker.address
                for broker in self._routes.addresses()
                if broker.broker_id == MASTER_ID or not masters_only
            }
            self._forget_others(targets)
            await asyncio.gather(*(self._send(address) for address in targets))

    def connection_opened(self, address: str) -> None:
        """Send one to a broker that was just connected to."""
        self.acknowledged.discard(address)
        if not self._routes.is_broker(address):
            return
        lock = self._locks.get(address)
        if lock is not None and lock.locked():
            # The connection was opened by a heartbeat.
            return
        self._tasks.start(self._send_after_connect(address), name=f"heartbeat to {address}")

    def connection_closed(self, address: str) -> None:
        """Note that a broker has forgotten this client."""
        self.acknowledged.discard(address)

    async def send_to(self, addresses: Iterable[str]) -> None:
        """Send one to these brokers, and wait for their replies."""
        await asyncio.gather(*(self._send(address) for address in addresses))

    async def stop(self) -> None:
        """Cancel the heartbeats that new connections started."""
        await self._tasks.cancel()

    async def _send_after_connect(self, address: str) -> None:
        # If the connection breaks at once, the call that opened it reports that.
        if await self._send(address, warning_level=logging.DEBUG):
            self._on_reconnect()

    async def _send(self, address: str, *, warning_level: int = logging.WARNING) -> bool:
        """Send one; False if it got no reply."""
        lock = self._locks.setdefault(address, asyncio.Lock())
        async with lock:
            body = java_json.encode(self._content())
            try:
                reply = await self._rpc.call(
                    address, Heartbeat(), body, timeout_ms=self._timeout_ms
                )
            except OrbitError as error:
                log.log(warning_level, "heartbeat failed broker=%s reason=%s", address, error)
                if isinstance(error, NO_ANSWER):
                    self._routes.silent.note(address)
                return False
            self._routes.silent.heard(address)
            self.broker_versions[address] = reply.version
            self.acknowledged.add(address)
            return True

    def _forget_others(self, targets: set[str]) -> None:
        """Forget brokers that are no longer in any route."""
        for address in [*self._locks]:
            if address not in targets and not self._locks[address].locked():
                del self._locks[address]
                self.broker_versions.pop(address, None)
