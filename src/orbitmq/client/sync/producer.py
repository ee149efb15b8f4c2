"""The blocking producer: every form of send, from any thread.

    with Producer("shop", namesrv="127.0.0.1:9876") as producer:
        result = producer.send(Message("orders", b"one"))

Hooks and selectors run on the event loop in the background: they must be quick and cannot call
blocking clients. Callbacks of `send_async` run in threads and can.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orbitmq.client.aio.sending.producer import Producer as AioProducer
from orbitmq.client.sync.blocking_client import BlockingClient, waiting
from orbitmq.client.sync.callbacks import Callbacks

if TYPE_CHECKING:
    from concurrent.futures import Future
    from typing import Unpack

    from orbitmq.client.aio.sending.producer import Messages, OnFailure, OnSuccess
    from orbitmq.client.aio.sending.send_hooks import CheckForbiddenHook, SendHook
    from orbitmq.client.aio.sending.trace_writer import TraceCounts
    from orbitmq.client.core.sending.queue_selectors import Selector
    from orbitmq.client.core.sending.send_results import SendResult
    from orbitmq.client.keywords import ProducerKeywords
    from orbitmq.clock import Clock
    from orbitmq.model.queues import MessageQueue
    from orbitmq.transport.hooks import RpcHook


class Producer(BlockingClient[AioProducer]):
    """Sends messages; starts and stops once, best in a `with` block."""

    def __init__(
        self,
        group: str = "DEFAULT_PRODUCER",
        *,
        hooks: Sequence[SendHook | CheckForbiddenHook] = (),
        rpc_hooks: Sequence[RpcHook] = (),
        clock: Clock | None = None,
        **options: Unpack[ProducerKeywords],
    ) -> None:
        """Make a producer; `start` connects it.

        Args:
            group: the name that brokers know the producers of one application by.
            hooks: called before and after each attempt of a send, and may forbid it.
            rpc_hooks: called before and after each request to a server.
            clock: the source of time.
            options: see `ProducerOptions`.
        """
        self._wrap(
            AioProducer(group, hooks=hooks, rpc_hooks=rpc_hooks, clock=clock, **options), group
        )

    def _wrap(self, client: AioProducer, group: str) -> None:
        self._callbacks = Callbacks("orbitmq-sent")
        super().__init__(client, what=f"producer of group {group!r}", callbacks=self._callbacks)

    send = waiting(AioProducer.send)
    send_oneway = waiting(AioProducer.send_oneway)
    request = waiting(AioProducer.request)
    reply = waiting(AioProducer.reply)
    recall = waiting(AioProducer.recall)
    queues = waiting(AioProducer.queues)

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
    ) -> Future[SendResult]:
        """Start a send and return a future of its result at once; arguments as for `send`.

        Every failure goes to the future, and to `on_failure` if given. The two callbacks run in
        threads of the producer. Callbacks added to the future itself run on the event loop and must
        be quick.
        """
        future = self._running().start_future(
            lambda: self._client.send_async(
                message, timeout_ms=timeout_ms, queue=queue, selector=selector, argument=argument
            )
        )
        self._callbacks.after(future, on_success, on_failure)
        return future

    @property
    def group(self) -> str:
        """Its group, as brokers know it."""
        return self._client.group

    @property
    def trace_counts(self) -> TraceCounts | None:
        """What became of its trace records; None without `trace`."""
        return self._client.trace_counts
