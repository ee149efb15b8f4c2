"""The blocking lite pull consumer: a program polls for messages.

    with LitePullConsumer("billing", namesrv="127.0.0.1:9876") as consumer:
        consumer.subscribe("orders", "paid || shipped")
        for message in consumer:
            print(message.body)

It subscribes to topics, whose queues the members of a group share, or is assigned queues, which it
does not share. A poll marks the messages of earlier polls as done.

Threads: any may call it; only one may poll.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from orbitmq.client.aio.pull.lite_pull_consumer import LitePullConsumer as AioLitePullConsumer
from orbitmq.client.core.consuming.allocation import averagely
from orbitmq.client.sync.blocking_client import on_loop, waiting
from orbitmq.client.sync.callbacks import Callbacks
from orbitmq.client.sync.queue_lookups import QueueLookups
from orbitmq.errors import StateError
from orbitmq.model.subscriptions import EVERYTHING

if TYPE_CHECKING:
    from typing import Unpack

    from orbitmq.client.aio.pull.lite_pull_member import QueuesListener
    from orbitmq.client.aio.sending.trace_writer import TraceCounts
    from orbitmq.client.core.consuming.allocation import Allocation
    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.client.core.subscriptions import Expression
    from orbitmq.client.keywords import LitePullKeywords
    from orbitmq.clock import Clock
    from orbitmq.model.queues import MessageQueue
    from orbitmq.transport.hooks import RpcHook


class LitePullConsumer(QueueLookups[AioLitePullConsumer]):
    """Returns messages of subscribed topics or assigned queues."""

    def __init__(
        self,
        group: str,
        *,
        allocation: Allocation = averagely,
        on_assigned: QueuesListener | None = None,
        rpc_hooks: Sequence[RpcHook] = (),
        clock: Clock | None = None,
        **options: Unpack[LitePullKeywords],
    ) -> None:
        """Make a consumer; `start` connects it.

        Args:
            group: the consumer group.
            allocation: how the members of the group share the queues of a topic; all members
                must use the same.
            on_assigned: called with a topic and the queues of it that this consumer now has,
                each time these change; a plain function runs in a thread.
            rpc_hooks: called before and after each request to a server.
            clock: the source of time.
            options: see `LitePullOptions`.
        """
        self._callbacks = Callbacks("orbitmq-queues", threads=1)
        client = AioLitePullConsumer(
            group,
            allocation=allocation,
            on_assigned=self._in_thread(on_assigned) if on_assigned else None,
            rpc_hooks=rpc_hooks,
            clock=clock,
            **options,
        )
        super().__init__(
            client, what=f"lite pull consumer of group {group!r}", callbacks=self._callbacks
        )

    # --- what to read ---------------------------------------------------------------------------

    subscribe = on_loop(AioLitePullConsumer.subscribe)
    unsubscribe = on_loop(AioLitePullConsumer.unsubscribe)
    assignment = on_loop(AioLitePullConsumer.assignment)

    def assign(self, queues: Iterable[MessageQueue], expression: Expression = EVERYTHING) -> None:
        """Read exactly these queues, without sharing them with the group."""
        # Here, as in pause and resume: a generator of the caller must not run on the loop.
        chosen = list(queues)
        self._do(lambda: self._client.assign(chosen, expression))

    def on_queues_changed(self, topic: str, listener: QueuesListener) -> None:
        """Call `listener` with a topic and its queues whenever these change."""
        self._call(self._client.on_queues_changed(topic, self._in_thread(listener)))

    # --- messages -------------------------------------------------------------------------------

    poll = waiting(AioLitePullConsumer.poll)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Yield messages one by one, however long each takes, until the consumer is stopped."""
        self._running()
        while True:
            try:
                messages = self.poll(max_messages=1)
            except StateError:
                if self._stopped:
                    return
                raise
            yield from messages

    # --- offsets --------------------------------------------------------------------------------

    seek = waiting(AioLitePullConsumer.seek)
    seek_to_begin = waiting(AioLitePullConsumer.seek_to_begin)
    seek_to_end = waiting(AioLitePullConsumer.seek_to_end)
    position = on_loop(AioLitePullConsumer.position)
    commit = waiting(AioLitePullConsumer.commit)
    committed = waiting(AioLitePullConsumer.committed)

    # --- control --------------------------------------------------------------------------------

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop returning and pulling messages of these queues until `resume`."""
        chosen = list(queues)
        self._do(lambda: self._client.pause(chosen))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Resume queues that were paused."""
        chosen = list(queues)
        self._do(lambda: self._client.resume(chosen))

    def _in_thread(self, listener: QueuesListener) -> QueuesListener:
        """Wrap a listener: a plain function runs in a thread, and the loop awaits it."""
        if inspect.iscoroutinefunction(listener):
            return listener

        async def call(topic: str, queues: list[MessageQueue]) -> None:
            await asyncio.wrap_future(self._callbacks.run(lambda: listener(topic, queues)))

        return call

    @property
    def trace_counts(self) -> TraceCounts | None:
        """What became of its trace records; None without `trace`."""
        return self._client.trace_counts
