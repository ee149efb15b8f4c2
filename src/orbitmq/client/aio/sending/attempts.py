"""One send: its attempts, from the first request to a result or a failure.

A usual send makes one future and no task: the request is written at once. Its reply arrives as a
callback on the loop, which ends the send or makes the next attempt.

Threads: one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from orbitmq.client.aio.sending.send_hooks import SendContext
from orbitmq.client.core import namespaces
from orbitmq.client.core.sending import send_plan
from orbitmq.client.core.sending.broker_faults import SLOW_FROM_MS, BrokerFaults
from orbitmq.client.core.sending.send_plan import SendMode
from orbitmq.client.core.sending.send_results import SendResult, SendStatus, count_of, durability_of
from orbitmq.errors import BrokerUnknownError, FailedTry, OrbitError, ProtocolError
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.failures import failure_of
from orbitmq.protocol.requests.sending import USUAL_REGION
from orbitmq.protocol.send_frames import ANSWER_CODE, BATCH_CODE, SEND_CODE

if TYPE_CHECKING:
    from orbitmq.client.aio.instance.client_instance import ClientInstance
    from orbitmq.client.aio.sending.send_hooks import SendHooks
    from orbitmq.client.aio.sending.send_targets import SendQueue, SendTarget, SendTargets
    from orbitmq.client.core.sending.encoded_messages import EncodedMessages
    from orbitmq.client.core.sending.outgoing import Outgoing
    from orbitmq.client.core.sending.queue_selectors import Selector
    from orbitmq.client.options import ProducerOptions
    from orbitmq.clock import TimerHandle
    from orbitmq.model.messages import Message
    from orbitmq.transport.connection import Connection

_STATUSES: Final[dict[int, SendStatus]] = {
    ResponseCode.SUCCESS: SendStatus.OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


# Failed attempts that an error has at most.
_TRIES_KEPT: Final = 200


class SendRequest(msgspec.Struct, frozen=True):
    """What the user wants to send, and how."""

    message: Message | Sequence[Message] | EncodedMessages
    mode: SendMode
    timeout_ms: float
    queue: MessageQueue | None
    selector: Selector | None
    argument: Any


class SendParts:
    """What all sends of one producer share."""

    def __init__(
        self,
        instance: ClientInstance,
        *,
        group: str,
        options: ProducerOptions,
        hooks: SendHooks,
        targets: SendTargets,
    ) -> None:
        self.rpc = instance.rpc
        self.clock = instance.clock
        self.group = group
        self.options = options
        self.hooks = hooks
        self.targets = targets
        self.faults = BrokerFaults(on=options.avoid_slow_brokers)
        # Attempts per send at most, by mode: when any queue will do, and when the user chose one.
        self.tries_max, self.tries_max_fixed = (
            {
                mode: send_plan.tries_max(
                    mode,
                    retries=options.retries,
                    async_retries=options.async_retries,
                    queue_is_fixed=is_fixed,
                )
                for mode in SendMode
            }
            for is_fixed in (False, True)
        )
        self._in_flight = 0
        self._all_ended: asyncio.Future[None] | None = None

    def begin_one(self) -> None:
        """Count a send that starts."""
        self._in_flight += 1

    def end_one(self) -> None:
        """Count a send that has ended."""
        self._in_flight -= 1
        if self._all_ended is not None and not self._in_flight:
            self._all_ended.set_result(None)
            self._all_ended = None

    async def all_ended(self) -> None:
        """Wait until no send is in flight; each ends by its deadline."""
        while self._in_flight:
            if self._all_ended is None:
                self._all_ended = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._all_ended)


class PendingSend:
    """A send in flight; `done` gets its result or error."""

    __slots__ = (
        "_address",
        "_connection",
        "_context",
        "_counted",
        "_deadline_ms",
        "_ended",
        "_expiry",
        "_fixed",
        "_has_waited",
        "_opaque",
        "_outgoing",
        "_parts",
        "_refused_by",
        "_request",
        "_result",
        "_send_queue",
        "_target",
        "_tries",
        "_tries_max",
        "_try_began_ms",
        "done",
    )

    def __init__(
        self,
        parts: SendParts,
        request: SendRequest,
        outgoing: Outgoing,
        target: SendTarget,
        fixed: SendQueue | None,
        deadline_ms: float,
        done: asyncio.Future[SendResult],
    ) -> None:
        self._parts = parts
        self._request = request
        self._outgoing = outgoing
        self._target = target
        # The queue that the user chose, if any.
        self._fixed = fixed
        self._deadline_ms = deadline_ms
        self.done = done
        self._tries_max = (parts.tries_max if fixed is None else parts.tries_max_fixed)[
            request.mode
        ]
        self._tries: list[FailedTry] = []
        # Failed attempts since it last waited for a master.
        self._counted = 0
        self._has_waited = False
        # The broker that could not store it, while it waits for a lookup of who is master.
        self._refused_by = ""
        # Ends the send at its deadline while it waits for a master.
        self._expiry: TimerHandle | None = None
        self._result: SendResult | None = None
        self._context: SendContext | None = None
        self._connection: Connection | None = None
        self._opaque = 0
        self._ended = False
        parts.begin_one()

    def begin(self, now_ms: float) -> None:
        """Make the first attempt."""
        send_queue = self._fixed
        if send_queue is not None and self._parts.targets.is_awaited(
            self._outgoing.topic, send_queue.broker_name
        ):
            # It must not overtake earlier ones to the same queue.
            self._send_queue = send_queue
            self._wait_for_master(now_ms)
            return
        if send_queue is None:
            target = self._target
            send_queue = target.send_queues[target.choice.next(self._parts.faults, now_ms)]
        self._try(send_queue, now_ms)

    def give_up(self) -> None:
        """Abandon the send, as nobody waits for it; a request that was sent stays sent."""
        if self._connection is not None:
            self._connection.forget_call(self._opaque)
        self._end()

    # --- an attempt ---------------------------------------------------------------------------

    def _try(self, send_queue: SendQueue, now_ms: float) -> None:
        parts = self._parts
        outgoing = self._outgoing
        self._send_queue = send_queue
        self._try_began_ms = now_ms
        left_ms = self._deadline_ms - now_ms
        if self.done.done():
            # Cancelled while it waited for a route.
            self._end()
            return
        if left_ms <= 0:
            self._fail()
            return
        if parts.options.try_timeout_ms and self._counted + 1 < self._tries_max:
            left_ms = min(left_ms, parts.options.try_timeout_ms)
        address = parts.targets.address_of(send_queue.broker_name)
        self._address = address or ""
        if address is None:
            self._failed(BrokerUnknownError(send_queue.broker_name, topic=outgoing.topic))
            return
        if self._refused_by == address:
            self._fail()
            return
        if parts.hooks and not self._is_allowed(address):
            return
        try:
            connection = parts.rpc.ready(address)
            if connection is not None and outgoing.retries is None and not outgoing.is_answer:
                code = BATCH_CODE if outgoing.is_batch else SEND_CODE
                self._opaque = opaque = connection.begin_call(code, left_ms, self._on_reply)
                self._connection = connection
                connection.send_call(
                    opaque,
                    send_queue.frames.encode(
                        opaque,
                        outgoing.body,
                        outgoing.properties,
                        outgoing.flag,
                        outgoing.system_flag,
                        parts.clock.now_ms(),
                        batch=outgoing.is_batch,
                    ),
                )
            else:
                self._connection = None
                command = command_of(outgoing, send_queue, parts.clock.now_ms())
                parts.rpc.invoke_callback(address, command, self._on_reply, timeout_ms=left_ms)
        except OrbitError as error:
            self._failed(error)
        except Exception as error:  # noqa: BLE001  # an error of a user's hook goes to the caller
            self._end_with(error)

    def _on_reply(self, outcome: Command | OrbitError) -> None:
        self._connection = None
        if self.done.done():
            self._end()
            return
        try:
            self._handle_reply(outcome)
        except Exception as error:  # noqa: BLE001  # the border: the caller must not wait forever
            self._end_with(error)

    def _handle_reply(self, outcome: Command | OrbitError) -> None:
        """End with a result, or make the next attempt."""
        if type(outcome) is not Command:
            self._failed(outcome)  # type: ignore[arg-type]  # the only other kind
            return
        status = _STATUSES.get(outcome.code)
        if status is None:
            code = BATCH_CODE if self._outgoing.is_batch else SEND_CODE
            if self._outgoing.is_answer:
                code = ANSWER_CODE
            self._failed(failure_of(code, outcome, self._address))
            return
        send_queue = self._send_queue
        try:
            result = result_of(status, outcome.fields, send_queue, self._outgoing.message_id)
        except ProtocolError as error:
            self._failed(error)
            return
        parts = self._parts
        now_ms = parts.clock.monotonic_ms()
        took_ms = now_ms - self._try_began_ms
        if took_ms >= SLOW_FROM_MS:
            parts.faults.note(send_queue.broker_name, took_ms, now_ms)
        if self._context is not None:
            self._after(result, None)
        if status is not SendStatus.OK and self._retries_elsewhere(result, now_ms):
            return
        self.done.set_result(result)
        self._end()

    def _retries_elsewhere(self, result: SendResult, now_ms: float) -> bool:
        """Send to another broker too, if the user prefers two copies to one that may be lost."""
        parts = self._parts
        if not parts.options.retry_another_broker_when_not_store_ok:
            return False
        self._result = result
        error = OrbitError(f"it was {result.status.value}")
        self._note(error, 0.0)
        if not self._may_try_again(now_ms):
            return False
        send_queue = self._next_queue(now_ms)
        if send_queue.broker_name == self._send_queue.broker_name:
            return False
        self._try(send_queue, now_ms)
        return True

    def _failed(self, error: OrbitError) -> None:
        """Record a failed attempt, and make the next one if allowed."""
        parts = self._parts
        now_ms = parts.clock.monotonic_ms()
        last = self._send_queue.broker_name
        self._note(error, now_ms - self._try_began_ms)
        if self._context is not None:
            self._after(None, error)
        if send_plan.is_broker_fault(error):
            parts.faults.note_failure(last, now_ms)
        if send_plan.suggests_stale_route(error):
            parts.targets.refresh_soon(self._outgoing.topic)
        if send_plan.lacks_master(error) and (self._has_waited or not self._may_try_again(now_ms)):
            self._wait_for_master(now_ms)
            return
        if not send_plan.is_retried(error) or not self._may_try_again(now_ms):
            if self._fixed is not None and not self._refused_by and send_plan.may_be_slave(error):
                self._refused_by = self._address
                self._wait_for_master(now_ms)
                return
            self._fail()
            return
        send_queue = self._next_queue(now_ms)
        if send_queue.broker_name != last:
            self._try(send_queue, now_ms)
            return
        # No other broker has the topic: give this one a moment.
        pause_ms = send_plan.pause_ms(
            parts.options.retry_pause_ms, self._counted, self._deadline_ms - now_ms
        )
        parts.clock.call_later(pause_ms, self._try_again)

    def _note(self, error: OrbitError, took_ms: float) -> None:
        """Record a failed attempt."""
        tried = FailedTry(self._send_queue.broker_name, self._address, error, took_ms)
        self._tries.append(tried)
        self._counted += 1
        if len(self._tries) > _TRIES_KEPT:
            # Those that led to a wait for a master are alike, and sent nothing.
            alike = (at for at, one in enumerate(self._tries) if send_plan.lacks_master(one.error))
            del self._tries[next(alike, 0)]

    def _wait_for_master(self, now_ms: float) -> None:
        """Try again after the next lookup of the route, until the deadline; elsewhere if refused."""
        if now_ms >= self._deadline_ms:
            self._fail()
            return
        self._has_waited = True
        self._counted = 0
        parts = self._parts
        self._expiry = parts.clock.call_later(self._deadline_ms - now_ms, self._expire)
        chosen = None if self._fixed is None else self._fixed.broker_name
        parts.targets.after_lookup(self._outgoing.topic, self._try_again, chosen_broker=chosen)

    def _expire(self) -> None:
        """End at the deadline, without a master."""
        if self.done.done():
            self._end()
        else:
            self._fail()

    def _try_again(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if self.done.done():
            self._end()
            return
        now_ms = self._parts.clock.monotonic_ms()
        try:
            self._try(self._next_queue(now_ms), now_ms)
        except Exception as error:  # noqa: BLE001  # the border, as in `_on_reply`
            self._end_with(error)

    def _may_try_again(self, now_ms: float) -> bool:
        return self._counted < self._tries_max and now_ms < self._deadline_ms

    def _next_queue(self, now_ms: float) -> SendQueue:
        if self._fixed is not None:
            return self._fixed
        parts = self._parts
        # The route may have changed.
        self._target = target = parts.targets.known(self._outgoing.topic) or self._target
        index = target.choice.next(parts.faults, now_ms, last_broker=self._send_queue.broker_name)
        return target.send_queues[index]

    # --- the end ------------------------------------------------------------------------------

    def _fail(self) -> None:
        """End with an error about all attempts, or with a weak result if there is one."""
        if self._result is not None:
            self.done.set_result(self._result)
            self._end()
            return
        now_ms = self._parts.clock.monotonic_ms()
        self._end_with(
            send_plan.failure(
                namespaces.unwrap(self._parts.options.namespace, self._outgoing.topic),
                self._tries,
                elapsed_ms=now_ms - self._deadline_ms + self._request.timeout_ms,
                timeout_ms=self._request.timeout_ms,
            )
        )

    def _end_with(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)
        self._end()

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            if self._expiry is not None:
                self._expiry.cancel()
            self._parts.end_one()

    # --- hooks --------------------------------------------------------------------------------

    def _is_allowed(self, address: str) -> bool:
        """Run the hooks before an attempt; one that forbids it ends the send with its error."""
        self._context = None
        context = new_context(self._parts, self._request, self._outgoing, self._send_queue, address)
        context.attempt = len(self._tries) + 1
        try:
            self._parts.hooks.before(context)
        except Exception as error:  # noqa: BLE001  # it goes to the caller
            self._end_with(error)
            return False
        self._context = context
        return True

    def _after(self, result: SendResult | None, error: Exception | None) -> None:
        context, self._context = self._context, None
        assert context is not None
        context.result = result
        context.error = error
        self._parts.hooks.after(context)


def new_context(
    parts: SendParts, request: SendRequest, outgoing: Outgoing, send_queue: SendQueue, address: str
) -> SendContext:
    """Describe an attempt to the hooks."""
    return SendContext(
        group=parts.group,
        message=request.message,
        message_id=outgoing.message_id,
        queue=send_queue.queue,
        address=address,
        mode=request.mode,
        namespace=parts.options.namespace,
        attempt=1,
    )


def command_of(outgoing: Outgoing, send_queue: SendQueue, born_ms: int) -> Command:
    """Make the request as a command, which RPC hooks can see and change."""
    return send_queue.frames.command(
        outgoing.body,
        outgoing.properties,
        outgoing.flag,
        outgoing.system_flag,
        born_ms,
        batch=outgoing.is_batch,
        retries=outgoing.retries,
        retries_max=outgoing.retries_max,
        answer=outgoing.is_answer,
    )


def result_of(
    status: SendStatus, fields: dict[str, str], send_queue: SendQueue, message_id: str
) -> SendResult:
    """Decode the reply to a send."""
    try:
        queue_id = int(fields["queueId"])
        queue_offset = int(fields["queueOffset"])
        offset_message_id = fields["msgId"]
    except (KeyError, ValueError) as error:
        raise ProtocolError(
            f"{send_queue.broker_name} says that the message is stored, but not where: "
            f"{dict(list(fields.items())[:20])}",
        ) from error
    queue = send_queue.queue
    if queue_id != queue.queue_id:
        # The broker chose another queue.
        queue = MessageQueue(
            broker_name=send_queue.broker_name, queue_id=queue_id, topic=send_queue.queue.topic
        )
    return SendResult(
        status=status,
        message_id=message_id,
        offset_message_id=offset_message_id,
        queue=queue,
        queue_offset=queue_offset,
        transaction_id=fields.get("transactionId"),
        region=fields.get("MSG_REGION") or USUAL_REGION,
        trace_on=fields.get("TRACE_ON") != "false",
        recall_handle=fields.get("recallHandle"),
        durability=durability_of(status, fields.get("durability")),
        copies=count_of(fields.get("copies")),
        copies_on_disk=count_of(fields.get("copiesOnDisk")),
    )
