"""The ordinary way of a request: split the chunk, call the handler, gather the replies.

A handler that can answer at once returns its reply; all such replies of a chunk leave in one
write and no task is made. A handler that must wait is a coroutine function: its request is
counted against the connection's bounds and answered when it is done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orbitmq.errors import OrbitError, ProtocolError, SignatureError
from orbitmq.lifecycle import OwnedTasks
from orbitmq.protocol.codes import ResponseCode, request_name
from orbitmq.protocol.command import Command, decode_command
from orbitmq.protocol.frame import frame_end
from orbitmq.transport.connection import Connection, busy_reply

if TYPE_CHECKING:
    from orbitmq.transport.hooks import RpcHook

log = logging.getLogger(__name__)

Answer = Command | None
Handler = Callable[[Connection, Command], Answer | Coroutine[Any, Any, Answer]]


class RequestLoop:
    """Processes chunks by calling a handler per request code."""

    def __init__(self, handlers: Mapping[int, Handler], hooks: Sequence[RpcHook] = ()) -> None:
        self._handlers = dict(handlers)
        self._hooks = tuple(hooks)
        self.deferred = OwnedTasks()

    def process(self, connection: Connection, chunk: bytes, start: int) -> tuple[int, bytes]:
        """Answer complete frames of the chunk; see `Processor`."""
        replies: list[bytes] = []
        replies_bytes = 0
        position = start
        while True:
            try:
                end = frame_end(chunk, position, connection.frame_bytes_max)
                if end == 0 or end > len(chunk):
                    break
                command = decode_command(chunk, position, end)
            except ProtocolError:
                if replies:
                    # What came before the broken frame is answered first.
                    break
                raise
            if command.is_response:
                connection.answer(command)
            elif (reply := self._answer(connection, command, end - position)) is not None:
                frame = reply.encode()
                replies.append(frame)
                replies_bytes += len(frame)
            position = end
            if replies_bytes > connection.replies_bytes_max:
                break
        return position, b"".join(replies)

    def _answer(self, connection: Connection, request: Command, frame_bytes: int) -> Answer:
        """Handle one request; None when it wants no answer or gets it later."""
        handler = self._handlers.get(request.code)
        if handler is None:
            return self._finish(connection, request, _not_supported(request))
        try:
            for hook in self._hooks:
                hook.before_request(connection.address, request)
            outcome = handler(connection, request)
        except Exception as error:  # noqa: BLE001  # the border: whatever it is becomes an answer
            return self._finish(connection, request, failure_reply(request, error, connection))
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
        charge = connection.begin_deferred(frame_bytes)
        if not charge:
            work.close()
            return self._finish(connection, request, busy_reply(request))
        self.deferred.start(
            self._answer_later(connection, request, work, charge),
            name=f"{request_name(request.code)} from {connection.address}",
        )
        return None

    async def _answer_later(
        self,
        connection: Connection,
        request: Command,
        work: Coroutine[Any, Any, Answer],
        charge: int,
    ) -> None:
        try:
            reply = await work
        except Exception as error:  # noqa: BLE001  # the border: whatever it is becomes an answer
            reply = failure_reply(request, error, connection)
        finally:
            connection.end_deferred(charge)
        reply = self._finish(connection, request, reply)
        if reply is not None:
            connection.write(reply.encode())

    def _finish(self, connection: Connection, request: Command, reply: Answer) -> Answer:
        # Compat: a one-way request gets no answer, not even an error.
        sent = None if request.is_oneway else reply
        for hook in self._hooks:
            hook.after_response(connection.address, request, sent)
        return sent


def failure_reply(request: Command, error: Exception, connection: Connection) -> Command:
    """Turn what a handler raised into an answer; the unexpected is logged here, once."""
    match error:
        case SignatureError():
            code, remark = ResponseCode.NO_PERMISSION, str(error)
        case OrbitError():
            code, remark = ResponseCode.SYSTEM_ERROR, str(error)
        case _:
            name = request_name(request.code)
            log.error("handler failed call=%s peer=%s", name, connection.address, exc_info=error)
            code = ResponseCode.SYSTEM_ERROR
            remark = f"{name} failed inside the server: {type(error).__name__}"
    return request.reply(code=code, remark=remark)


def _not_supported(request: Command) -> Command:
    return request.reply(
        code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        remark=f"{request_name(request.code)} is not supported by this server",
    )
