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
    """Is told of the connections that come and go; what it raises is logged and changes nothing."""

    def on_open(self, connection: Connection) -> None:
        """A connection is ready."""

    def on_idle(self, connection: Connection) -> None:
        """A connection was silent for too long and is about to be closed."""

    def on_close(self, connection: Connection, error: Exception | None) -> None:
        """A connection is gone."""


class NobodyListens:
    """A listener that does nothing with what it is told."""

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
        self._listener = listener or NobodyListens()
        # Shared by all connections: a stranger may open as many as it likes.
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
        # A copy: what is done to one connection may close others.
        return iter(tuple(self._open))

    def start(self) -> None:
        """Begin to look for idle connections."""
        self._idle_sweep.start()

    def opened(self, connection: Connection) -> None:
        """Take a new connection in."""
        self._open.add(connection)
        self._none_open.clear()
        try:
            connection.set_socket_options(
                send_buffer_bytes=self._send_buffer_bytes,
                receive_buffer_bytes=self._receive_buffer_bytes,
            )
        except OSError as error:
            connection.abort(f"its socket takes no options: {error}")
        log.debug("connection opened peer=%s", connection.address)
        _tell(self._listener.on_open, connection)

    def closed(self, connection: Connection, error: Exception | None) -> None:
        """Let a connection that is gone go."""
        self._open.discard(connection)
        if not self._open:
            self._none_open.set()
        log.debug("connection closed peer=%s error=%s", connection.address, error)
        _tell(self._listener.on_close, connection, error)

    async def stop(self, timeout_ms: float) -> None:
        """Close all once what they wrote is sent, and cut those that take too long."""
        await self._idle_sweep.stop()
        for connection in self:
            connection.close()
        try:
            async with time_limit(self._clock, timeout_ms):
                await self._none_open.wait()
        except TimeoutError:
            for connection in self:
                log.warning("connection cut with unsent bytes peer=%s", connection.address)
            self.abort()
            await self._none_open.wait()
        finally:
            self.warnings.end_second()

    def abort(self) -> None:
        """Cut all at once."""
        for connection in self:
            connection.abort()

    def _close_idle(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for connection in self:
            if now_ms - connection.active_ms(now_ms) < self._idle_ms_max:
                continue
            log.info("idle connection closed peer=%s", connection.address)
            _tell(self._listener.on_idle, connection)
            # It may be idle because the peer does not read: waiting for that would be in vain.
            connection.abort("it was idle for too long")


def _tell(event: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    try:
        event(*args, **kwargs)
    except Exception:
        log.exception("connection listener failed")
