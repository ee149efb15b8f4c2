"""The client side: one connection per address, calls in three forms.

    invoke              send and wait for the answer
    invoke_callback     send; a function gets the answer or the error
    invoke_oneway       send; there is no answer

The timeout of a call covers all its waits: for a connection, for a slow reader, for the answer.

Threads: one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from orbitmq.clock import SystemClock, time_limit
from orbitmq.errors import (
    CallTimeoutError,
    ConnectError,
    ConnectionLostError,
    OrbitError,
)
from orbitmq.lifecycle import OwnedTasks, RunOnce
from orbitmq.protocol.codes import request_name
from orbitmq.protocol.command import Command, request
from orbitmq.protocol.failures import raise_for_failure
from orbitmq.transport.config import ClientConfig, TlsClientConfig
from orbitmq.transport.connection import Connection
from orbitmq.transport.connections import ConnectionListener, Connections
from orbitmq.transport.connector import Connector
from orbitmq.transport.limits import ByteBudget, CallBudgets, ConnectionLimits
from orbitmq.transport.pending_calls import OnDone, notify
from orbitmq.transport.request_loop import RequestLoop
from orbitmq.transport.tls import client_context

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orbitmq.clock import Clock
    from orbitmq.protocol.headers import Header
    from orbitmq.transport.hooks import RpcHook
    from orbitmq.transport.request_loop import Handler

log = logging.getLogger(__name__)

CALL_TIMEOUT_MS: Final = 3000.0
# Requests of servers to a client are small; this bounds them anyway.
_WORK_BYTES_MAX: Final = 256 * 1024 * 1024
# Compat: Java's client closes a connection after one unanswered call, which takes as long.
_SILENCE_MS_MAX: Final = CALL_TIMEOUT_MS


class RpcClient:
    """Calls servers by address; started once, stopped once."""

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
        self._state = RunOnce("the client")
        self._hooks = tuple(hooks)
        self._requests = RequestLoop(handlers or {})
        self._limits = ConnectionLimits(
            frame_bytes_max=self._config.frame_bytes_max,
            work_bytes_max=_WORK_BYTES_MAX,
            write_high_water_bytes=self._config.write_high_water_bytes,
            write_bytes_max=self._config.write_bytes_max,
            silence_ms_max=_SILENCE_MS_MAX,
        )
        self.kept_bytes = ByteBudget(_WORK_BYTES_MAX)
        self.calls = CallBudgets(
            oneway_max=self._config.oneway_calls_max, unanswered_max=self._config.async_calls_max
        )
        self._connections = Connections(
            idle_seconds_max=self._config.idle_seconds_max,
            send_buffer_bytes=self._config.send_buffer_bytes,
            receive_buffer_bytes=self._config.receive_buffer_bytes,
            clock=self._clock,
            listener=listener,
        )
        self._connector = Connector(
            connect_timeout_ms=self._config.connect_timeout_ms,
            context=client_context(tls or TlsClientConfig()),
            clock=self._clock,
            new_connection=self._new_connection,
        )
        self._callbacks = OwnedTasks()

    async def __aenter__(self) -> RpcClient:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start; calls make the connections that they need."""
        self._state.begin()
        self._connections.start()

    async def stop(self) -> None:
        """Finish the calls in flight, then close every connection; all within the grace."""
        if not await self._state.begin_stop():
            return
        try:
            await self._finish()
        finally:
            self._connections.abort()
            self._state.end_stop()

    async def _finish(self) -> None:
        grace_ms = self._config.shutdown_grace_seconds * 1000
        end_ms = self._clock.monotonic_ms() + grace_ms
        await self._connector.stop()
        try:
            async with time_limit(self._clock, grace_ms):
                await self._callbacks.all_done()
                for connection in self._connections:
                    await connection.all_answered()
                await self._requests.deferred.all_done()
        except TimeoutError:
            log.warning("stopped with calls unanswered count=%d", self.calls.unanswered.in_flight)
        await self._callbacks.cancel()
        await self._requests.deferred.cancel()
        await self._connections.stop(end_ms - self._clock.monotonic_ms())

    # --- calls --------------------------------------------------------------------------------

    async def call(
        self,
        address: str,
        header: Header,
        body: bytes = b"",
        *,
        timeout_ms: float = CALL_TIMEOUT_MS,
    ) -> Command:
        """Send a typed request; return the answer, or raise the error of its failure code."""
        asked = request(header, body)
        response = await self.invoke(address, asked, timeout_ms=timeout_ms)
        raise_for_failure(asked, response, address)
        return response

    async def invoke(
        self, address: str, request: Command, *, timeout_ms: float = CALL_TIMEOUT_MS
    ) -> Command:
        """Send a request and wait for the answer."""
        self._before(address, request)
        try:
            connection, left_ms = await self._writable(address, request, timeout_ms)
            response = await connection.ask(request, left_ms)
        except BaseException:
            self._after_failure(address, request)
            raise
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
        """Send a request; `on_done` gets the answer or an error, once.

        The refusal of a hook is raised here; `on_done` never runs before this returns.
        """
        self._before(address, request)
        finish = partial(self._finish_callback, address, request, on_done)
        connection = self._connector.existing(address)
        if connection is None or connection.writing_paused:
            self._callbacks.start(
                self._call_when_writable(address, request, finish, timeout_ms),
                name=f"{request_name(request.code)} to {address}",
            )
            return
        try:
            connection.call(request, timeout_ms, finish)
        except OrbitError as error:
            asyncio.get_running_loop().call_soon(finish, error)

    async def invoke_oneway(
        self, address: str, request: Command, *, timeout_ms: float = CALL_TIMEOUT_MS
    ) -> None:
        """Send a request that nobody answers; returns once it is written."""
        self._before(address, request)
        try:
            with self.calls.oneway.one_to(address):
                connection, _ = await self._writable(address, request, timeout_ms)
            connection.call_oneway(request)
        except BaseException:
            self._after_failure(address, request)
            raise
        self._after(address, request, None)

    # --- connections --------------------------------------------------------------------------

    async def connection(self, address: str, *, timeout_ms: float = CALL_TIMEOUT_MS) -> Connection:
        """Return the connection to an address, connecting if there is none."""
        self._state.check_not_stopped()
        connection = self._connector.existing(address)
        if connection is not None:
            return connection
        try:
            async with time_limit(self._clock, timeout_ms):
                return await self._connector.connection(address)
        except TimeoutError as error:
            raise ConnectError(address, f"no connection within {timeout_ms:.0f} ms") from error

    def ready(self, address: str) -> Connection | None:
        """Return the connection to an address if a request may be written to it right now.

        None if there is no connection, if writing to it is paused, or if there are hooks, which
        must see every request: use `invoke` and the like then.
        """
        connection = self._connector.existing(address)
        if connection is None or connection.writing_paused:
            return None
        return None if self._hooks or self._state.stopping else connection

    @property
    def connected(self) -> frozenset[str]:
        """The addresses that have a connection."""
        return self._connector.connected

    def _new_connection(self, address: str) -> Connection:
        return Connection(
            processor=self._requests,
            limits=self._limits,
            kept_bytes=self.kept_bytes,
            calls=self.calls,
            clock=self._clock,
            warnings=self._connections.warnings,
            on_open=self._connections.opened,
            on_close=self._closed,
            address=address,
        )

    def _closed(self, connection: Connection, error: Exception | None) -> None:
        self._connector.forget(connection)
        self._connections.closed(connection, error)

    # --- inside -------------------------------------------------------------------------------

    async def _writable(
        self, address: str, request: Command, timeout_ms: float
    ) -> tuple[Connection, float]:
        """Return a connection that can be written to now, and how much time is left."""
        connection = self._connector.existing(address)
        if connection is not None and not connection.writing_paused:
            return connection, timeout_ms
        end_ms = self._clock.monotonic_ms() + timeout_ms
        connection = await self.connection(address, timeout_ms=timeout_ms)
        if connection.writing_paused:
            try:
                async with time_limit(self._clock, end_ms - self._clock.monotonic_ms()):
                    await connection.drained()
            except TimeoutError as error:
                raise CallTimeoutError(address, request_name(request.code), timeout_ms) from error
        return connection, end_ms - self._clock.monotonic_ms()

    async def _call_when_writable(
        self, address: str, request: Command, finish: OnDone, timeout_ms: float
    ) -> None:
        try:
            connection, left_ms = await self._writable(address, request, timeout_ms)
            connection.call(request, left_ms, finish)
        except OrbitError as error:
            finish(error)
        except asyncio.CancelledError:
            finish(ConnectionLostError(address, "the client is stopping"))
            raise
        except Exception as error:
            finish(OrbitError(f"the call to {address} could not be sent: {error!r}"))
            raise

    def _finish_callback(
        self, address: str, request: Command, on_done: OnDone, outcome: Command | OrbitError
    ) -> None:
        if isinstance(outcome, Command):
            try:
                self._after(address, request, outcome)
            except OrbitError as refused:
                outcome = refused
            except Exception as error:
                log.exception("hook failed call=%s", request_name(request.code))
                outcome = OrbitError(f"a hook failed on the answer: {error!r}")
        else:
            self._after_failure(address, request)
        notify(on_done, outcome)

    def _before(self, address: str, request: Command) -> None:
        self._state.check_not_stopped()
        for hook in self._hooks:
            hook.before_request(address, request)

    def _after(self, address: str, request: Command, response: Command | None) -> None:
        for hook in self._hooks:
            hook.after_response(address, request, response)

    def _after_failure(self, address: str, request: Command) -> None:
        try:
            self._after(address, request, None)
        except Exception:
            # The caller gets the first error.
            log.exception("hook failed after a failed call=%s", request_name(request.code))
