"""Answers to requests by message: pushed to the client that waits, and stored.

a requester      sends a message with its client id and a correlation id
a replier        consumes it, and sends the answer to the reply topic of the cluster (324, 325)
this broker      pushes the answer to the requester (326), and stores it
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from orbitmq.broker.hot_path import born_host
from orbitmq.broker.send_rules import waits_for_store
from orbitmq.clock import time_limit
from orbitmq.errors import CallTimeoutError, MessageError, OrbitError, RequestRefusedError
from orbitmq.model import property_names
from orbitmq.protocol.codes import RequestCode, ResponseCode, request_name
from orbitmq.protocol.command import request as make_request
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.answers import PushAnswer
from orbitmq.protocol.requests.sending import SendAnswer, SendAnswerShort, SendMessage, SendReply
from orbitmq.record.layout import TRANSACTION_MASK
from orbitmq.record.properties import decode_properties, encode_properties
from orbitmq.store.log.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.groups.members import Members
    from orbitmq.broker.handlers.sending import SendRequests
    from orbitmq.broker.send_rules import Destination
    from orbitmq.broker.storing import Stored
    from orbitmq.clock import Clock
    from orbitmq.protocol.command import Command
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler

log = logging.getLogger(__name__)

_PUSH_TIMEOUT_MS: Final = 10_000
# Unanswered pushes to one requester; others wait for their turn. A requester that does not answer
# must not use up the calls to clients that a broker may have in flight.
_PUSHES_MAX: Final = 16
# For how long nothing is pushed to a requester that did not answer.
_SILENCE_MS: Final = 10_000
# Characters of a client id, or of a requester's remark, that a refusal quotes.
_SHOWN_MAX: Final = 300
_HEADERS: Final[dict[int, type[SendMessage]]] = {
    RequestCode.SEND_REPLY_MESSAGE: SendAnswer,
    RequestCode.SEND_REPLY_MESSAGE_V2: SendAnswerShort,
}
# Compat: the id of an answer that is not stored; Java fails without one.
_NOT_STORED: Final = "0"


@dataclass(slots=True, eq=False)
class _Pushes:
    """The pushes to one requester."""

    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_PUSHES_MAX))
    silent_until_ms: float = 0.0


@dataclass(slots=True, eq=False, kw_only=True)
class AnswerRequests:
    """Pushes answers to the clients that wait for them, and stores them."""

    config: Callable[[], BrokerConfig]
    # Why sends are refused now; None if they are accepted.
    refusal: Callable[[], object | None]
    # The address that clients know this broker by.
    address: Callable[[], str]
    members: Members
    sending: SendRequests
    clock: Clock
    _pushes: WeakKeyDictionary[Connection, _Pushes] = field(
        default_factory=WeakKeyDictionary, init=False
    )

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return dict.fromkeys(_HEADERS, self.answer)

    async def answer(self, connection: Connection, request: Command) -> Command:
        """Push an answer to the requester; replies once the requester has it."""
        asked = _HEADERS[request.code].decode(request.fields)
        self._check(asked, request.body)
        properties = decode_properties((asked.properties or "").encode())
        destination = await self.sending.destination_of(connection, asked)
        failure: RequestRefusedError | None = None
        try:
            await self._push(connection, asked, properties, request.body)
        except RequestRefusedError as error:
            failure = error
        # Compat: as in RocketMQ, an answer that cannot be pushed is stored, too.
        stored = await self._store(connection, asked, properties, request.body, destination)
        if failure is not None:
            raise failure
        config = self.config()
        return request.reply(
            SendReply(
                message_id=stored.receipts[0].message_id if stored else _NOT_STORED,
                queue_id=destination.queue_id,
                queue_offset=Long(stored.receipts[0].queue_offset if stored else 0),
                transaction_id=properties.get(property_names.UNIQUE_ID),
                region=config.region,
                trace=config.trace_on,
                durability=stored.durability.place if stored else None,
            ),
            code=stored.durability.code if stored else ResponseCode.SUCCESS,
        )

    def _check(self, asked: SendMessage, body: bytes) -> None:
        if asked.batch:
            raise MessageError("replies cannot be sent as a batch", hint="send them one by one")
        body_bytes_max = self.sending.storing.body_bytes_max
        if len(body) > body_bytes_max:
            raise MessageError(
                f"a reply of {len(body)} bytes is above the limit of {body_bytes_max}",
                hint="send a smaller one, or raise maxMessageSize",
            )

    async def _push(
        self,
        connection: Connection,
        asked: SendMessage,
        properties: Mapping[str, str],
        body: bytes,
    ) -> None:
        client_id = properties.get(property_names.REPLY_TO_CLIENT)
        if not client_id:
            raise _not_pushed(
                f"reply message properties[{property_names.REPLY_TO_CLIENT}] is null",
                hint="copy it from the request",
            )
        client = self.members.find_client(client_id)
        shown = client_id[:_SHOWN_MAX]
        if client is None:
            raise _not_pushed(
                f"push reply message fail, channel of <{shown}> not found.",
                hint="the requester has gone, or is not connected to this broker",
            )
        now_ms = self.clock.now_ms()
        pushed = dict(properties) | {property_names.REPLY_PUSHED_MS: str(now_ms)}
        header = PushAnswer(
            producer_group=asked.producer_group,
            topic=asked.topic,
            template_topic=asked.template_topic,
            template_queues=asked.template_queues,
            queue_id=asked.queue_id,
            system_flag=asked.system_flag,
            born_timestamp_ms=asked.born_timestamp_ms,
            flag=asked.flag,
            properties=encode_properties(pushed).decode(),
            retries=asked.retries,
            unit_mode=asked.unit_mode,
            born_host=connection.address,
            store_host=self.address(),
            store_timestamp_ms=Long(now_ms),
        )
        try:
            reply = await self._call(client.connection, make_request(header, body))
        except OrbitError as error:
            raise _not_pushed(
                f"push reply message to {shown} fail: {error}",
                hint="the requester has gone, or is stuck",
            ) from error
        if reply.code != ResponseCode.SUCCESS:
            raise _not_pushed(
                f"push reply message to {shown} fail: {reply.remark[:_SHOWN_MAX] or reply.code}",
                hint="the requester no longer waits for it",
            )

    async def _call(self, requester: Connection, push: Command) -> Command:
        """Call a requester in turn; raises at once if it did not answer a moment ago."""
        pushes = self._pushes.get(requester)
        if pushes is None:
            pushes = self._pushes[requester] = _Pushes()
        if pushes.turns.locked():
            try:
                async with time_limit(self.clock, _PUSH_TIMEOUT_MS):
                    await pushes.turns.acquire()
            except TimeoutError:
                raise _no_answer_from(requester) from None
        else:
            await pushes.turns.acquire()
        try:
            if self.clock.monotonic_ms() < pushes.silent_until_ms:
                raise _no_answer_from(requester)
            return await requester.ask(push, _PUSH_TIMEOUT_MS)
        except CallTimeoutError:
            now_ms = self.clock.monotonic_ms()
            if now_ms >= pushes.silent_until_ms:
                pushes.silent_until_ms = now_ms + _SILENCE_MS
            raise
        finally:
            pushes.turns.release()

    async def _store(
        self,
        connection: Connection,
        asked: SendMessage,
        properties: Mapping[str, str],
        body: bytes,
        destination: Destination,
    ) -> Stored | None:
        """Store an answer, as it was sent; None if that is off, or is not possible now."""
        # Compat: replies of Go's clients have no body, unless the program works around that.
        if not body or not self.config().store_answers or self.refusal() is not None:
            return None
        draft = Draft(
            topic=destination.topic,
            queue_id=destination.queue_id,
            body=body,
            properties=(asked.properties or "").encode(),
            flag=asked.flag,
            system_flag=asked.system_flag & ~TRANSACTION_MASK,
            born_ms=asked.born_timestamp_ms,
            born_host=born_host(connection.address),
            reconsume_times=asked.retries or 0,
        )
        try:
            return await self.sending.put([draft], wait=waits_for_store(properties))
        except OrbitError as error:
            # The requester has it, which is what counts.
            log.debug("reply not stored topic=%s reason=%s", destination.topic, error)
            return None


def _no_answer_from(requester: Connection) -> CallTimeoutError:
    call = request_name(PushAnswer.CODE)
    return CallTimeoutError(requester.address, call, _PUSH_TIMEOUT_MS)


def _not_pushed(reason: str, *, hint: str) -> RequestRefusedError:
    # Compat: repliers try another broker of the cluster after this code.
    return RequestRefusedError(ResponseCode.SYSTEM_ERROR, reason, hint=hint)
