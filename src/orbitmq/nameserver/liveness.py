"""Liveness: removes brokers that fell silent or whose connection closed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.lifecycle import Periodic

if TYPE_CHECKING:
    from orbitmq.clock import Clock
    from orbitmq.nameserver.broker_registry import BrokerRegistry
    from orbitmq.transport.connection import Connection

log = logging.getLogger(__name__)


class Liveness:
    """Removes dead brokers from the registry; listens to the server's connections."""

    def __init__(self, registry: BrokerRegistry, *, scan_interval_ms: int, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._scan_interval_ms = scan_interval_ms
        self._last_scan_ms = clock.monotonic_ms()
        self._scan = Periodic("silent brokers", scan_interval_ms, self.remove_silent, clock)

    def start(self) -> None:
        """Start to scan for silent brokers."""
        self._scan.start()

    async def stop(self) -> None:
        """Stop the scan."""
        await self._scan.stop()

    def remove_silent(self) -> None:
        """Remove brokers that have been silent, and forget those missing, for too long."""
        self._registry.forget_expired()
        now_ms = self._clock.monotonic_ms()
        late_ms = now_ms - self._last_scan_ms - self._scan_interval_ms
        self._last_scan_ms = now_ms
        if late_ms > self._scan_interval_ms:
            # This process was stalled: reports may wait in the sockets, so read those first.
            log.warning("scan for silent brokers postponed late=%d ms", late_ms)
            return
        for live in self._registry.silent_brokers(now_ms=now_ms):
            log.warning(
                "broker silent name=%s address=%s limit=%d ms",
                live.broker_name,
                live.key.address,
                live.silence_ms_max,
            )
            self._registry.lose(live)
            live.connection.abort()

    def on_open(self, connection: Connection) -> None:
        """Nothing to do: no broker has reported on it yet."""

    def on_idle(self, connection: Connection) -> None:
        """Nothing to do: the connection is closed next."""

    def on_close(self, connection: Connection, error: Exception | None) -> None:
        """Remove the brokers that reported on the connection."""
        for live in self._registry.brokers_on(connection):
            log.warning(
                "broker connection closed name=%s address=%s reason=%s",
                live.broker_name,
                live.key.address,
                error or "the broker closed it without unregistering",
            )
            self._registry.lose(live)
