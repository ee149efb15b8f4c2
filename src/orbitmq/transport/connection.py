"""One connection: bytes in, commands processed in whole chunks, replies out.

A received chunk goes to the `Processor` as it is; its replies leave at once, in one write. An
incomplete frame at the end of a chunk is kept until the rest arrives. Three bounds hold:

    frame bytes    a frame above the limit closes the connection
    kept bytes     counted in a budget shared by all connections; above it the request is answered
                   busy and the rest of its frame is discarded as it arrives
    unsent bytes   above the high-water mark the connection is not read until it drains

Threads: the event loop's only. Servers and clients use the same class.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, cast

from orbitmq.errors import (
    ConnectionLostError,
    FrameTooLargeError,
    OrbitError,
    ProtocolError,
    TransportError,
    WriteBlockedError,
)
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import ONEWAY_FLAG, Command
from orbitmq.transport.addresses import format_address
from orbitmq.transport.incomplete_frame import IncompleteFrame
from orbitmq.transport.limits import DeferredWork
from orbitmq.transport.pending_calls import OnDone, PendingCalls
from orbitmq.transport.turns import SLOW_MS, SlowTurnNeeded

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.clock import Clock
    from orbitmq.transport.limits import ByteBudget, CallBudgets, ConnectionLimits
    from orbitmq.transport.turns import SlowTurns
    from orbitmq.transport.warning_limit import WarningLimit

log = logging.getLogger(__name__)

# Requests are gathered for one turn of the loop, or until they reach this many bytes.
_GATHERED_BYTES_MAX: Final = 64 * 1024
_NO_TRANSPORT: Final = asyncio.Transport()


class Processor(Protocol):
    """What a connection does with the bytes it receives."""

    def process(self, connection: Connection, chunk: bytes) -> tuple[int, bytes]:
        """Process complete frames of `chunk`; return where it stopped, and the replies.

        It may stop before the last complete frame, to keep its replies small or to give other
        connections a turn; it is called again soon. Raises ProtocolError for invalid bytes.
        """


class Connection(asyncio.Protocol):
    """One connection of a server or a client."""

    def __init__(  # noqa: PLR0913  # by name, from two places
        self,
        *,
        processor: Processor,
        limits: ConnectionLimits,
        kept_bytes: ByteBudget,
        calls: CallBudgets,
        clock: Clock,
        warnings: WarningLimit,
        on_open: Callable[[Connection], None],
        on_close: Callable[[Connection, Exception | None], None],
        slow_turns: SlowTurns | None = None,
        address: str = "",
    ) -> None:
        self._processor = processor
        self._limits = limits
        self._kept_bytes = kept_bytes
        self._oneway_budget = calls.oneway
        self.clock: Final = clock
        # Servers only: a client waits for nobody but itself.
        self._slow_turns = slow_turns
        self._warnings = warnings
        self._on_open = on_open
        self._on_close = on_close
        self.address = address
        # Until it is connected it counts as closed.
        self.closed = True
        self.frame_bytes_max: Final = limits.frame_bytes_max
        # How many bytes of replies a processor should gather before it returns them.
        self.replies_bytes_max: Final = limits.write_high_water_bytes
        self._transport = _NO_TRANSPORT
        self._calls = PendingCalls(
            address, calls.unanswered, clock, on_overdue=self._notice_silence
        )
        # When the processor was last given a chunk.
        self._turn_began_ms = 0.0
        self._last_active_ms = 0.0
        self._last_received_ms = 0.0
        self._silent_since_ms = -1.0
        self._written_bytes = 0
        self._written_bytes_seen = 0
        self._unsent_bytes_seen = 0
        self._incomplete = IncompleteFrame(kept_bytes, limits.frame_bytes_max)
        self.deferred = DeferredWork(limits.work_bytes_max, kept_bytes)
        self._writing_paused = False
        self._turn_is_due = False
        # Whether this turn is one of the slow ones, and whether the next has to be.
        self._turn_is_slow = False
        self._wants_slow_turn = False
        # The request that hooks have seen, and that waits for a slow turn.
        self.put_off: Command | None = None
        # Whether a turn lasted long, be it for the frames or because the machine is busy.
        self._seems_slow = False
        self._unsent_counted = 0
        self._oneway_unsent = 0
        self._drained: asyncio.Future[None] | None = None
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0

    # --- what asyncio calls -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport over."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._limits.write_high_water_bytes)
        if not self.address:
            self.address = format_address(transport.get_extra_info("peername"))
        self._calls.address = self.address
        self._last_active_ms = self._last_received_ms = self.clock.monotonic_ms()
        self.closed = False
        self._on_open(self)

    def data_received(self, data: bytes) -> None:
        """Process the bytes received, and keep an incomplete frame."""
        if self.closed:
            return
        self._last_active_ms = self._last_received_ms = self._turn_began_ms = (
            self.clock.monotonic_ms()
        )
        if self._incomplete.skip_bytes:
            data = self._incomplete.skip(data)
        if self._incomplete.kept_bytes:
            self._incomplete.add(data)
            if self._turn_is_due:
                return
            if self._writing_paused or not self._incomplete.is_complete:
                self._count_kept()
                return
            data = self._incomplete.take()
        if data:
            self._process(data)

    def eof_received(self) -> None:
        """Close: the peer still gets what is written already, and no further answer."""
        self.close("closed by the peer")

    def pause_writing(self) -> None:
        """Stop reading from a peer that does not read its replies."""
        self._writing_paused = True
        self._count_unsent()
        if not self.closed:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Resume what waited for the peer to read."""
        self._writing_paused = False
        self._last_active_ms = self.clock.monotonic_ms()
        self._return_unsent()
        self._return_oneway_calls()
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None
        if not self._turn_is_due:
            self._resume()

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the pending calls, and notify the owner, once."""
        if self._transport is _NO_TRANSPORT:
            return
        if not self.closed:
            self._end(str(error) or type(error).__name__ if error else "closed")
        self._transport = _NO_TRANSPORT
        self._on_close(self, error)

    def set_socket_options(self, *, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
        """Set the socket's options; 0 leaves a buffer as it is."""
        connected: socket.socket = self._transport.get_extra_info("socket")
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 0)
        if send_buffer_bytes:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        if receive_buffer_bytes:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)

    # --- calls to the peer --------------------------------------------------------------------

    def call(self, request: Command, timeout_ms: float, on_done: OnDone) -> int:
        """Send a request; `on_done` gets the answer or an error.

        Returns the number to pass to `forget_call`.
        """
        self._check_writable()
        opaque = self._calls.add(request.code, timeout_ms, on_done)
        request.opaque = opaque
        try:
            frame = self._encode(request)
        except BaseException:
            self._calls.forget(opaque)
            raise
        self._write_gathered()
        self.write(frame)
        return opaque

    def begin_call(self, code: int, timeout_ms: float, on_done: OnDone) -> int:
        """Expect the answer to a request that the caller encodes itself; see `call`.

        Returns the number that the request must carry; `send_call` sends it.
        """
        self._check_writable()
        return self._calls.add(code, timeout_ms, on_done)

    def send_call(self, opaque: int, frame: bytes) -> None:
        """Send the request of a call begun before, in one write with others of this turn."""
        if len(frame) > self.frame_bytes_max:
            self._calls.forget(opaque)
            raise FrameTooLargeError(len(frame), self.frame_bytes_max)
        self._write_soon(frame)

    def forget_call(self, opaque: int) -> None:
        """Abandon a call: `on_done` is not called, the answer is dropped."""
        self._calls.forget(opaque)

    async def ask(self, request: Command, timeout_ms: float) -> Command:
        """Send a request and wait for its answer."""
        answered: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        opaque = self.call(request, timeout_ms, partial(_settle, answered))
        try:
            return await answered
        except asyncio.CancelledError:
            self._calls.forget(opaque)
            raise

    def call_oneway(self, request: Command) -> None:
        """Send a request that nobody answers."""
        self._check_writable()
        request.flag |= ONEWAY_FLAG
        request.opaque = self._calls.unused_opaque()
        frame = self._encode(request)
        if self._writing_paused:
            # It stays in flight until the peer reads.
            self._oneway_budget.take(self.address)
            self._oneway_unsent += 1
        self._write_gathered()
        self.write(frame)

    def unused_opaque(self) -> int:
        """Return a number for a one-way request that the caller encodes itself."""
        return self._calls.unused_opaque()

    def send_oneway(self, frame: bytes) -> None:
        """Send a one-way request, in one write with others of this turn."""
        self._check_writable()
        if len(frame) > self.frame_bytes_max:
            raise FrameTooLargeError(len(frame), self.frame_bytes_max)
        self._write_soon(frame)

    def answer(self, response: Command) -> None:
        """Hand an answer to the call that waits for it."""
        if not self._calls.answer(response):
            log.debug("unexpected answer dropped peer=%s opaque=%d", self.address, response.opaque)

    async def all_answered(self) -> None:
        """Return once every call to the peer is answered."""
        await self._calls.all_done()

    # --- replies ------------------------------------------------------------------------------

    def write(self, frames: bytes) -> None:
        """Send bytes; a closed connection drops them."""
        if not self.closed:
            self._written_bytes += len(frames)
            self._transport.write(frames)
            if self._writing_paused:
                self._count_unsent()

    def _write_soon(self, frame: bytes) -> None:
        """Send bytes in this turn of the loop, in one write with all others of the turn.

        Perf: the system takes 1.8 us for a write of 500 bytes, 7.4 us for one of 64 times as many
        (timeit on a loopback socket).
        """
        gathered = self._gathered
        if not gathered:
            asyncio.get_running_loop().call_soon(self._write_gathered)
        gathered.append(frame)
        self._gathered_bytes += len(frame)
        if self._gathered_bytes > _GATHERED_BYTES_MAX:
            self._write_gathered()

    def _write_gathered(self) -> None:
        if self._gathered:
            frames = b"".join(self._gathered)
            self._gathered.clear()
            self._gathered_bytes = 0
            self.write(frames)

    @property
    def writing_paused(self) -> bool:
        """Whether too many bytes wait for the peer to read them."""
        return self._writing_paused

    async def drained(self) -> None:
        """Return once writing is no longer paused; raises if the connection is lost."""
        while self._writing_paused:
            if self.closed:
                raise ConnectionLostError(self.address, "it closed with bytes unsent")
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)

    @property
    def has_calls(self) -> bool:
        """Whether a call to the peer is unanswered."""
        return len(self._calls) > 0

    # --- for its owner ------------------------------------------------------------------------

    def require_slow_turn(self) -> None:
        """Raise SlowTurnNeeded unless a frame that may take long is processed now.

        The processor stops before that frame, and is called again in a turn for such frames.
        """
        if self._slow_turns is None or self._turn_is_slow:
            return
        self._wants_slow_turn = True
        raise SlowTurnNeeded

    def took(self, used_ms: float) -> None:
        """Have the connection wait in the row of slow ones if it used much of the loop's time."""
        if self._slow_turns is None or self.closed or not self._slow_turns.charge(used_ms):
            return
        self._wants_slow_turn = True
        if not self._turn_is_due:
            self._wait_for_turn()

    def serve_with(self, processor: Processor) -> None:
        """Pass everything received from now on to another processor."""
        self._processor = processor

    def active_ms(self, now_ms: float) -> float:
        """Return when a byte last moved in either direction; sent bytes are noticed on this call.

        Bytes written to a peer that does not read are no activity.
        """
        unsent_bytes = self._transport.get_write_buffer_size()
        wrote = self._written_bytes > self._written_bytes_seen and not unsent_bytes
        if wrote or unsent_bytes < self._unsent_bytes_seen:
            self._last_active_ms = now_ms
        self._written_bytes_seen = self._written_bytes
        self._unsent_bytes_seen = unsent_bytes
        return self._last_active_ms

    def close(self, reason: str = "closed on this side") -> None:
        """Send what is written, then close; nothing further is read, and calls fail now."""
        if not self.closed:
            self._write_gathered()
            self._end(reason)
            self._transport.close()

    def abort(self, reason: str = "closed on this side") -> None:
        """Close at once; unsent bytes are lost."""
        if not self.closed:
            self._end(reason)
        if self._transport is not _NO_TRANSPORT:
            self._transport.abort()

    def abandon(self) -> None:
        """Drop a connection whose set-up failed or was cancelled half-way.

        Compat: uvloop then closes the socket without a callback, even after `connection_made`.
        """
        self.abort("given up while connecting")
        self.connection_lost(None)

    # --- inside -------------------------------------------------------------------------------

    def _process(self, chunk: bytes) -> None:
        position = 0
        try:
            slow_turns = self._slow_turns
            if self._writing_paused:
                pass
            elif slow_turns is not None and (self._turn_is_slow or self._seems_slow):
                position = self._take_measured(chunk, slow_turns)
            else:
                position, replies = self._processor.process(self, chunk)
                if replies:
                    self.write(replies)
                if position and slow_turns is not None:
                    # Perf: reading the processor time would take 0.6 us; a first long turn is free.
                    slow_turns.others_active_ms = ended_ms = self.clock.monotonic_ms()
                    self._seems_slow = ended_ms - self._turn_began_ms >= SLOW_MS
            # Bytes written before the chunk arrived, or in answer to it, are no later activity.
            self._written_bytes_seen = self._written_bytes
            if position < len(chunk) and not self.closed:
                self._incomplete.begin(chunk[position:])
                if self._incomplete.is_complete and not self._writing_paused:
                    # Not counted: these frames are processed next, so that an exhausted budget
                    # must not refuse them; nothing is read until then.
                    self._wait_for_turn()
                else:
                    self._count_kept()
            if self._wants_slow_turn and not (self._turn_is_due or self.closed):
                self._wait_for_turn()
        except ProtocolError as error:
            self._close_for(error)
        except Exception:
            # The border: our own bug must not leave the peer waiting, nor harm other peers.
            log.exception("connection closed after an internal error peer=%s", self.address)
            self.close("an internal error")

    def _take_measured(self, chunk: bytes, slow_turns: SlowTurns) -> int:
        """Have frames processed in a turn whose processor time counts."""
        used_before_ms = slow_turns.used_ms()
        try:
            position, replies = self._processor.process(self, chunk)
            if replies:
                self.write(replies)
            return position
        finally:
            self._seems_slow = slow_turns.charge(slow_turns.used_ms() - used_before_ms)
            self._wants_slow_turn |= self._seems_slow

    def _wait_for_turn(self) -> None:
        """Give other connections a turn before the next frames of this one."""
        self._turn_is_due = True
        self._transport.pause_reading()
        if self._wants_slow_turn and self._slow_turns is not None:
            self._slow_turns.join(self._take_slow_turn)
        else:
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn_is_due = False
        self._resume()

    def _take_slow_turn(self) -> None:
        self._wants_slow_turn = False
        self._turn_is_slow = True
        try:
            self._take_turn()
        finally:
            self._turn_is_slow = False

    def _resume(self) -> None:
        """Process what is kept, and read again unless something still blocks it."""
        if self._incomplete.kept_bytes and not self._writing_paused and not self.closed:
            self._turn_began_ms = self.clock.monotonic_ms()
            self._process(self._incomplete.take())
        if not (self._writing_paused or self._turn_is_due or self.closed):
            self._transport.resume_reading()

    def _count_kept(self) -> None:
        """Count what is kept in the shared budget, and answer a frame that does not fit."""
        try:
            refused = self._incomplete.count()
        except ProtocolError as error:
            self._close_for(error)
            return
        if refused is None:
            return
        if refused.is_response:
            discarded = TransportError(
                f"an answer from {self.address} was discarded",
                hint="too many bytes of answers are in flight; ask for less at once",
            )
            self._calls.finish(refused.opaque, discarded)
        elif not refused.is_oneway:
            self.write(busy_reply(refused).encode())

    def _notice_silence(self, called_ms: float) -> None:
        """Abort the connection if calls time out and nothing at all is received.

        The peer's machine may be gone, which the system notices only after minutes. A peer that is
        merely slow sends something now and then.
        """
        if self._last_received_ms > called_ms:
            return
        if self._silent_since_ms < self._last_received_ms:
            self._silent_since_ms = called_ms
        silent_ms = self.clock.monotonic_ms() - self._silent_since_ms
        if silent_ms >= self._limits.silence_ms_max:
            self.abort(f"nothing received for {silent_ms:.0f} ms while calls waited")

    def _close_for(self, error: ProtocolError) -> None:
        self._warnings.warn(
            "connection closed for bad input peer=%s reason=%s", self.address, error
        )
        self.close(f"bad input: {error}")

    def _end(self, reason: str) -> None:
        """Fail pending calls, and return every byte and call to its budget."""
        self.closed = True
        self._gathered.clear()
        self._incomplete.drop()
        self._return_unsent()
        self._return_oneway_calls()
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None
        self._calls.fail_all(lambda: ConnectionLostError(self.address, reason))

    def _count_unsent(self) -> None:
        """Count unsent bytes in the shared budget; above it the peer is disconnected."""
        unsent_bytes = self._transport.get_write_buffer_size()
        more_bytes = unsent_bytes - self._unsent_counted
        if more_bytes <= 0:
            return
        if self._kept_bytes.take(more_bytes):
            self._unsent_counted = unsent_bytes
            return
        log.warning(
            "connection closed, peer does not read peer=%s unsent=%d shared_limit=%d",
            self.address,
            unsent_bytes,
            self._kept_bytes.bytes_max,
        )
        self.abort("it does not read, and too many bytes are unsent")

    def _return_unsent(self) -> None:
        self._kept_bytes.give_back(self._unsent_counted)
        self._unsent_counted = 0

    def _return_oneway_calls(self) -> None:
        while self._oneway_unsent:
            self._oneway_unsent -= 1
            self._oneway_budget.give_back()

    def _check_writable(self) -> None:
        if self.closed:
            raise ConnectionLostError(self.address, "already closed")
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes > self._limits.write_bytes_max:
            raise WriteBlockedError(self.address, unsent_bytes)

    def _encode(self, request: Command) -> bytes:
        frame = request.encode()
        # The peer would close the connection, and all other calls would fail.
        if len(frame) > self.frame_bytes_max:
            raise FrameTooLargeError(len(frame), self.frame_bytes_max)
        return frame


def busy_reply(request: Command) -> Command:
    """Answer a request that exceeds a bound."""
    return request.reply(
        code=ResponseCode.SYSTEM_BUSY,
        remark="[OVERLOAD] the server has too many bytes of requests in flight; try again later",
    )


def _settle(answered: asyncio.Future[Command], outcome: Command | OrbitError) -> None:
    if answered.done():
        return
    if isinstance(outcome, OrbitError):
        answered.set_exception(outcome)
    else:
        answered.set_result(outcome)
