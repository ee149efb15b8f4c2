"""All open connections of a server or client: their events, and their end.

Threads: one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ParamSpec, Protocol

from orbitmq.clock import time_limit
from orbitmq.lifecycle import Periodic
from orbitmq.transport.warning_limit import WarningLimit

if TYPE_CHECKING:
    from orbitmq.clock import Clock
    from orbitmq.transport.connection import Connection

log = logging.getLogger(__name__)

P = ParamSpec("P")


class ConnectionListener(Protocol):
    """Notified of connections that open and close; errors it raises are only logged."""

    def on_open(self, connection: Connection) -> None:
        """A connection is ready."""

    def on_idle(self, connection: Connection) -> None:
        """A connection was silent for too long and is about to be closed."""

    def on_close(self, connection: Connection, error: Exception | None) -> None:
        """A connection is gone."""


class NoListener:
    """A listener that does nothing."""

    def on_open(self, connection: Connection) -> None:
        """A connection is ready."""

    def on_idle(self, connection: Connection) -> None:
        """A connection was silent for too long and is about to be closed."""

    def on_close(self, connection: Connection, error: Exception | None) -> None:
        """A connection is gone."""


class Connections:
    """The connections that are open or still sending their last bytes."""

    def __init__(
        self,
        *,
        idle_seconds_max: int,
        send_buffer_bytes: int,
        receive_buffer_bytes: int,
        clock: Clock,
        listener: ConnectionListener | None,
    ) -> None:
        self._idle_ms_max = idle_seconds_max * 1000
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._clock = clock
        self._listener = listener or NoListener()
        # Shared by all connections: an untrusted peer may open as many as it likes.
        self.warnings = WarningLimit(clock, "connections closed for bad input or refused")
        self._open: set[Connection] = set()
        self._none_open = asyncio.Event()
        self._none_open.set()
        self._idle_sweep = Periodic(
            "idle connections", self._idle_ms_max / 12, self._close_idle, clock
        )

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        # A copy: the loop body may close connections.
        return iter(tuple(self._open))

    def start(self) -> None:
        """Start to look for idle connections."""
        self._idle_sweep.start()

    def opened(self, connection: Connection) -> None:
        """Add a new connection."""
        self._open.add(connection)
        self._none_open.clear()
        try:
            connection.set_socket_options(
                send_buffer_bytes=self._send_buffer_bytes,
                receive_buffer_bytes=self._receive_buffer_bytes,
            )
        except OSError as error:
            connection.abort(f"its socket options could not be set: {error}")
        log.debug("connection opened peer=%s", connection.address)
        _notify(self._listener.on_open, connection)

    def closed(self, connection: Connection, error: Exception | None) -> None:
        """Drop a closed connection."""
        self._open.discard(connection)
        if not self._open:
            self._none_open.set()
        log.debug("connection closed peer=%s error=%s", connection.address, error)
        _notify(self._listener.on_close, connection, error)

    async def stop(self, timeout_ms: float) -> None:
        """Close all once their unsent bytes are sent, and abort those that take too long."""
        await self._idle_sweep.stop()
        for connection in self:
            connection.close()
        try:
            async with time_limit(self._clock, timeout_ms):
                await self._none_open.wait()
        except TimeoutError:
            for connection in self:
                log.warning("connection aborted with unsent bytes peer=%s", connection.address)
            self.abort()
            await self._none_open.wait()
        finally:
            self.warnings.end_second()

    def abort(self) -> None:
        """Abort all at once."""
        for connection in self:
            connection.abort()

    def _close_idle(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for connection in self:
            if now_ms - connection.active_ms(now_ms) < self._idle_ms_max:
                continue
            log.info("idle connection closed peer=%s", connection.address)
            _notify(self._listener.on_idle, connection)
            # It may be idle because the peer does not read: there is no point in waiting for that.
            connection.abort("it was idle for too long")


def _notify(event: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    try:
        event(*args, **kwargs)
    except Exception:
        log.exception("connection listener failed")
