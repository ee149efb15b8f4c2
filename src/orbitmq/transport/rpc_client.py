"""The client side: one connection per address, calls in three forms.

    invoke              send and wait for the answer
    invoke_callback     send; a function gets the answer or the error
    invoke_oneway       send; there is no answer

A connection is made when the first call needs it, once however many callers ask for it, kept for
the next calls, and made again after it was lost.

Threads: one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, Final

from orbitmq.clock import SystemClock
from orbitmq.errors import CallTimeoutError, ConnectError, OrbitError, StateError
from orbitmq.lifecycle import OwnedTasks, Periodic
from orbitmq.protocol.codes import request_name
from orbitmq.protocol.command import Command, request
from orbitmq.protocol.failures import raise_for_failure
from orbitmq.transport.addresses import parse_address
from orbitmq.transport.config import ClientConfig, TlsClientConfig
from orbitmq.transport.connection import Connection
from orbitmq.transport.limits import ByteBudget, CallBudgets, ConnectionLimits
from orbitmq.transport.request_loop import RequestLoop
from orbitmq.transport.tls import client_context

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orbitmq.clock import Clock
    from orbitmq.protocol.headers import Header
    from orbitmq.transport.hooks import RpcHook
    from orbitmq.transport.pending_calls import OnDone
    from orbitmq.transport.request_loop import Handler
    from orbitmq.transport.rpc_server import ConnectionListener

log = logging.getLogger(__name__)

CALL_TIMEOUT_MS: Final = 3000.0
# What servers send to a client is small; this bounds it all the same.
_WORK_BYTES_MAX: Final = 256 * 1024 * 1024


class RpcClient:
    """Calls servers by address."""

    def __init__(
        self,
        *,
        config: ClientConfig | None = None,
        tls: TlsClientConfig | None = None,
        clock: Clock | None = None,
        handlers: Mapping[int, Handler] | None = None,
        hooks: Sequence[RpcHook] = (),
        listener: ConnectionListener | None = None,
    ) -> None:
        self._config = config or ClientConfig()
        self._clock = clock or SystemClock()
        self._context = client_context(tls or TlsClientConfig())
        self._hooks = tuple(hooks)
        self._listener = listener
        self._requests = RequestLoop(handlers or {})
        self._limits = ConnectionLimits(
            frame_bytes_max=self._config.frame_bytes_max,
            work_bytes_max=_WORK_BYTES_MAX,
            write_high_water_bytes=self._config.write_high_water_bytes,
            write_bytes_max=self._config.write_bytes_max,
        )
        self._kept_bytes = ByteBudget(_WORK_BYTES_MAX)
        self.calls = CallBudgets(
            oneway_max=self._config.oneway_calls_max, unanswered_max=self._config.async_calls_max
        )
        self._open: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Task[Connection]] = {}
        self._tasks = OwnedTasks()
        self._all_closed = asyncio.Event()
        self._stopped = False
        idle_ms = self._config.idle_seconds_max * 1000
        self._idle_sweep = Periodic("idle connections", idle_ms / 12, self._close_idle, self._clock)

    async def __aenter__(self) -> RpcClient:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Make ready; connections are made by the calls that need them."""
        self._idle_sweep.start()

    async def stop(self) -> None:
        """Finish the calls under way, then close every connection."""
        if self._stopped:
            return
        self._stopped = True
        grace_seconds = self._config.shutdown_grace_seconds
        await self._idle_sweep.stop()
        for connecting in list(self._connecting.values()):
            connecting.cancel()
        await self._answered(grace_seconds)
        await self._tasks.finish(grace_seconds * 1000)
        await self._requests.deferred.finish(grace_seconds * 1000)
        for connection in list(self._open.values()):
            connection.close()
        if self._open:
            try:
                async with asyncio.timeout(grace_seconds):
                    await self._all_closed.wait()
            except TimeoutError:
                for connection in list(self._open.values()):
                    connection.abort()

    # --- calls --------------------------------------------------------------------------------

    async def call(
        self,
        address: str,
        header: Header,
        body: bytes = b"",
        *,
        timeout_ms: float = CALL_TIMEOUT_MS,
    ) -> Command:
        """Send a typed request; return the answer, or raise what its failure code stands for."""
        asked = request(header, body)
        response = await self.invoke(address, asked, timeout_ms=timeout_ms)
        raise_for_failure(asked, response, address)
        return response

    async def invoke(
        self, address: str, request: Command, *, timeout_ms: float = CALL_TIMEOUT_MS
    ) -> Command:
        """Send a request and wait for the answer; the time given covers connecting too."""
        started_ms = self._clock.monotonic_ms()
        self._before(address, request)
        response: Command | None = None
        try:
            connection = await self.connection(address, timeout_ms=timeout_ms)
            if connection.writing_paused:
                await self._drained(connection, request, timeout_ms)
            left_ms = timeout_ms - (self._clock.monotonic_ms() - started_ms)
            if left_ms <= 0:
                raise CallTimeoutError(address, request_name(request.code), timeout_ms)
            response = await connection.ask(request, left_ms)
        finally:
            self._after(address, request, response)
        return response

    def invoke_callback(
        self,
        address: str,
        request: Command,
        on_done: OnDone,
        *,
        timeout_ms: float = CALL_TIMEOUT_MS,
    ) -> None:
        """Send a request; `on_done` gets the answer, or the error that took its place."""
        self._check_running()
        self._tasks.start(
            self._invoke_then(address, request, on_done, timeout_ms),
            name=f"{request_name(request.code)} to {address}",
        )

    async def _invoke_then(
        self, address: str, request: Command, on_done: OnDone, timeout_ms: float
    ) -> None:
        outcome: Command | OrbitError
        try:
            outcome = await self.invoke(address, request, timeout_ms=timeout_ms)
        except OrbitError as error:
            outcome = error
        on_done(outcome)

    async def invoke_oneway(
        self, address: str, request: Command, *, timeout_ms: float = CALL_TIMEOUT_MS
    ) -> None:
        """Send a request that nobody answers; returns once it is on its way."""
        self._before(address, request)
        connection = await self.connection(address, timeout_ms=timeout_ms)
        connection.call_oneway(request)
        self._after(address, request, None)

    # --- connections --------------------------------------------------------------------------

    async def connection(self, address: str, *, timeout_ms: float = CALL_TIMEOUT_MS) -> Connection:
        """Return the connection to an address, made now if there is none."""
        self._check_running()
        connection = self._open.get(address)
        if connection is not None and not connection.closed:
            return connection
        connecting = self._connecting.get(address)
        if connecting is None:
            connecting = asyncio.get_running_loop().create_task(
                self._connect(address), name=f"connect to {address}"
            )
            self._connecting[address] = connecting
            connecting.add_done_callback(lambda _: self._connecting.pop(address, None))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                # A caller that gives up must not take the connection from the others.
                return await asyncio.shield(connecting)
        except TimeoutError as error:
            raise ConnectError(address, f"no connection within {timeout_ms:.0f} ms") from error

    @property
    def connected(self) -> frozenset[str]:
        """The addresses there is a connection to."""
        return frozenset(self._open)

    async def _connect(self, address: str) -> Connection:
        host, port = parse_address(address)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._config.connect_timeout_ms / 1000):
                _, connection = await loop.create_connection(
                    lambda: self._new_connection(address), host, port, ssl=self._context
                )
        except TimeoutError as error:
            timeout_ms = self._config.connect_timeout_ms
            raise ConnectError(address, f"no connection within {timeout_ms} ms") from error
        except (OSError, ssl.SSLError) as error:
            raise ConnectError(address, str(error)) from error
        return connection

    def _new_connection(self, address: str) -> Connection:
        return Connection(
            processor=self._requests,
            limits=self._limits,
            kept_bytes=self._kept_bytes,
            calls=self.calls,
            clock=self._clock,
            on_open=self._opened,
            on_close=self._closed,
            address=address,
        )

    def _opened(self, connection: Connection) -> None:
        connection.set_socket_options(
            send_buffer_bytes=self._config.send_buffer_bytes,
            receive_buffer_bytes=self._config.receive_buffer_bytes,
        )
        self._open[connection.address] = connection
        self._all_closed.clear()
        log.debug("connected peer=%s", connection.address)
        if self._listener is not None:
            self._listener.on_open(connection)

    def _closed(self, connection: Connection, error: Exception | None) -> None:
        if self._open.get(connection.address) is connection:
            del self._open[connection.address]
        if not self._open:
            self._all_closed.set()
        log.debug("disconnected peer=%s error=%s", connection.address, error)
        if self._listener is not None:
            self._listener.on_close(connection, error)

    def _close_idle(self) -> None:
        idle_since_ms = self._clock.monotonic_ms() - self._config.idle_seconds_max * 1000
        for connection in list(self._open.values()):
            if connection.last_active_ms <= idle_since_ms:
                if self._listener is not None:
                    self._listener.on_idle(connection)
                connection.abort()

    # --- inside -------------------------------------------------------------------------------

    def _check_running(self) -> None:
        if self._stopped:
            raise StateError("the client is stopped", hint="make a new one")

    def _before(self, address: str, request: Command) -> None:
        self._check_running()
        for hook in self._hooks:
            hook.before_request(address, request)

    def _after(self, address: str, request: Command, response: Command | None) -> None:
        for hook in self._hooks:
            hook.after_response(address, request, response)

    async def _drained(self, connection: Connection, request: Command, timeout_ms: float) -> None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await connection.drained()
        except TimeoutError as error:
            name = request_name(request.code)
            raise CallTimeoutError(connection.address, name, timeout_ms) from error

    async def _answered(self, grace_seconds: float) -> None:
        """Wait until no call is under way, or the grace is over."""
        try:
            async with asyncio.timeout(grace_seconds):
                for connection in list(self._open.values()):
                    await connection.all_answered()
        except TimeoutError:
            log.warning("stopped with calls unanswered count=%d", self.calls.unanswered.under_way)
