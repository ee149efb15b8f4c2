"""One connection: bytes in, commands processed in whole chunks, replies out.

A received chunk goes to the `Processor` as it is; what it answers is written at once, in one
write. What a chunk leaves over (the head of a frame whose rest is on its way) is kept until the
frame is complete. Three bounds hold at all times:

    frame bytes    a frame above the limit breaks the connection off
    kept bytes     counted in a budget shared by all connections; over it the request is answered
                   busy and the rest of its frame is thrown away as it comes in
    unsent bytes   over the high-water mark the connection is not read from until it drains

Threads: the event loop's only. Servers and clients use the same class.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Final, Protocol, cast

from orbitmq.errors import (
    ConnectionLostError,
    OrbitError,
    ProtocolError,
    TooManyCallsError,
    WriteBlockedError,
)
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import ONEWAY_FLAG, Command, decode_parts
from orbitmq.protocol.frame import PREFIX_BYTES, frame_end, header_span
from orbitmq.transport.pending_calls import OnDone, PendingCalls

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.clock import Clock
    from orbitmq.transport.limits import ByteBudget, CallBudgets, ConnectionLimits

log = logging.getLogger(__name__)

# A request that is answered later occupies at least this much, however small its frame.
DEFERRED_BYTES_MIN: Final = 4096


class Processor(Protocol):
    """What a connection does with the bytes it receives."""

    def process(self, connection: Connection, chunk: bytes, start: int) -> tuple[int, bytes]:
        """Process complete frames of `chunk` from `start`; return where it stopped, and replies.

        It may stop before the last complete frame to keep its replies small; it is called again
        as soon as they are on their way. Raises ProtocolError when the bytes make no sense.
        """


class Connection(asyncio.Protocol):
    """One connection of a server or a client."""

    def __init__(
        self,
        *,
        processor: Processor,
        limits: ConnectionLimits,
        kept_bytes: ByteBudget,
        calls: CallBudgets,
        clock: Clock,
        on_open: Callable[[Connection], None],
        on_close: Callable[[Connection, Exception | None], None],
        address: str = "",
    ) -> None:
        self._processor = processor
        self._limits = limits
        self._kept_bytes = kept_bytes
        self._call_budgets = calls
        self._clock = clock
        self._on_open = on_open
        self._on_close = on_close
        self.address = address
        self.last_active_ms = clock.monotonic_ms()
        self.closed = False
        self._transport: asyncio.Transport | None = None
        self._calls = PendingCalls(address, clock)
        self._kept = bytearray()
        self._kept_counted = 0
        self._wanted_bytes = 0
        self._skip_bytes = 0
        self._work_bytes = 0
        self._writing_paused = False
        self._reading_stopped = False
        self._oneway_unsent = 0
        self._drained: asyncio.Future[None] | None = None

    # --- what asyncio calls -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport over."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._limits.write_high_water_bytes)
        if not self.address:
            self.address = format_address(transport.get_extra_info("peername"))
        self._calls = PendingCalls(self.address, self._clock)
        self._on_open(self)

    def data_received(self, data: bytes) -> None:
        """Process what came in, and keep what is incomplete."""
        self.last_active_ms = self._clock.monotonic_ms()
        if self.closed:
            return
        if self._skip_bytes:
            skipped = min(self._skip_bytes, len(data))
            self._skip_bytes -= skipped
            data = data[skipped:]
        if self._kept:
            self._kept += data
            if len(self._kept) < self._wanted_bytes or self._writing_paused:
                self._count_kept()
                return
            data = bytes(self._kept)
            self._kept.clear()
        if data:
            self._process(data)

    def pause_writing(self) -> None:
        """Stop reading from a peer that does not take its replies."""
        self._writing_paused = True
        self._open_transport().pause_reading()

    def resume_writing(self) -> None:
        """Go on with what waited for the peer to read."""
        self._writing_paused = False
        self.last_active_ms = self._clock.monotonic_ms()
        self._return_oneway_calls()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None
        if self._kept and not self.closed:
            data = bytes(self._kept)
            self._kept.clear()
            self._process(data)
        if not (self._writing_paused or self._reading_stopped or self.closed):
            self._open_transport().resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """Fail what waited, and return every byte and call to its budget."""
        self.closed = True
        self._kept.clear()
        self._count_kept()
        self._return_oneway_calls()
        lost = ConnectionLostError(self.address, str(error) if error else "closed")
        if self._drained is not None and not self._drained.done():
            self._drained.set_exception(lost)
            # Perf: nobody may be waiting; asking once keeps asyncio from logging the error.
            self._drained.exception()
        self._calls.fail_all(lost)
        self._on_close(self, error)

    def set_socket_options(self, *, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
        """Set what the system should do with the socket; 0 leaves a buffer as it is."""
        connected: socket.socket = self._open_transport().get_extra_info("socket")
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 0)
        if send_buffer_bytes:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        if receive_buffer_bytes:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)

    # --- calls to the peer --------------------------------------------------------------------

    @property
    def writing_paused(self) -> bool:
        """Whether the peer is behind in reading."""
        return self._writing_paused

    async def all_answered(self) -> None:
        """Return once no call to the peer waits for an answer."""
        await self._calls.all_done()

    def call(self, request: Command, timeout_ms: float, on_done: OnDone) -> None:
        """Send a request; `on_done` gets the answer, or the error that took its place."""
        self._check_writable()
        budget = self._call_budgets.unanswered
        if not budget.take():
            raise TooManyCallsError(self.address, budget.kind, budget.calls_max)

        def finish(outcome: Command | OrbitError) -> None:
            budget.give_back()
            on_done(outcome)

        request.opaque = self._calls.add(request.code, timeout_ms, finish)
        self.write(request.encode())

    async def ask(self, request: Command, timeout_ms: float) -> Command:
        """Send a request and wait for its answer."""
        answered: asyncio.Future[Command] = asyncio.get_running_loop().create_future()

        def finish(outcome: Command | OrbitError) -> None:
            if answered.done():
                return
            if isinstance(outcome, OrbitError):
                answered.set_exception(outcome)
            else:
                answered.set_result(outcome)

        self.call(request, timeout_ms, finish)
        return await answered

    def call_oneway(self, request: Command) -> None:
        """Send a request that nobody answers."""
        self._check_writable()
        budget = self._call_budgets.oneway
        if self._writing_paused:
            # It stays under way until the peer has read it.
            if not budget.take():
                raise TooManyCallsError(self.address, budget.kind, budget.calls_max)
            self._oneway_unsent += 1
        request.flag |= ONEWAY_FLAG
        request.opaque = self._calls.unused_opaque()
        self.write(request.encode())

    def answer(self, response: Command) -> None:
        """Take an answer that came in."""
        if not self._calls.answer(response):
            log.debug("answer to no call dropped peer=%s opaque=%d", self.address, response.opaque)

    async def drained(self) -> None:
        """Return once the peer reads; at once when it does."""
        if self._writing_paused:
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)

    # --- replies ------------------------------------------------------------------------------

    def write(self, frames: bytes) -> None:
        """Send bytes that are ready; a connection that is gone drops them."""
        if not self.closed:
            self.last_active_ms = self._clock.monotonic_ms()
            self._open_transport().write(frames)

    def begin_deferred(self, frame_bytes: int) -> int:
        """Admit a request that is answered later; 0 when a bound forbids it."""
        charge = max(frame_bytes, DEFERRED_BYTES_MIN)
        if self._work_bytes + charge > self._limits.work_bytes_max:
            return 0
        if not self._kept_bytes.take(charge):
            return 0
        self._work_bytes += charge
        return charge

    def end_deferred(self, charge: int) -> None:
        """Return what `begin_deferred` admitted."""
        self._work_bytes -= charge
        self._kept_bytes.give_back(charge)

    @property
    def replies_bytes_max(self) -> int:
        """How many bytes of replies a processor should gather before it lets them go."""
        return self._limits.write_high_water_bytes

    @property
    def frame_bytes_max(self) -> int:
        """The largest frame this connection takes."""
        return self._limits.frame_bytes_max

    # --- ending -------------------------------------------------------------------------------

    def close(self) -> None:
        """Send what is written, then close; nothing more is read."""
        if not self.closed and self._transport is not None:
            self.closed = True
            self._transport.close()

    def abort(self) -> None:
        """Close at once; unsent bytes are lost."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def stop_reading(self) -> None:
        """Take no further request; replies under way still go out."""
        self._reading_stopped = True
        if not self.closed and not self._writing_paused:
            self._open_transport().pause_reading()

    # --- inside -------------------------------------------------------------------------------

    def _process(self, chunk: bytes) -> None:
        position = 0
        try:
            while not self._writing_paused and not self.closed:
                stopped, replies = self._processor.process(self, chunk, position)
                if replies:
                    self.write(replies)
                if stopped == position:
                    break
                position = stopped
            if position < len(chunk) and not self.closed:
                self._keep(chunk[position:])
        except ProtocolError as error:
            self._break_off(error)
            return
        self._count_kept()

    def _keep(self, rest: bytes) -> None:
        self._wanted_bytes = frame_end(rest, 0, self._limits.frame_bytes_max) or 4
        self._kept += rest

    def _count_kept(self) -> None:
        """Bring the shared budget in line with what is kept, or refuse the frame under way."""
        growth = len(self._kept) - self._kept_counted
        if growth <= 0:
            self._kept_bytes.give_back(-growth)
        elif not self._kept_bytes.take(growth):
            try:
                self._refuse_frame()
            except ProtocolError as error:
                self._break_off(error)
            return
        self._kept_counted = len(self._kept)

    def _refuse_frame(self) -> None:
        """Answer the incomplete frame busy, and throw its bytes away, those to come included."""
        header_end, encoding = header_span(self._kept, 0, self._wanted_bytes)
        if len(self._kept) < header_end or len(self._kept) > self._wanted_bytes:
            raise ProtocolError(
                f"{len(self._kept)} bytes are kept and the budget of "
                f"{self._kept_bytes.bytes_max} for all connections is used up"
            )
        request = decode_parts(bytes(self._kept[PREFIX_BYTES:header_end]), b"", encoding)
        self._skip_bytes = self._wanted_bytes - len(self._kept)
        self._kept_bytes.give_back(self._kept_counted)
        self._kept_counted = 0
        self._kept.clear()
        if not request.is_oneway and not request.is_response:
            self.write(busy_reply(request).encode())

    def _break_off(self, error: ProtocolError) -> None:
        log.warning("connection closed for bad input peer=%s reason=%s", self.address, error)
        self._kept.clear()
        self._count_kept()
        self.close()

    def _return_oneway_calls(self) -> None:
        while self._oneway_unsent:
            self._oneway_unsent -= 1
            self._call_budgets.oneway.give_back()

    def _check_writable(self) -> None:
        if self.closed or self._transport is None:
            raise ConnectionLostError(self.address, "already closed")
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes > self._limits.write_bytes_max:
            raise WriteBlockedError(self.address, unsent_bytes)

    def _open_transport(self) -> asyncio.Transport:
        # Invariant: asyncio calls nothing else before connection_made.
        assert self._transport is not None
        return self._transport


def busy_reply(request: Command) -> Command:
    """Answer a request that a bound keeps from being taken."""
    return request.reply(
        code=ResponseCode.SYSTEM_BUSY,
        remark="[OVERLOAD] the server has too many bytes of requests under way; try again later",
    )


def format_address(peer: object) -> str:
    """Write a socket's peer as host:port."""
    if isinstance(peer, tuple) and len(peer) >= 2:
        host, port = peer[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return str(peer or "unknown peer")
