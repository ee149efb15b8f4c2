"""The listening socket: accepts connections, and detects which speak TLS.

A connection counts as open once it is admitted: where TLS is possible, after its first byte.

Threads: one event loop.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from typing import TYPE_CHECKING, Final

from orbitmq.clock import time_limit
from orbitmq.errors import ProtocolError, StateError
from orbitmq.lifecycle import OwnedTasks
from orbitmq.transport.addresses import format_address
from orbitmq.transport.listening import listen_on
from orbitmq.transport.tls import TLS_FIRST_BYTE

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.clock import Clock, TimerHandle
    from orbitmq.transport.config import ServerConfig
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.connections import Connections
    from orbitmq.transport.tls import TlsServer

log = logging.getLogger(__name__)

# Connections accepted in one turn of the loop, so that a rush does not stall open connections.
_ACCEPTS_PER_TURN: Final = 64
_HANDSHAKE_TIMEOUT_MS: Final = 10_000.0
_ACCEPT_RETRY_MS: Final = 1000.0
_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Acceptor:
    """Listens on one port, and admits the connections it accepts."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        tls: TlsServer,
        clock: Clock,
        connections: Connections,
        new_connection: Callable[[], Connection],
    ) -> None:
        self._config = config
        self._tls = tls
        self._clock = clock
        self._connections = connections
        self._new_connection = new_connection
        self._listening: socket.socket | None = None
        self._retry: TimerHandle | None = None
        self._admissions = OwnedTasks()

    @property
    def port(self) -> int:
        """The port listened on."""
        if self._listening is None:
            raise StateError("the server does not listen", hint="start it first")
        return int(self._listening.getsockname()[1])

    @property
    def admitting(self) -> int:
        """How many accepted connections are not admitted yet."""
        return len(self._admissions)

    def start(self) -> None:
        """Listen; raises SettingsError if the address is not available."""
        self._listening = listen_on(
            self._config.bind_address, self._config.listen_port, backlog=self._config.accept_backlog
        )
        asyncio.get_running_loop().add_reader(self._listening, self._accept)

    async def stop(self) -> None:
        """Stop listening, and drop connections that are not admitted yet."""
        listening, self._listening = self._listening, None
        if self._retry is not None:
            self._retry.cancel()
        if listening is not None:
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()
        await self._admissions.cancel()

    # --- accepting ----------------------------------------------------------------------------

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            if self._listening is None:
                return
            try:
                accepted, peer = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    self._pause(error)
                    return
                # A network error on one connection of the backlog; the next may be fine.
                log.info("connection not accepted reason=%s", error)
                continue
            self._start_admission(accepted, format_address(peer))

    def _start_admission(self, accepted: socket.socket, peer: str) -> None:
        if len(self._connections) + len(self._admissions) >= self._config.connections_max:
            self._connections.warnings.warn(
                "connection refused peer=%s limit=serverConnectionsMax open=%d",
                peer,
                self._config.connections_max,
            )
            accepted.close()
            return
        accepted.settimeout(0)
        self._admissions.start(self._admit(accepted, peer), name=f"admission of {peer}")

    def _pause(self, error: OSError) -> None:
        # The backlog stays readable: without a pause the loop would spin on it.
        log.error("accepting paused reason=%s hint=raise the limit on open files", error)
        assert self._listening is not None
        asyncio.get_running_loop().remove_reader(self._listening)
        self._retry = self._clock.call_later(_ACCEPT_RETRY_MS, self._resume)

    def _resume(self) -> None:
        self._retry = None
        if self._listening is not None:
            asyncio.get_running_loop().add_reader(self._listening, self._accept)

    # --- admitting ----------------------------------------------------------------------------

    async def _admit(self, accepted: socket.socket, peer: str) -> None:
        """Find out whether a new connection speaks TLS, and open it."""
        try:
            context = await self._context_for(accepted)
            connection = self._new_connection()
        except BaseException as error:
            accepted.close()
            if not self._log_if_expected(error, peer):
                raise
            return
        # From here on the loop owns the socket, and closes it if something fails.
        loop = asyncio.get_running_loop()
        try:
            async with time_limit(self._clock, _HANDSHAKE_TIMEOUT_MS):
                await loop.connect_accepted_socket(lambda: connection, accepted, ssl=context)
        except BaseException as error:
            connection.abandon()
            if not self._log_if_expected(error, peer):
                raise

    async def _context_for(self, accepted: socket.socket) -> ssl.SSLContext | None:
        if not self._tls.needs_first_byte:
            return None
        async with time_limit(self._clock, self._config.idle_seconds_max * 1000):
            first_byte = await _first_byte(accepted)
            if first_byte == TLS_FIRST_BYTE:
                await self._tls.refresh()
            return self._tls.context_for(first_byte)

    def _log_if_expected(self, error: BaseException, peer: str) -> bool:
        """Log an error that the peer caused; False for any other error."""
        match error:
            case TimeoutError():
                log.info("connection closed before it was admitted peer=%s reason=silence", peer)
            case ssl.SSLError() | ProtocolError():
                self._connections.warnings.warn(
                    "connection closed for bad input peer=%s reason=%s", peer, error
                )
            case OSError():
                log.debug("connection lost before it was admitted peer=%s reason=%s", peer, error)
            case _:
                return False
        return True


async def _first_byte(accepted: socket.socket) -> bytes:
    """Wait for the first byte and peek at it; empty if the peer closed."""
    loop = asyncio.get_running_loop()
    while True:
        readable: asyncio.Future[None] = loop.create_future()
        loop.add_reader(accepted, _wake, readable)
        try:
            await readable
        finally:
            loop.remove_reader(accepted)
        try:
            return accepted.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            continue


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
