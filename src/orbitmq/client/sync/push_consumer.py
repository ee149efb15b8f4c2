"""The blocking push consumer: calls a listener with messages as they arrive.

    def show(message: ReceivedMessage) -> None:
        print(message.body)

    consumer = PushConsumer("billing", on_message=show, namesrv="127.0.0.1:9876")
    consumer.subscribe("orders", "paid || shipped")
    with consumer:
        input("press enter to stop")

A plain listener runs in threads and can call blocking clients. An async listener and hooks run on
the event loop in the background and cannot.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, TypeVar

from orbitmq.client.aio.push.listeners import listener_of
from orbitmq.client.aio.push.push_consumer import PushConsumer as AioPushConsumer
from orbitmq.client.core.consuming.allocation import averagely
from orbitmq.client.sync.blocking_client import BlockingClient, on_loop
from orbitmq.client.sync.callbacks import Callbacks

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet
    from concurrent.futures import Executor
    from typing import Unpack

    from orbitmq.client.aio.push.consume_hooks import ConsumeHook
    from orbitmq.client.aio.push.listeners import OnMessage, OnMessages
    from orbitmq.client.aio.push.push_member import OnQueuesChanged
    from orbitmq.client.aio.sending.trace_writer import TraceCounts
    from orbitmq.client.core.consuming.allocation import Allocation
    from orbitmq.client.keywords import PushKeywords
    from orbitmq.clock import Clock
    from orbitmq.model.queues import MessageQueue
    from orbitmq.transport.hooks import RpcHook

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")


class PushConsumer(BlockingClient[AioPushConsumer]):
    """A member of a consumer group; starts and stops once, best in a `with` block."""

    def __init__(  # noqa: PLR0913  # by name
        self,
        group: str,
        *,
        on_message: OnMessage | None = None,
        on_messages: OnMessages | None = None,
        ordered: bool = False,
        allocation: Allocation = averagely,
        hooks: Sequence[ConsumeHook] = (),
        rpc_hooks: Sequence[RpcHook] = (),
        on_queues_changed: OnQueuesChanged | None = None,
        executor: Executor | None = None,
        clock: Clock | None = None,
        **options: Unpack[PushKeywords],
    ) -> None:
        """Make a consumer; `start` connects it.

        Args:
            group: the consumer group. Its members share the messages of its topics.
            on_message: called with each message. A plain function runs in a thread, an async one
                on the loop. Returning None means done; an exception means retry later.
            on_messages: the same with a list of up to `consume_batch_size` messages.
            ordered: whether to consume the messages of each queue in order, one at a time.
            allocation: how the members of the group share the queues; all members must use the
                same.
            hooks: called before and after each call of the listener.
            rpc_hooks: called before and after each request to a server.
            on_queues_changed: called in a thread with a topic, all its queues, and the queues
                that this member now has.
            executor: runs a plain listener instead of the consumer's own threads.
            clock: the source of time.
            options: see `PushOptions`.
        """
        self._callbacks = Callbacks("orbitmq-queues", threads=1)
        self._here = threading.local()
        if not listener_of(on_message, on_messages).is_async:
            on_message = self._marked(on_message) if on_message else None
            on_messages = self._marked(on_messages) if on_messages else None
        client = AioPushConsumer(
            group,
            on_message=on_message,
            on_messages=on_messages,
            ordered=ordered,
            allocation=allocation,
            hooks=hooks,
            rpc_hooks=rpc_hooks,
            on_queues_changed=self._in_thread(on_queues_changed) if on_queues_changed else None,
            executor=executor,
            clock=clock,
            **options,
        )
        super().__init__(
            client, what=f"push consumer of group {group!r}", callbacks=self._callbacks
        )

    def stop(self) -> None:
        """Wait for running listeners, up to `await_termination_ms`; commit and leave the group.

        Called inside a listener, it returns at once, and the consumer stops after the listener
        has returned.
        """
        if self._is_own_thread() and self._loop is not None:
            try:
                threading.Thread(target=super().stop, name="orbitmq-stop").start()
            except RuntimeError as error:
                # The interpreter starts no threads while it shuts down.
                log.info("stop postponed to the exit of the process reason=%s", error)
        else:
            super().stop()

    def _is_own_thread(self) -> bool:
        return super()._is_own_thread() or getattr(self._here, "in_listener", False)

    subscribe = on_loop(AioPushConsumer.subscribe)
    unsubscribe = on_loop(AioPushConsumer.unsubscribe)
    pause = on_loop(AioPushConsumer.pause)
    resume = on_loop(AioPushConsumer.resume)

    @property
    def concurrency(self) -> int:
        """How many calls of the listener may run concurrently; can be set at any time."""
        return self._client.concurrency

    @concurrency.setter
    def concurrency(self, concurrency: int) -> None:
        def change() -> None:
            self._client.concurrency = concurrency

        self._do(change)

    @property
    def queues(self) -> Collection[MessageQueue]:
        """The queues that this member of the group has at present."""
        self._running()
        return self._do(lambda: tuple(self._client.queues))

    def _in_thread(self, listener: OnQueuesChanged) -> OnQueuesChanged:
        def call(
            topic: str, queues: Sequence[MessageQueue], own: AbstractSet[MessageQueue]
        ) -> object:
            return self._callbacks.run(lambda: listener(topic, queues, own))

        return call

    def _marked(self, listener: Callable[[T], R]) -> Callable[[T], R]:
        """Wrap a listener so that its threads know they run it."""

        @functools.wraps(listener)
        def call(received: T) -> R:
            self._here.in_listener = True
            try:
                return listener(received)
            finally:
                self._here.in_listener = False

        return call

    @property
    def trace_counts(self) -> TraceCounts | None:
        """What became of its trace records; None without `trace`."""
        return self._client.trace_counts
