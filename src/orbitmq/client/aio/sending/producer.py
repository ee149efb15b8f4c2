"""The producer on asyncio: every form of send.

    send            awaits the result; retries at other brokers
    send_async      returns a future at once, with callbacks; has its own retry count
    send_oneway     no reply: fast, but the message may be lost
    request         awaits the message that a consumer replies with
    reply           replies to such a request

Each takes a message or a batch. The queue is any, a given one, or one that a selector chooses.

Threads: one event loop, the one it was started on.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from orbitmq.client.aio.instance import instances
from orbitmq.client.aio.instance.client_instance import INNER_PRODUCER, ClientInstance
from orbitmq.client.aio.sending.accumulator import Accumulator
from orbitmq.client.aio.sending.attempts import SendRequest
from orbitmq.client.aio.sending.requesting import Requesting, send_reply
from orbitmq.client.aio.sending.send_hooks import CheckForbiddenHook, SendHook, SendHooks
from orbitmq.client.aio.sending.send_tracing import SendTracing
from orbitmq.client.aio.sending.sender import Sender
from orbitmq.client.aio.sending.traced_client import TracedClient
from orbitmq.client.core import namespaces
from orbitmq.client.core.consuming.consume_results import Reply
from orbitmq.client.core.sending.encoded_messages import EncodedMessages
from orbitmq.client.core.sending.send_plan import SendMode
from orbitmq.client.keywords import ProducerKeywords, options_of
from orbitmq.client.options import ClientOptions, ProducerOptions
from orbitmq.clock import SystemClock
from orbitmq.errors import MessageError, MessageTypeError, RecallHandleError
from orbitmq.lifecycle import OwnedTasks
from orbitmq.model.messages import Message
from orbitmq.model.names import check_group
from orbitmq.model.recall_handles import RecallHandle

if TYPE_CHECKING:
    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.client.core.sending.queue_selectors import Selector
    from orbitmq.client.core.sending.send_results import SendResult
    from orbitmq.clock import Clock
    from orbitmq.model.queues import MessageQueue
    from orbitmq.protocol.requests.transactions import CheckTransaction
    from orbitmq.transport.hooks import RpcHook

log = logging.getLogger(__name__)

Messages = Message | Sequence[Message] | EncodedMessages
OnSuccess = Callable[["SendResult"], object]
OnFailure = Callable[[BaseException], object]


class Producer(TracedClient):
    """Sends messages; starts and stops once, best in an `async with` block."""

    def __init__(
        self,
        group: str = "DEFAULT_PRODUCER",
        *,
        hooks: Sequence[SendHook | CheckForbiddenHook] = (),
        rpc_hooks: Sequence[RpcHook] = (),
        clock: Clock | None = None,
        **options: Unpack[ProducerKeywords],
    ) -> None:
        """Make a producer.

        Args:
            group: the name that brokers know the producers of one application by.
            hooks: run before and after each attempt of a send, and may forbid it.
            rpc_hooks: see every request and its reply.
            clock: the source of time, for tests.
            options: see `ProducerOptions`.
        """
        self._set_up(
            group,
            options_of(ProducerOptions, options),
            SendHooks(hooks),
            clock or SystemClock(),
            tuple(rpc_hooks),
        )

    def _set_up(
        self,
        group: str,
        options: ProducerOptions,
        hooks: SendHooks,
        clock: Clock,
        rpc_hooks: tuple[RpcHook, ...] = (),
    ) -> None:
        check_group(group)
        super().__init__(f"the producer of group {group!r}")
        self._group = namespaces.wrap(options.namespace, group)
        self._options = options
        self._hooks = hooks
        self._clock = clock
        self._unready_sends = OwnedTasks()
        self._rpc_hooks = rpc_hooks
        # The instance that this is the inner producer of; other producers acquire an instance.
        self._owner: ClientInstance | None = None
        self._sender: Sender | None = None
        self._accumulator: Accumulator | None = None
        self._requesting: Requesting | None = None
        self._send_tracing: SendTracing | None = None

    # --- lifecycle ----------------------------------------------------------------------------

    async def stop(self) -> None:
        """Wait for the sends in flight, each until its deadline, then unregister."""
        # Not run to completion: a caller that cancels the stop abandons the sends.
        await self._stop()

    # --- sends --------------------------------------------------------------------------------

    async def send(
        self,
        message: Messages,
        *,
        timeout_ms: float | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
    ) -> SendResult:
        """Send a message, or a list as one batch, and return where it was stored.

        Args:
            message: a message; a list or tuple is sent as one batch, to one queue.
            timeout_ms: time for all attempts together; by default `send_timeout_ms`.
            queue: the queue to send to, one of `queues(topic)`.
            selector: a function that chooses the queue from the queues, message and `argument`.
            argument: passed to the selector.

        Raises:
            SendError: no broker acknowledged it; the error lists the attempts.
            MessageError: the message is invalid.
            RouteNotFoundError: no broker has the topic.
        """
        sender = self._running_sender()
        request = SendRequest(
            message, SendMode.AWAITED, self._time(timeout_ms), queue, selector, argument
        )
        if (
            self._accumulator is not None
            and selector is None
            and argument is None
            and isinstance(message, Message)
        ):
            return await self._accumulator.add(
                sender.created(message), queue=queue, timeout_ms=request.timeout_ms
            )
        return await sender.send(request)

    def send_async(
        self,
        message: Messages,
        *,
        on_success: OnSuccess | None = None,
        on_failure: OnFailure | None = None,
        timeout_ms: float | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
    ) -> asyncio.Future[SendResult]:
        """Start a send and return a future of its result at once; arguments as for `send`.

        Every failure goes to the future, and to `on_failure` if given. The callbacks run on the
        event loop.
        """
        done: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        if on_success is not None or on_failure is not None:
            done.add_done_callback(_callback(on_success, on_failure))
        try:
            sender = self._running_sender()
            request = SendRequest(
                message, SendMode.ASYNC, self._time(timeout_ms), queue, selector, argument
            )
            if sender.begin_now(request, done) is None:
                self._unready_sends.start(
                    _begin_when_ready(sender, request, done),
                    name="first send to a topic, or of a large message",
                )
        except Exception as error:  # noqa: BLE001  # it goes to the future
            done.set_exception(error)
        return done

    async def send_oneway(
        self,
        message: Messages,
        *,
        timeout_ms: float | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
    ) -> None:
        """Send once, without a reply; arguments as for `send`.

        Returns once the request is written. The message may still be lost without an error.
        """
        await self._running_sender().send_oneway(
            SendRequest(message, SendMode.ONEWAY, self._time(timeout_ms), queue, selector, argument)
        )

    async def request(
        self,
        message: Message,
        *,
        timeout_ms: float | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
    ) -> ReceivedMessage:
        """Send a message and return the reply of the consumer that gets it; arguments as for `send`.

        `timeout_ms` covers the send, the consumer's work and the way back. Any number of requests
        may be in flight.

        Raises:
            RequestTimeoutError: no reply came in time.
            SendError: no broker acknowledged the request.
        """
        self._running_sender()
        assert self._requesting is not None
        return await self._requesting.request(
            message,
            timeout_ms=self._time(timeout_ms),
            queue=queue,
            selector=selector,
            argument=argument,
        )

    async def reply(
        self,
        request: ReceivedMessage,
        reply: Reply | bytes | str,
        *,
        timeout_ms: float | None = None,
    ) -> SendResult:
        """Reply to a message that was sent with `request`; returns once the requester has it.

        Raises:
            ReplyNotDeliveredError: the requester is gone, or no longer waits.
            SendError: no broker could be asked to deliver it.
            MessageError: the message asks for no reply, or the reply is invalid.
        """
        return await send_reply(
            self._running_sender(),
            request,
            reply if isinstance(reply, Reply) else Reply(reply),
            timeout_ms=self._time(timeout_ms),
            retries=self._options.retries,
            clock=self._clock,
        )

    async def recall(self, handle: str | None, *, timeout_ms: float | None = None) -> str:
        """Take back a message that is not due yet; returns its id.

        A message that was delivered already stays delivered. The broker must allow it: RocketMQ's
        needs `recallMessageEnable=true`.

        Args:
            handle: the `recall_handle` of its send result.
            timeout_ms: time for the call; by default `send_timeout_ms`.

        Raises:
            RecallHandleError: this is no such handle.
            RemoteError: the broker refuses it, for example because its time has come.
        """
        self._running_sender()
        if not isinstance(handle, str):
            raise RecallHandleError(handle)
        instance = self._owner or self._instance
        assert instance is not None
        recalled = RecallHandle.decode(handle)
        is_done = False
        try:
            message_id = await instance.brokers.recall(
                handle, self._group, timeout_ms=self._time(timeout_ms)
            )
            is_done = True
        finally:
            if self._send_tracing is not None:
                self._send_tracing.recalled(recalled, success=is_done)
        return message_id

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that can be sent to."""
        target = await self._running_sender().targets.find(
            namespaces.wrap(self._options.namespace, topic),
            timeout_ms=self._options.send_timeout_ms,
        )
        return list(target.queues)

    # --- as a member of its client instance ---------------------------------------------------

    @property
    def group(self) -> str:
        """Its group, as brokers know it."""
        return self._group

    @property
    def answers_checks(self) -> bool:
        """Whether brokers may ask it about transactions."""
        return False

    def topics(self) -> Iterable[str]:
        """The topics it sends to, whose routes are kept fresh."""
        if self._sender is None or self._requesting is None:
            return ()
        return [*self._sender.targets.topics, *self._requesting.reply_topics]

    async def check_transaction(self, address: str, check: CheckTransaction, record: bytes) -> None:
        """Only log it: this producer sends no half messages, so another one must reply."""
        del record
        log.warning(
            "transaction check of a half message that is not ours group=%s peer=%s id=%s",
            self._group,
            address,
            check.message_id,
        )

    # --- inside -------------------------------------------------------------------------------

    async def _open(self) -> None:
        """Join the client instance; the first send connects to brokers."""
        options = instances.with_own_instance(self._options, self._clock)
        instance = self._owner
        if instance is None:
            instance = self._instance = await instances.acquire(
                options, rpc_hooks=self._rpc_hooks, clock=self._clock
            )
        hooks = self._hooks
        writer = await self._start_tracing(
            self._group, options, rpc_hooks=self._rpc_hooks, clock=self._clock
        )
        if writer is not None:
            self._send_tracing = SendTracing(
                writer, group=self._group, namespace=options.namespace, clock=self._clock
            )
            hooks = hooks.with_hook(self._send_tracing)
        kind = Sender
        if options.opentelemetry:
            # Imported here, as the package is optional.
            from orbitmq.client.aio.sending.send_spans import SpanSender

            kind = SpanSender
        sender = kind(instance, group=self._group, options=options, hooks=hooks)
        self._requesting = Requesting(instance, sender, options)
        if options.accumulate:
            self._accumulator = Accumulator(
                self._send_accumulated,
                self._clock,
                delay_ms=options.accumulate_delay_ms,
                batch_bytes_max=options.accumulate_batch_bytes,
                held_bytes_max=options.accumulate_held_bytes,
            )
        if self._owner is None:
            await instance.add_producer(self)
        self._sender = sender

    async def _close(self) -> None:
        try:
            if self._accumulator is not None:
                await self._accumulator.stop()
            await self._unready_sends.all_done()
            if self._sender is not None:
                await self._sender.all_ended()
        finally:
            try:
                await self._unready_sends.cancel()
                await self._stop_tracing()
            finally:
                if self._sender is not None:
                    await self._sender.stop()
                if self._instance is not None:
                    await self._instance.remove_producer(self)

    def _running_sender(self) -> Sender:
        if self._sender is None or self._state.stopping:
            self._running()
            raise AssertionError("a producer that runs has a sender")
        return self._sender

    def _time(self, timeout_ms: float | None) -> float:
        if timeout_ms is None:
            return self._options.send_timeout_ms
        if type(timeout_ms) not in (int, float):
            raise MessageTypeError("timeout_ms", timeout_ms, takes="a number of milliseconds")
        if not timeout_ms > 0:
            raise MessageError(
                f"timeout_ms cannot be {timeout_ms}", hint="give it a positive number"
            )
        return timeout_ms

    async def _send_accumulated(
        self, message: Messages, queue: MessageQueue | None, timeout_ms: float | None
    ) -> SendResult:
        # Also while stopping: waiting messages are sent before the producer unregisters.
        assert self._sender is not None
        request = SendRequest(message, SendMode.AWAITED, self._time(timeout_ms), queue, None, None)
        return await self._sender.send(request)


async def inner_producer(instance: ClientInstance) -> Producer:
    """Make the inner producer of an instance."""
    shared = {
        row.name: getattr(instance.options, row.name) for row in dataclasses.fields(ClientOptions)
    }
    producer = Producer.__new__(Producer)
    producer._set_up(INNER_PRODUCER, ProducerOptions(**shared), SendHooks(()), instance.clock)
    producer._owner = instance
    await producer.start()
    return producer


async def _begin_when_ready(
    sender: Sender, request: SendRequest, done: asyncio.Future[SendResult]
) -> None:
    try:
        await sender.begin_when_ready(request, done)
    except asyncio.CancelledError:
        done.cancel()
        raise
    except Exception as error:  # noqa: BLE001  # it goes to the future
        if not done.done():
            done.set_exception(error)


def _callback(
    on_success: OnSuccess | None, on_failure: OnFailure | None
) -> Callable[[asyncio.Future[SendResult]], None]:
    def call(done: asyncio.Future[SendResult]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        try:
            if error is None:
                if on_success is not None:
                    on_success(done.result())
            elif on_failure is not None:
                on_failure(error)
            else:
                log.warning("send failed, and there is no on_failure reason=%s", error)
        except Exception:
            log.exception("callback of a send failed")

    return call
