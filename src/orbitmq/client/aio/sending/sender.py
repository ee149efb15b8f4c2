"""The sender: starts the sends of one producer.

Threads: one event loop; large bodies are compressed in another thread.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitmq.client.aio.sending.attempts import (
    PendingSend,
    SendParts,
    SendRequest,
    command_of,
    new_context,
)
from orbitmq.client.aio.sending.send_targets import SendQueue, SendTarget, SendTargets
from orbitmq.client.core.sending import send_plan
from orbitmq.client.core.sending.encoded_messages import EncodedMessages
from orbitmq.client.core.sending.outgoing import CompressionPolicy, MessagePreparer, Outgoing
from orbitmq.errors import (
    BrokerUnknownError,
    FailedTry,
    MessageError,
    MessageTypeError,
    OrbitError,
)
from orbitmq.model.messages import Message
from orbitmq.model.queues import MessageQueue
from orbitmq.record.compression import Compression

if TYPE_CHECKING:
    from orbitmq.client.aio.instance.client_instance import ClientInstance
    from orbitmq.client.aio.sending.send_hooks import SendHooks
    from orbitmq.client.core.sending.send_results import SendResult
    from orbitmq.client.options import ProducerOptions


class Sender:
    """Sends for one producer."""

    def __init__(
        self, instance: ClientInstance, *, group: str, options: ProducerOptions, hooks: SendHooks
    ) -> None:
        self.targets = SendTargets(instance, group=group, options=options)
        self._parts = SendParts(
            instance, group=group, options=options, hooks=hooks, targets=self.targets
        )
        self._preparer = MessagePreparer(
            instance.unique_ids,
            namespace=options.namespace,
            body_bytes_max=options.max_message_bytes,
            compression=CompressionPolicy(
                kind=Compression[options.compress_kind.upper()],
                level=options.compress_level,
                body_bytes_min=options.compress_above_bytes,
            ),
        )

    # --- starting a send ----------------------------------------------------------------------

    def begin_now(
        self, request: SendRequest, done: asyncio.Future[SendResult]
    ) -> PendingSend | None:
        """Make the first attempt at once; None if it must wait, for a route or for compression."""
        if self._preparer.takes_long(request.message):
            return None
        outgoing = self._preparer.prepare(request.message)
        target = self.targets.known(outgoing.topic)
        if target is None:
            return None
        send_queue: SendQueue | None = None
        if _names_queue(request):
            send_queue = target.find_queue(_chosen_queue(request, target))
            if send_queue is None:
                return None
        now_ms = self._parts.clock.monotonic_ms()
        sending = PendingSend(
            self._parts, request, outgoing, target, send_queue, now_ms + request.timeout_ms, done
        )
        sending.begin(now_ms)
        return sending

    async def begin_when_ready(
        self, request: SendRequest, done: asyncio.Future[SendResult]
    ) -> PendingSend:
        """Wait for what the first attempt needs, then make it."""
        deadline_ms = self._parts.clock.monotonic_ms() + request.timeout_ms
        outgoing, target, send_queue = await self._prepare(request, deadline_ms)
        sending = PendingSend(self._parts, request, outgoing, target, send_queue, deadline_ms, done)
        sending.begin(self._parts.clock.monotonic_ms())
        return sending

    def created(self, message: Message) -> Message:
        """Note that a message waits to be sent in a batch; returns what to send."""
        return message

    async def send(self, request: SendRequest) -> SendResult:
        """Send, and wait for the result; a caller that is cancelled abandons the send."""
        done: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        sending = self.begin_now(request, done)
        if sending is None:
            sending = await self.begin_when_ready(request, done)
        try:
            return await done
        except asyncio.CancelledError:
            sending.give_up()
            raise

    async def send_oneway(self, request: SendRequest) -> None:
        """Send once, without a reply."""
        began_ms = self._parts.clock.monotonic_ms()
        deadline_ms = began_ms + request.timeout_ms
        outgoing, target, send_queue = await self._prepare(request, deadline_ms)
        now_ms = self._parts.clock.monotonic_ms()
        if send_queue is None:
            send_queue = target.send_queues[target.choice.next(self._parts.faults, now_ms)]
        address = self.targets.address_of(send_queue.broker_name)
        context = None
        if self._parts.hooks:
            context = new_context(self._parts, request, outgoing, send_queue, address or "")
            self._parts.hooks.before(context)
        try:
            if address is None:
                raise BrokerUnknownError(send_queue.broker_name, topic=outgoing.topic)
            await self._send_oneway(outgoing, send_queue, address, deadline_ms)
        except OrbitError as error:
            if context is not None:
                context.error = error
            ended_ms = self._parts.clock.monotonic_ms()
            if send_plan.is_broker_fault(error):
                self._parts.faults.note_failure(send_queue.broker_name, ended_ms)
            if send_plan.suggests_stale_route(error):
                self.targets.refresh_soon(outgoing.topic)
            raise send_plan.failure(
                send_queue.queue.topic,
                [FailedTry(send_queue.broker_name, address or "", error, ended_ms - now_ms)],
                elapsed_ms=ended_ms - began_ms,
                timeout_ms=request.timeout_ms,
            ) from error
        finally:
            if context is not None:
                self._parts.hooks.after(context)

    async def _prepare(
        self, request: SendRequest, deadline_ms: float
    ) -> tuple[Outgoing, SendTarget, SendQueue | None]:
        """Prepare the message and find its topic and queue; compresses in a thread."""
        if self._preparer.takes_long(request.message):
            outgoing = await asyncio.to_thread(self._preparer.prepare, request.message)
        else:
            outgoing = self._preparer.prepare(request.message)
        target = await self.targets.find(
            outgoing.topic, timeout_ms=deadline_ms - self._parts.clock.monotonic_ms()
        )
        if not _names_queue(request):
            return outgoing, target, None
        queue = _chosen_queue(request, target)
        left_ms = deadline_ms - self._parts.clock.monotonic_ms()
        return outgoing, target, await self.targets.resolve_queue(target, queue, timeout_ms=left_ms)

    async def _send_oneway(
        self, outgoing: Outgoing, send_queue: SendQueue, address: str, deadline_ms: float
    ) -> None:
        connection = self._parts.rpc.ready(address)
        if connection is not None and outgoing.retries is None:
            frame = send_queue.frames.encode(
                connection.unused_opaque(),
                outgoing.body,
                outgoing.properties,
                outgoing.flag,
                outgoing.system_flag,
                self._parts.clock.now_ms(),
                batch=outgoing.is_batch,
                oneway=True,
            )
            connection.send_oneway(frame)
        else:
            command = command_of(outgoing, send_queue, self._parts.clock.now_ms())
            left_ms = deadline_ms - self._parts.clock.monotonic_ms()
            await self._parts.rpc.invoke_oneway(address, command, timeout_ms=left_ms)

    # --- stopping -----------------------------------------------------------------------------

    async def all_ended(self) -> None:
        """Wait until no send is in flight; each ends by its deadline."""
        await self._parts.all_ended()

    async def stop(self) -> None:
        """Cancel the work in the background."""
        await self.targets.stop()


def _names_queue(request: SendRequest) -> bool:
    return request.queue is not None or request.selector is not None or request.argument is not None


def _chosen_queue(request: SendRequest, target: SendTarget) -> MessageQueue:
    """Return the queue that the user or the selector chose."""
    queue = request.queue
    by = "queue"
    if request.argument is not None and request.selector is None:
        raise MessageError(
            f"a send got argument={request.argument!r:.60} without a selector, which would use it",
            hint="pass selector=, for example queue_selectors.by_hash",
        )
    if request.selector is not None:
        if queue is not None:
            raise MessageError("a send got both a queue and a selector", hint="pass one of them")
        if not callable(request.selector):
            raise MessageTypeError(
                "selector", request.selector, takes="a function of queues, message and argument"
            )
        message = request.message
        if isinstance(message, EncodedMessages):
            raise MessageError("a selector cannot read encoded messages", hint="pass a queue")
        first = message if isinstance(message, Message) else message[0]
        queue = request.selector(target.queues, first, request.argument)
        by = "the result of the selector"
    if not isinstance(queue, MessageQueue):
        raise MessageTypeError(by, queue, takes="a MessageQueue")
    if not target.is_topic_of(queue):
        raise target.no_such(queue)
    return queue
