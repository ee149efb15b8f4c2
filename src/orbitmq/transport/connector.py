"""One connection per address, shared by all callers.

It is kept for later calls, and made again after it is lost.

Threads: one event loop.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from typing import TYPE_CHECKING

from orbitmq.clock import time_limit
from orbitmq.errors import ConnectError
from orbitmq.lifecycle import OwnedTasks
from orbitmq.transport.addresses import parse_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.clock import Clock
    from orbitmq.transport.connection import Connection


class Connector:
    """Makes and keeps the connections of a client."""

    def __init__(
        self,
        *,
        connect_timeout_ms: float,
        context: ssl.SSLContext | None,
        clock: Clock,
        new_connection: Callable[[str], Connection],
    ) -> None:
        self._connect_timeout_ms = connect_timeout_ms
        self._context = context
        self._clock = clock
        self._new_connection = new_connection
        self._made: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Future[Connection]] = {}
        self._tasks = OwnedTasks()

    @property
    def connected(self) -> frozenset[str]:
        """The addresses that have a connection."""
        return frozenset(self._made)

    def existing(self, address: str) -> Connection | None:
        """Return the connection to an address, or None if there is no usable one."""
        connection = self._made.get(address)
        return None if connection is None or connection.closed else connection

    async def connection(self, address: str) -> Connection:
        """Return the connection to an address, connecting if there is none."""
        connection = self.existing(address)
        if connection is not None:
            return connection
        made = self._connecting.get(address)
        if made is None:
            host, port = parse_address(address)
            made = asyncio.get_running_loop().create_future()
            self._connecting[address] = made
            self._tasks.start(
                self._connect(address, host, port, made), name=f"connect to {address}"
            )
        # A cancelled caller must not cancel the connection for the others.
        return await asyncio.shield(made)

    def forget(self, connection: Connection) -> None:
        """Drop a lost connection."""
        if self._made.get(connection.address) is connection:
            del self._made[connection.address]

    async def stop(self) -> None:
        """Cancel the connections in progress; their callers get a ConnectError."""
        await self._tasks.cancel()

    async def _connect(
        self, address: str, host: str, port: int, made: asyncio.Future[Connection]
    ) -> None:
        reason = "the client is stopping"
        cause: Exception | None = None
        connected = False
        connection = self._new_connection(address)
        try:
            async with time_limit(self._clock, self._connect_timeout_ms):
                await asyncio.get_running_loop().create_connection(
                    lambda: connection, host, port, ssl=self._context
                )
            connected = True
        except TimeoutError as error:
            reason, cause = f"no connection within {self._connect_timeout_ms:.0f} ms", error
        # ValueError: an invalid host name, or a certificate that does not match it.
        except (OSError, ValueError) as error:
            reason, cause = _reason(error), error
        finally:
            del self._connecting[address]
            if connected:
                # It may be lost again already; its callers find out by using it.
                if not connection.closed:
                    self._made[address] = connection
                made.set_result(connection)
            else:
                connection.abandon()
                failure = ConnectError(address, reason)
                failure.__cause__ = cause
                made.set_exception(failure)
                # All callers may be cancelled; reading it keeps asyncio from warning.
                made.exception()


def _reason(error: OSError | ValueError) -> str:
    """What the system says, which asyncio replaces by its own words."""
    if isinstance(error, socket.gaierror):
        return str(error.strerror)
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
