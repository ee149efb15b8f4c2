"""One send: its tries, from the first request to a result or a failure.

The usual way of a send makes one future and no task: the request is written at once, and the
answer comes as a call on the loop, which ends the send or begins its next try.

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
from orbitmq.client.core.sending.send_results import SendResult, SendStatus, durability_of
from orbitmq.errors import BrokerUnknownError, FailedTry, OrbitError, ProtocolError
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.failures import failure_of
from orbitmq.protocol.requests.sending import USUAL_REGION
from orbitmq.protocol.send_frames import BATCH_CODE, SEND_CODE

if TYPE_CHECKING:
    from orbitmq.client.aio.instance.client_instance import ClientInstance
    from orbitmq.client.aio.sending.send_hooks import SendHooks
    from orbitmq.client.aio.sending.send_targets import SendTargets, Target, Way
    from orbitmq.client.core.sending.encoded_messages import EncodedMessages
    from orbitmq.client.core.sending.outgoing import Outgoing
    from orbitmq.client.core.sending.queue_selectors import Selector
    from orbitmq.client.options import ProducerOptions
    from orbitmq.model.messages import Message
    from orbitmq.transport.connection import Connection

_STATUSES: Final[dict[int, SendStatus]] = {
    ResponseCode.SUCCESS: SendStatus.OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class Asked(msgspec.Struct, frozen=True):
    """What the user asked to be sent, and how."""

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
        # How often a send is tried; when its queue is fixed, and when not.
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
        self._under_way = 0
        self._all_ended: asyncio.Future[None] | None = None

    def begin_one(self) -> None:
        """Count a send in."""
        self._under_way += 1

    def end_one(self) -> None:
        """Count a send out."""
        self._under_way -= 1
        if self._all_ended is not None and not self._under_way:
            self._all_ended.set_result(None)
            self._all_ended = None

    async def all_ended(self) -> None:
        """Return once no send is under way; each ends by its deadline."""
        while self._under_way:
            if self._all_ended is None:
                self._all_ended = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._all_ended)


class PendingSend:
    """One send; `done` gets its result or its error."""

    __slots__ = (
        "_address",
        "_asked",
        "_connection",
        "_context",
        "_deadline_ms",
        "_ended",
        "_fixed",
        "_opaque",
        "_outgoing",
        "_parts",
        "_result",
        "_target",
        "_tries",
        "_tries_max",
        "_try_began_ms",
        "_way",
        "done",
    )

    def __init__(
        self,
        parts: SendParts,
        asked: Asked,
        outgoing: Outgoing,
        target: Target,
        fixed: Way | None,
        deadline_ms: float,
        done: asyncio.Future[SendResult],
    ) -> None:
        self._parts = parts
        self._asked = asked
        self._outgoing = outgoing
        self._target = target
        # The queue of the user's choice.
        self._fixed = fixed
        self._deadline_ms = deadline_ms
        self.done = done
        self._tries_max = (parts.tries_max if fixed is None else parts.tries_max_fixed)[asked.mode]
        self._tries: list[FailedTry] = []
        self._result: SendResult | None = None
        self._context: SendContext | None = None
        self._connection: Connection | None = None
        self._opaque = 0
        self._ended = False
        parts.begin_one()

    def begin(self, now_ms: float) -> None:
        """Make the first try."""
        way = self._fixed
        if way is None:
            target = self._target
            way = target.ways[target.choice.next(self._parts.faults, now_ms)]
        self._try(way, now_ms)

    def give_up(self) -> None:
        """Forget the send: nobody waits for it any more. What was sent stays sent."""
        if self._connection is not None:
            self._connection.forget_call(self._opaque)
        self._end()

    # --- a try --------------------------------------------------------------------------------

    def _try(self, way: Way, now_ms: float) -> None:
        parts = self._parts
        outgoing = self._outgoing
        self._way = way
        self._try_began_ms = now_ms
        left_ms = self._deadline_ms - now_ms
        if self.done.done():
            # Given up while it waited for a route.
            self._end()
            return
        if left_ms <= 0:
            self._fail()
            return
        if parts.options.try_timeout_ms and len(self._tries) + 1 < self._tries_max:
            left_ms = min(left_ms, parts.options.try_timeout_ms)
        address = parts.targets.address_of(way.broker_name)
        self._address = address or ""
        if address is None:
            self._failed(BrokerUnknownError(way.broker_name, topic=outgoing.topic))
            return
        if parts.hooks and not self._is_allowed(address):
            return
        try:
            connection = parts.rpc.ready(address)
            if connection is not None and outgoing.retries is None:
                code = BATCH_CODE if outgoing.is_batch else SEND_CODE
                self._opaque = opaque = connection.begin_call(code, left_ms, self._answered)
                self._connection = connection
                connection.send_call(
                    opaque,
                    way.frames.encode(
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
                command = command_of(outgoing, way, parts.clock.now_ms())
                parts.rpc.invoke_callback(address, command, self._answered, timeout_ms=left_ms)
        except OrbitError as error:
            self._failed(error)
        except Exception as error:  # noqa: BLE001  # what a hook of the user raised is for its caller
            self._end_with(error)

    def _answered(self, outcome: Command | OrbitError) -> None:
        self._connection = None
        if self.done.done():
            self._end()
            return
        try:
            self._take(outcome)
        except Exception as error:  # noqa: BLE001  # the border: whoever waits must not wait forever
            self._end_with(error)

    def _take(self, outcome: Command | OrbitError) -> None:
        """End with a result, or go on with the next try."""
        if type(outcome) is not Command:
            self._failed(outcome)  # type: ignore[arg-type]  # the only other kind
            return
        status = _STATUSES.get(outcome.code)
        if status is None:
            asked = BATCH_CODE if self._outgoing.is_batch else SEND_CODE
            self._failed(failure_of(asked, outcome, self._address))
            return
        way = self._way
        try:
            result = result_of(status, outcome.fields, way, self._outgoing.message_id)
        except ProtocolError as error:
            self._failed(error)
            return
        parts = self._parts
        now_ms = parts.clock.monotonic_ms()
        took_ms = now_ms - self._try_began_ms
        if took_ms >= SLOW_FROM_MS:
            parts.faults.note(way.broker_name, took_ms, now_ms)
        if self._context is not None:
            self._after(result, None)
        if status is not SendStatus.OK and self._tries_elsewhere(result, now_ms):
            return
        self.done.set_result(result)
        self._end()

    def _tries_elsewhere(self, result: SendResult, now_ms: float) -> bool:
        """Send once more to another broker, when the user prefers two copies to a weak one."""
        parts = self._parts
        if not parts.options.retry_another_broker_when_not_store_ok:
            return False
        self._result = result
        error = OrbitError(f"it was {result.status.value}")
        self._tries.append(FailedTry(self._way.broker_name, self._address, error, 0.0))
        if not self._may_try_again(now_ms):
            return False
        way = self._next_way(now_ms)
        if way.broker_name == self._way.broker_name:
            return False
        self._try(way, now_ms)
        return True

    def _failed(self, error: OrbitError) -> None:
        """Take note of a failed try, and make the next if there is one."""
        parts = self._parts
        now_ms = parts.clock.monotonic_ms()
        last = self._way.broker_name
        took_ms = now_ms - self._try_began_ms
        self._tries.append(FailedTry(last, self._address, error, took_ms))
        if self._context is not None:
            self._after(None, error)
        if send_plan.is_fault_of_broker(error):
            parts.faults.note_failure(last, now_ms)
        if send_plan.makes_route_doubtful(error):
            parts.targets.refresh_soon(self._outgoing.topic)
        if not send_plan.is_retried(error) or not self._may_try_again(now_ms):
            self._fail()
            return
        way = self._next_way(now_ms)
        if way.broker_name != last:
            self._try(way, now_ms)
            return
        # There is nobody else: give it a moment.
        pause_ms = send_plan.pause_ms(
            parts.options.retry_pause_ms, len(self._tries), self._deadline_ms - now_ms
        )
        parts.clock.call_later(pause_ms, self._try_again)

    def _try_again(self) -> None:
        if self.done.done():
            self._end()
            return
        now_ms = self._parts.clock.monotonic_ms()
        try:
            self._try(self._next_way(now_ms), now_ms)
        except Exception as error:  # noqa: BLE001  # the border, as in `_answered`
            self._end_with(error)

    def _may_try_again(self, now_ms: float) -> bool:
        return len(self._tries) < self._tries_max and now_ms < self._deadline_ms

    def _next_way(self, now_ms: float) -> Way:
        if self._fixed is not None:
            return self._fixed
        parts = self._parts
        # The route may be a newer one by now.
        self._target = target = parts.targets.known(self._outgoing.topic) or self._target
        place = target.choice.next(parts.faults, now_ms, last_broker=self._way.broker_name)
        return target.ways[place]

    # --- the end ------------------------------------------------------------------------------

    def _fail(self) -> None:
        """End with the failure of the last try, or with a result that is better than nothing."""
        if self._result is not None:
            self.done.set_result(self._result)
            self._end()
            return
        now_ms = self._parts.clock.monotonic_ms()
        self._end_with(
            send_plan.failure(
                namespaces.unwrap(self._parts.options.namespace, self._outgoing.topic),
                self._tries,
                elapsed_ms=now_ms - self._deadline_ms + self._asked.timeout_ms,
                timeout_ms=self._asked.timeout_ms,
            )
        )

    def _end_with(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)
        self._end()

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._parts.end_one()

    # --- hooks --------------------------------------------------------------------------------

    def _is_allowed(self, address: str) -> bool:
        """Tell hooks of a try; one that forbids it ends the send with what it raised."""
        self._context = None
        context = new_context(self._parts, self._asked, self._outgoing, self._way, address)
        context.attempt = len(self._tries) + 1
        try:
            self._parts.hooks.before(context)
        except Exception as error:  # noqa: BLE001  # it belongs to whoever sends
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
    parts: SendParts, asked: Asked, outgoing: Outgoing, way: Way, address: str
) -> SendContext:
    """Make what hooks see of a try."""
    return SendContext(
        group=parts.group,
        message=asked.message,
        message_id=outgoing.message_id,
        queue=way.shown,
        address=address,
        mode=asked.mode,
        namespace=parts.options.namespace,
        attempt=1,
    )


def command_of(outgoing: Outgoing, way: Way, born_ms: int) -> Command:
    """Make the request of a send as a command, which hooks can see and change."""
    return way.frames.command(
        outgoing.body,
        outgoing.properties,
        outgoing.flag,
        outgoing.system_flag,
        born_ms,
        batch=outgoing.is_batch,
        retries=outgoing.retries,
        retries_max=outgoing.retries_max,
    )


def result_of(status: SendStatus, fields: dict[str, str], way: Way, message_id: str) -> SendResult:
    """Read the answer to a send."""
    try:
        queue_id = int(fields["queueId"])
        queue_offset = int(fields["queueOffset"])
        offset_message_id = fields["msgId"]
    except (KeyError, ValueError) as error:
        raise ProtocolError(
            f"{way.broker_name} says that the message is stored, but not where: "
            f"{dict(list(fields.items())[:20])}",
        ) from error
    queue = way.shown
    if queue_id != queue.queue_id:
        # The broker chose another.
        queue = MessageQueue(broker_name=way.broker_name, queue_id=queue_id, topic=way.shown.topic)
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
    )
