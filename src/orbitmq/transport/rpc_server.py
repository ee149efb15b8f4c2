"""The server side: serves requests on one port, and calls its clients.

Threads: one event loop.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.clock import SystemClock, time_limit
from orbitmq.lifecycle import RunOnce
from orbitmq.protocol.codes import ResponseCode
from orbitmq.transport.acceptor import Acceptor
from orbitmq.transport.config import ServerConfig, TlsServerConfig
from orbitmq.transport.connection import Connection
from orbitmq.transport.connections import ConnectionListener, Connections
from orbitmq.transport.limits import ByteBudget, CallBudgets, ConnectionLimits
from orbitmq.transport.request_loop import RequestLoop, stopping
from orbitmq.transport.tls import TlsServer
from orbitmq.transport.turns import SlowTurns
from orbitmq.transport.warning_limit import WarningLimit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orbitmq.clock import Clock
    from orbitmq.errors import OrbitError
    from orbitmq.transport.connection import Processor
    from orbitmq.transport.hooks import RpcHook
    from orbitmq.transport.request_loop import Handler

log = logging.getLogger(__name__)


class RpcServer:
    """Serves requests on one port; started once, stopped once."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        *,
        config: ServerConfig | None = None,
        tls: TlsServerConfig | None = None,
        clock: Clock | None = None,
        hooks: Sequence[RpcHook] = (),
        listener: ConnectionListener | None = None,
        code_of: Callable[[OrbitError], int] | None = None,
        make_processor: Callable[[RequestLoop], Processor] | None = None,
    ) -> None:
        self._config = config or ServerConfig()
        self._clock = clock or SystemClock()
        self._state = RunOnce("the server")
        self._refusals = WarningLimit(self._clock, "requests refused")
        self._requests = RequestLoop(
            handlers,
            hooks,
            code_of=code_of or (lambda _: ResponseCode.SYSTEM_ERROR),
            warn=self._refusals.warn,
        )
        # A custom processor may pass requests on to the ordinary handlers.
        self._processor = make_processor(self._requests) if make_processor else self._requests
        self._limits = ConnectionLimits(
            frame_bytes_max=self._config.frame_bytes_max,
            work_bytes_max=self._config.connection_work_bytes_max,
            write_high_water_bytes=self._config.write_high_water_bytes,
            write_bytes_max=self._config.write_bytes_max,
        )
        self._slow_turns = SlowTurns()
        self.kept_bytes = ByteBudget(self._config.total_work_bytes_max)
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
        self._acceptor = Acceptor(
            self._config,
            tls=TlsServer(tls or TlsServerConfig(), self._clock),
            clock=self._clock,
            connections=self._connections,
            new_connection=self._new_connection,
        )

    @property
    def port(self) -> int:
        """The port listened on."""
        return self._acceptor.port

    @property
    def requests(self) -> RequestLoop:
        """The ordinary path of requests."""
        return self._requests

    @property
    def connections(self) -> frozenset[Connection]:
        """The connections open now."""
        return frozenset(self._connections)

    def serve(self, handlers: Mapping[int, Handler]) -> None:
        """Call these handlers from now on."""
        self._requests.serve(handlers)

    async def start(self) -> None:
        """Listen; returns once connections are accepted."""
        self._state.begin()
        self._acceptor.start()
        self._connections.start()

    async def stop(self) -> None:
        """Accept nothing new, finish the requests in flight, then close; all within the grace."""
        if not await self._state.begin_stop():
            return
        try:
            await self._acceptor.stop()
            await self._finish()
        finally:
            self._connections.abort()
            self._refusals.end_second()
            self._state.end_stop()

    async def abort(self) -> None:
        """Stop listening, and abort every connection with its requests in flight."""
        await self._acceptor.stop()
        self._connections.abort()

    async def _finish(self) -> None:
        grace_ms = self._config.shutdown_grace_seconds * 1000
        end_ms = self._clock.monotonic_ms() + grace_ms
        # Answers are still accepted: a request in flight may wait for one.
        refusing = RequestLoop({}, otherwise=stopping)
        for connection in self._connections:
            if connection.deferred.is_pending or connection.has_calls:
                connection.serve_with(refusing)
            else:
                # Compat: a client switches servers when its connection closes, not on busy.
                connection.close("the server is stopping")
        try:
            async with time_limit(self._clock, grace_ms):
                for connection in self._connections:
                    await connection.deferred.all_done()
                await self._requests.deferred.all_done()
        except TimeoutError:
            log.warning("stopped with requests in flight count=%d", len(self._requests.deferred))
        await self._requests.deferred.cancel()
        await self._connections.stop(end_ms - self._clock.monotonic_ms())

    def _new_connection(self) -> Connection:
        return Connection(
            processor=self._processor,
            limits=self._limits,
            kept_bytes=self.kept_bytes,
            calls=self.calls,
            clock=self._clock,
            warnings=self._connections.warnings,
            on_open=self._connections.opened,
            on_close=self._connections.closed,
            slow_turns=self._slow_turns,
        )
