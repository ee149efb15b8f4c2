"""The server side: listens, admits connections, serves them, closes the idle ones.

Threads: one event loop.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from typing import TYPE_CHECKING, Final, Protocol

from orbitmq.clock import SystemClock
from orbitmq.errors import SettingsError, StateError
from orbitmq.lifecycle import OwnedTasks, Periodic
from orbitmq.transport.config import ServerConfig, TlsServerConfig
from orbitmq.transport.connection import Connection, format_address
from orbitmq.transport.limits import ByteBudget, CallBudgets, ConnectionLimits
from orbitmq.transport.request_loop import RequestLoop
from orbitmq.transport.tls import TlsServer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orbitmq.clock import Clock
    from orbitmq.transport.connection import Processor
    from orbitmq.transport.hooks import RpcHook
    from orbitmq.transport.request_loop import Handler

log = logging.getLogger(__name__)

# Connections accepted in one turn of the loop, so that a rush of them does not stall the others.
_ACCEPTS_PER_TURN: Final = 64
_HANDSHAKE_TIMEOUT_SECONDS: Final = 10.0
_ACCEPT_RETRY_MS: Final = 1000.0
_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class ConnectionListener(Protocol):
    """Is told of the connections that come and go."""

    def on_open(self, connection: Connection) -> None:
        """A connection is ready."""

    def on_idle(self, connection: Connection) -> None:
        """A connection was silent for too long and is about to be closed."""

    def on_close(self, connection: Connection, error: Exception | None) -> None:
        """A connection is gone."""


class RpcServer:
    """Serves requests on one port."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        *,
        config: ServerConfig | None = None,
        tls: TlsServerConfig | None = None,
        clock: Clock | None = None,
        hooks: Sequence[RpcHook] = (),
        listener: ConnectionListener | None = None,
        processor: Processor | None = None,
    ) -> None:
        self._config = config or ServerConfig()
        self._clock = clock or SystemClock()
        self._tls = TlsServer(tls or TlsServerConfig(), self._clock)
        self._listener = listener
        self._requests = RequestLoop(handlers, hooks)
        self._processor = processor or self._requests
        self._limits = ConnectionLimits(
            frame_bytes_max=self._config.frame_bytes_max,
            work_bytes_max=self._config.connection_work_bytes_max,
            write_high_water_bytes=self._config.write_high_water_bytes,
            write_bytes_max=self._config.write_bytes_max,
        )
        self.kept_bytes = ByteBudget(self._config.total_work_bytes_max)
        self.calls = CallBudgets(
            oneway_max=self._config.oneway_calls_max, unanswered_max=self._config.async_calls_max
        )
        self._listening: socket.socket | None = None
        self._connections: set[Connection] = set()
        self._all_closed = asyncio.Event()
        self._all_closed.set()
        self._admissions = OwnedTasks()
        idle_ms = self._config.idle_seconds_max * 1000
        self._idle_sweep = Periodic("idle connections", idle_ms / 12, self._close_idle, self._clock)

    @property
    def port(self) -> int:
        """The port listened on."""
        if self._listening is None:
            raise StateError("the server does not listen", hint="start it first")
        return int(self._listening.getsockname()[1])

    @property
    def connections(self) -> frozenset[Connection]:
        """The connections open now."""
        return frozenset(self._connections)

    async def start(self) -> None:
        """Listen; returns once connections are accepted."""
        if self._listening is not None:
            raise StateError("the server is already started")
        self._listening = _listen(self._config)
        asyncio.get_running_loop().add_reader(self._listening, self._accept)
        self._idle_sweep.start()

    async def stop(self) -> None:
        """Take nothing new, finish what is under way, then close."""
        if self._listening is None:
            return
        asyncio.get_running_loop().remove_reader(self._listening)
        self._listening.close()
        self._listening = None
        grace_ms = self._config.shutdown_grace_seconds * 1000
        await self._idle_sweep.stop()
        await self._admissions.finish(0)
        for connection in self.connections:
            connection.stop_reading()
        await self._requests.deferred.finish(grace_ms)
        await self._close_all(grace_ms)

    async def _close_all(self, grace_ms: float) -> None:
        """Close every connection once its replies are sent, and cut those that take too long."""
        for connection in self.connections:
            connection.close()
        try:
            async with asyncio.timeout(grace_ms / 1000):
                await self._all_closed.wait()
        except TimeoutError:
            for connection in self.connections:
                log.warning("connection cut with unsent bytes peer=%s", connection.address)
                connection.abort()
            await self._all_closed.wait()

    # --- accepting ----------------------------------------------------------------------------

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            if self._listening is None:
                return
            try:
                accepted, peer = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    raise
                self._pause_accepting(error)
                return
            if len(self._connections) + len(self._admissions) >= self._config.connections_max:
                log.warning(
                    "connection refused peer=%s open=%d limit=serverConnectionsMax",
                    format_address(peer),
                    self._config.connections_max,
                )
                accepted.close()
                continue
            self._admissions.start(
                self._admit(accepted), name=f"admission of {format_address(peer)}"
            )

    def _pause_accepting(self, error: OSError) -> None:
        log.error("accepting paused reason=%s hint=raise the limit on open files", error)
        loop = asyncio.get_running_loop()
        if self._listening is None:
            return
        loop.remove_reader(self._listening)

        def resume() -> None:
            if self._listening is not None:
                loop.add_reader(self._listening, self._accept)

        self._clock.call_later(_ACCEPT_RETRY_MS, resume)

    async def _admit(self, accepted: socket.socket) -> None:
        """Find out how a new connection wants to talk, and start serving it."""
        try:
            accepted.settimeout(0)
            context = None
            if self._tls.looks_at_first_byte:
                first_byte = await self._first_byte(accepted)
                if not first_byte or not self._tls.accepts(first_byte):
                    accepted.close()
                    return
                context = self._tls.context_for(first_byte)
            await asyncio.get_running_loop().connect_accepted_socket(
                self._new_connection,
                accepted,
                ssl=context,
                ssl_handshake_timeout=_HANDSHAKE_TIMEOUT_SECONDS if context else None,
            )
        except (OSError, ssl.SSLError) as error:
            log.info("connection not admitted reason=%s", error)
            accepted.close()
        except asyncio.CancelledError:
            accepted.close()
            raise

    async def _first_byte(self, accepted: socket.socket) -> bytes:
        """Wait for the first byte and look at it without taking it; empty when none comes."""
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[bool] = loop.create_future()

        def settle(*, arrived: bool) -> None:
            if not readable.done():
                readable.set_result(arrived)

        loop.add_reader(accepted, lambda: settle(arrived=True))
        timer = self._clock.call_later(
            self._config.idle_seconds_max * 1000, lambda: settle(arrived=False)
        )
        try:
            if not await readable:
                return b""
            return accepted.recv(1, socket.MSG_PEEK)
        finally:
            timer.cancel()
            loop.remove_reader(accepted)

    def _new_connection(self) -> Connection:
        return Connection(
            processor=self._processor,
            limits=self._limits,
            kept_bytes=self.kept_bytes,
            calls=self.calls,
            clock=self._clock,
            on_open=self._opened,
            on_close=self._closed,
        )

    # --- connections --------------------------------------------------------------------------

    def _opened(self, connection: Connection) -> None:
        connection.set_socket_options(
            send_buffer_bytes=self._config.send_buffer_bytes,
            receive_buffer_bytes=self._config.receive_buffer_bytes,
        )
        self._connections.add(connection)
        self._all_closed.clear()
        log.debug("connection opened peer=%s", connection.address)
        if self._listener is not None:
            self._listener.on_open(connection)

    def _closed(self, connection: Connection, error: Exception | None) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._all_closed.set()
        log.debug("connection closed peer=%s error=%s", connection.address, error)
        if self._listener is not None:
            self._listener.on_close(connection, error)

    def _close_idle(self) -> None:
        idle_since_ms = self._clock.monotonic_ms() - self._config.idle_seconds_max * 1000
        for connection in self.connections:
            if connection.last_active_ms <= idle_since_ms:
                log.info("idle connection closed peer=%s", connection.address)
                if self._listener is not None:
                    self._listener.on_idle(connection)
                # It may be idle because the peer does not read: waiting for that would be in vain.
                connection.abort()


def _listen(config: ServerConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.bind_address else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((config.bind_address, config.listen_port))
        listening.listen(config.accept_backlog)
        listening.settimeout(0)
    except OSError as error:
        listening.close()
        raise SettingsError(
            f"cannot listen on {config.bind_address}:{config.listen_port}: {error.strerror}",
            hint="another process may use the port, or the address is not of this machine",
        ) from error
    return listening
