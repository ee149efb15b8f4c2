"""The ordinary path of a request: split the chunk, call handlers, gather replies.

A handler that can answer at once returns its reply; all such replies of a chunk leave in one
write, without a task. A handler that must wait is a coroutine function: its request is counted
against the connection's bounds and answered when it is done.
"""

from __future__ import annotations

import logging
import types
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from orbitmq.clock import processor_ms
from orbitmq.errors import (
    ConnectionLostError,
    OrbitError,
    ProtocolError,
    RequestRefusedError,
    SignatureError,
)
from orbitmq.lifecycle import OwnedTasks
from orbitmq.protocol.body_limits import check_body
from orbitmq.protocol.codes import ResponseCode, request_name
from orbitmq.protocol.command import Command, decode_command
from orbitmq.protocol.frame import frame_end
from orbitmq.transport.connection import Connection, busy_reply
from orbitmq.transport.turns import LARGE_FRAME_BYTES, SLOW_MS, TURN_MS, SlowTurnNeeded

if TYPE_CHECKING:
    from orbitmq.transport.hooks import RpcHook

log = logging.getLogger(__name__)

# A peer that sends thousands of requests at once must not keep the others waiting.
FRAMES_PER_TURN: Final = 128

Answer = Command | None
Handler = Callable[[Connection, Command], Answer | Coroutine[Any, Any, Answer]]
AnyHandler = TypeVar("AnyHandler", bound=Callable[..., object])
_AT_ONCE: Final = "starts_at_once"


def not_supported(request: Command) -> Command:
    """Answer a request that no handler knows."""
    return request.reply(
        code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        remark=f"{request_name(request.code)} is not supported by this server",
    )


def stopping(request: Command) -> Command:
    """Answer a request that arrives while the server finishes earlier ones."""
    return request.reply(
        code=ResponseCode.SYSTEM_BUSY, remark="[REJECTREQUEST] the server is stopping"
    )


def starts_at_once(handler: AnyHandler) -> AnyHandler:
    """Mark a coroutine function that runs up to its first wait without a task of its own.

    If it ends there, its reply leaves with the others of the chunk. Before that wait it must not use
    what belongs to a task, such as a time limit.
    """
    # Perf: a fifth less CPU for a send with a due time, async (benchmarks/delayed_messages.py).
    setattr(handler, _AT_ONCE, True)
    return handler


class RequestLoop:
    """Processes chunks by calling a handler per request code."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        hooks: Sequence[RpcHook] = (),
        *,
        otherwise: Callable[[Command], Command] = not_supported,
        code_of: Callable[[OrbitError], int] = lambda _: ResponseCode.SYSTEM_ERROR,
        warn: Callable[..., None] = log.warning,
    ) -> None:
        self.serve(handlers)
        self._hooks = tuple(hooks)
        self._otherwise = otherwise
        # Which failure code reports an error to a peer.
        self._code_of = code_of
        # Logs a refusal, with a limit: peers can cause as many as they like.
        self._warn = warn
        self.deferred = OwnedTasks()

    def serve(self, handlers: Mapping[int, Handler]) -> None:
        """Call these handlers from now on."""
        self._handlers = dict(handlers)
        self._at_once = {
            code for code, handler in handlers.items() if getattr(handler, _AT_ONCE, False)
        }

    def process(self, connection: Connection, chunk: bytes) -> tuple[int, bytes]:
        """Answer complete frames of the chunk; see `Processor`."""
        replies: list[bytes] = []
        replies_bytes = 0
        position = 0
        chunk_bytes = len(chunk)
        frame_bytes_max = connection.frame_bytes_max
        frames_left = FRAMES_PER_TURN
        clock = connection.clock
        turn_ends_ms = clock.monotonic_ms() + TURN_MS
        while position < chunk_bytes and frames_left:
            try:
                end = frame_end(chunk, position, frame_bytes_max)
                if end == 0 or end > chunk_bytes:
                    break
                if end - position > LARGE_FRAME_BYTES:
                    connection.require_slow_turn()
                frame = self.process_frame(connection, chunk, position, end)
            except SlowTurnNeeded:
                break
            except ProtocolError:
                if position:
                    # The frames before the broken one are answered first.
                    break
                raise
            if frame:
                replies.append(frame)
                replies_bytes += len(frame)
            position = end
            frames_left -= 1
            if replies_bytes > connection.replies_bytes_max or clock.monotonic_ms() > turn_ends_ms:
                break
        return position, b"".join(replies)

    def process_frame(self, connection: Connection, chunk: bytes, start: int, end: int) -> bytes:
        """Answer the frame at `chunk[start:end]`; returns the reply, or nothing if it comes later."""
        command = decode_command(chunk, start, end)
        if command.is_response:
            connection.answer(command)
            return b""
        reply = self._answer(connection, command, end - start)
        return b"" if reply is None else self._encode(connection, command, reply)

    def _answer(self, connection: Connection, request: Command, frame_bytes: int) -> Answer:
        """Handle one request; None if it needs no answer or gets it later."""
        try:
            if connection.put_off is not None:
                request, connection.put_off = connection.put_off, None
            else:
                check_body(request.code, len(request.body))
                for hook in self._hooks:
                    hook.before_request(connection.address, request)
            handler = self._handlers.get(request.code)
            outcome = handler(connection, request) if handler else self._otherwise(request)
        except SlowTurnNeeded:
            # It is the next request that this connection has processed.
            connection.put_off = request
            raise
        except Exception as error:  # noqa: BLE001  # the border: whatever it is becomes an answer
            return self._finish(
                connection, request, self._failure_reply(request, error, connection)
            )
        if outcome is None or isinstance(outcome, Command):
            return self._finish(connection, request, outcome)
        return self._defer(connection, request, outcome, frame_bytes)

    def _defer(
        self,
        connection: Connection,
        request: Command,
        work: Coroutine[Any, Any, Answer],
        frame_bytes: int,
    ) -> Answer:
        charge = connection.deferred.begin(frame_bytes)
        if not charge:
            work.close()
            return self._finish(connection, request, busy_reply(request))
        waits_for: object = None
        if request.code in self._at_once:
            try:
                waits_for = work.send(None)
            except StopIteration as done:
                connection.deferred.end(charge)
                return self._finish(connection, request, done.value)
            except Exception as error:  # noqa: BLE001  # the border: whatever it is becomes an answer
                connection.deferred.end(charge)
                return self._finish(
                    connection, request, self._failure_reply(request, error, connection)
                )
        self.deferred.start(
            self._answer_later(connection, request, work, charge, waits_for),
            name=f"{request_name(request.code)} from {connection.address}",
        )
        return None

    async def _answer_later(
        self,
        connection: Connection,
        request: Command,
        work: Coroutine[Any, Any, Answer],
        charge: int,
        waits_for: object,
    ) -> None:
        try:
            reply = await _measured(work, connection, waits_for)
        except Exception as error:  # noqa: BLE001  # the border: whatever it is becomes an answer
            reply = self._failure_reply(request, error, connection)
        finally:
            connection.deferred.end(charge)
        reply = self._finish(connection, request, reply)
        if reply is None:
            return
        frame = self._encode(connection, request, reply)
        if connection.writing_paused:
            await _write_when_drained(connection, request, frame)
        else:
            connection.write(frame)

    def _finish(self, connection: Connection, request: Command, reply: Answer) -> Answer:
        # Compat: a one-way request gets no answer, not even an error.
        sent = None if request.is_oneway else reply
        for hook in self._hooks:
            try:
                hook.after_response(connection.address, request, sent)
            except Exception as error:  # noqa: BLE001  # the border: a refusal becomes the answer
                refused = self._failure_reply(request, error, connection)
                sent = None if request.is_oneway else refused
        return sent

    def _encode(self, connection: Connection, request: Command, reply: Command) -> bytes:
        """Encode an answer; one that cannot be encoded, or is too large, becomes an error."""
        try:
            frame = reply.encode()
            if len(frame) <= connection.frame_bytes_max:
                return frame
            error: Exception = OrbitError(
                f"the answer of {len(frame)} bytes is above the limit of "
                f"{connection.frame_bytes_max} for a frame",
                hint="ask for less at once",
            )
        except Exception as raised:  # noqa: BLE001  # the border: whatever it is becomes an answer
            error = raised
        return self._failure_reply(request, error, connection).encode()

    def _failure_reply(self, request: Command, error: Exception, connection: Connection) -> Command:
        """Turn an error of a handler into an answer; unexpected errors are logged here, once."""
        if isinstance(error, RequestRefusedError):
            reply = request.reply(code=error.code, remark=str(error))
            reply.fields = error.fields
            return reply
        match error:
            case SignatureError():
                code, remark = int(ResponseCode.NO_PERMISSION), str(error)
            case ProtocolError():
                code, remark = ResponseCode.SYSTEM_ERROR, str(error)
            case OrbitError():
                name = request_name(request.code)
                note = log.debug if error.routine else self._warn
                note("refused call=%s peer=%s reason=%s", name, connection.address, error)
                code, remark = self._code_of(error), str(error)
            case _:
                name = request_name(request.code)
                log.error(
                    "handler failed call=%s peer=%s", name, connection.address, exc_info=error
                )
                code = ResponseCode.SYSTEM_ERROR
                remark = f"{name} failed inside the server: {type(error).__name__}"
        return request.reply(code=code, remark=remark)


@types.coroutine
def _measured(
    work: Coroutine[Any, Any, Answer], connection: Connection, waits_for: object
) -> Generator[Any, Any, Answer]:
    """Wait for a coroutine; its connection waits in turn if it uses much of the loop's time.

    One that was started already may have come to something that it waits for.
    """
    now_ms = connection.clock.monotonic_ms
    thrown: BaseException | None = None
    is_waiting = waits_for is not None
    while True:
        if is_waiting:
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001  # a cancellation is for the coroutine
                thrown = error
        began_ms, used_before_ms = now_ms(), processor_ms()
        try:
            waits_for = work.send(None) if thrown is None else work.throw(thrown)
        except StopIteration as done:
            answer: Answer = done.value
            return answer
        finally:
            if now_ms() - began_ms >= SLOW_MS:
                connection.took(processor_ms() - used_before_ms)
        is_waiting, thrown = True, None


async def _write_when_drained(connection: Connection, request: Command, frame: bytes) -> None:
    """Hold a deferred answer back until the peer reads; it counts against the bounds."""
    charge = connection.deferred.begin(len(frame))
    if not charge:
        connection.write(busy_reply(request).encode())
        return
    try:
        await connection.drained()
        connection.write(frame)
    except ConnectionLostError:
        log.debug("answer dropped, the connection is lost peer=%s", connection.address)
    finally:
        connection.deferred.end(charge)
