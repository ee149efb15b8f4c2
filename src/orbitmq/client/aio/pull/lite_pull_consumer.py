"""The lite pull consumer: reads ahead, and returns messages when polled.

    async with LitePullConsumer("billing", namesrv="127.0.0.1:9876") as consumer:
        consumer.subscribe("orders", "paid || shipped")
        async for message in consumer:
            print(message.body)

It either subscribes to topics, whose queues the members of the group share, or is assigned queues,
which it does not share.

A poll marks the messages of earlier polls as done. With `auto_commit` the consumer commits what is
done every few seconds and when it stops. Messages of the last `poll` are not done before the next
one, so a program that fails on a message gets it again. `commit` commits everything that was
returned.

Threads: the event loop it was started on; one task polls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from orbitmq.client.aio.instance.instances import acquire, with_own_instance
from orbitmq.client.aio.pull.lite_pull_member import LitePullMember, QueuesListener
from orbitmq.client.aio.pull.poll_tracing import PollTracing, poll_tracing_of
from orbitmq.client.aio.pull.queue_lookups import QueueLookups
from orbitmq.client.aio.sending.traced_client import TracedClient
from orbitmq.client.core.argument_checks import check_function
from orbitmq.client.core.consuming.allocation import Allocation, averagely
from orbitmq.client.core.namespaces import unwrap, wrap
from orbitmq.client.core.subscriptions import Expression, Subscriptions
from orbitmq.client.keywords import LitePullKeywords, options_of
from orbitmq.client.options import LitePullOptions
from orbitmq.clock import SystemClock, time_limit
from orbitmq.errors import OffsetRefusedError, SettingsError, StateError
from orbitmq.model.names import check_group
from orbitmq.model.subscriptions import BROADCASTING, EVERYTHING

if TYPE_CHECKING:
    from typing import Self, Unpack

    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.clock import Clock
    from orbitmq.model.queues import MessageQueue
    from orbitmq.transport.hooks import RpcHook


class LitePullConsumer(QueueLookups, TracedClient):
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
                each time these change; a function or a coroutine function.
            rpc_hooks: called before and after each request to a server.
            clock: the source of time.
            options: see `LitePullOptions`.
        """
        check_group(group)
        super().__init__(f"the lite pull consumer of the group {group!r}")
        check_function("allocation", allocation)
        if on_assigned is not None:
            check_function("on_assigned", on_assigned)
        self._clock = clock or SystemClock()
        self._options = options_of(LitePullOptions, options)
        if self._options.message_model != BROADCASTING:
            self._options = with_own_instance(self._options, self._clock)
        self._namespace = self._options.namespace
        self._group = wrap(self._namespace, group)
        self._allocation = allocation
        self._on_assigned = on_assigned
        self._rpc_hooks = tuple(rpc_hooks)
        self._subscriptions = Subscriptions(self._clock)
        self._filters = Subscriptions(self._clock)
        # None until the first call of subscribe() or assign().
        self._is_assigned: bool | None = None
        self._assigned: list[MessageQueue] = []
        self._listeners: dict[str, QueuesListener] = {}
        self._member: LitePullMember | None = None
        self._poll_tracing: PollTracing | None = None

    # --- life ---------------------------------------------------------------------------------

    async def _open(self) -> None:
        """Join the group and start to read ahead."""
        self._instance = await acquire(self._options, rpc_hooks=self._rpc_hooks, clock=self._clock)
        member = LitePullMember(
            self._instance,
            self._group,
            self._options,
            subscriptions=self._subscriptions,
            filters=self._filters,
            allocation=self._allocation,
            on_assigned=self._without_namespaces(self._on_assigned) if self._on_assigned else None,
            listeners=self._listeners,
        )
        self._poll_tracing = poll_tracing_of(
            await self._start_tracing(
                self._group, self._options, rpc_hooks=self._rpc_hooks, clock=self._clock
            ),
            self._options,
            client_id=self._instance.client_id,
            group=self._group,
            clock=self._clock,
        )
        await member.start()
        self._member = member
        if self._is_assigned:
            member.read(self._assigned)
        elif self._is_assigned is False:
            member.share()

    async def _close(self) -> None:
        """Commit what is done, with `auto_commit`, and leave the group."""
        member, self._member = self._member, None
        try:
            if member is not None:
                # End a poll that waits for messages.
                member.prefetching.wake()
                await member.stop()
        finally:
            await self._stop_tracing()

    def _running_member(self) -> LitePullMember:
        self._running()
        assert self._member is not None
        return self._member

    # --- what to read -------------------------------------------------------------------------

    def subscribe(self, topic: str, expression: Expression = EVERYTHING) -> None:
        """Subscribe to a topic, whose queues the members of the group share."""
        self._state.check_not_stopped()
        self._set_mode(is_assigned=False)
        self._subscriptions.add(wrap(self._namespace, topic), expression)
        if self._member is not None:
            self._member.subscriptions_changed()

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic."""
        self._state.check_not_stopped()
        self._set_mode(is_assigned=False)
        self._subscriptions.remove(wrap(self._namespace, topic))
        if self._member is not None:
            self._member.subscriptions_changed()

    def assign(self, queues: Iterable[MessageQueue], expression: Expression = EVERYTHING) -> None:
        """Read exactly these queues, without sharing them with the group."""
        self._state.check_not_stopped()
        chosen = [self._with_namespace(queue) for queue in queues]
        if not chosen:
            raise SettingsError("no queue is assigned", hint="queues(topic) lists the queues")
        self._set_mode(is_assigned=True)
        topics = {queue.topic for queue in chosen}
        for topic in topics:
            self._filters.add(topic, expression)
        for topic in set(self._filters.topics()) - topics:
            self._filters.remove(topic)
        self._assigned = chosen
        if self._member is not None:
            self._member.read(chosen)

    def assignment(self) -> list[MessageQueue]:
        """List the queues that this consumer reads at present."""
        return [self._without_namespace(queue) for queue in self._running_member().buffer.queues]

    async def on_queues_changed(self, topic: str, listener: QueuesListener) -> None:
        """Call `listener` with a topic and its queues whenever these change."""
        wrapped = wrap(self._namespace, topic)
        self._state.check_not_stopped()
        self._listeners[wrapped] = self._without_namespaces(listener)
        if self._member is not None:
            await self._member.watch(wrapped)

    def _set_mode(self, *, is_assigned: bool) -> None:
        if self._is_assigned is not None and self._is_assigned != is_assigned:
            raise StateError(
                f"the lite pull consumer of the group {self._group!r} "
                f"{'has queues assigned' if self._is_assigned else 'subscribes to topics'}",
                hint="a consumer can do only one of these; make a second consumer",
            )
        self._is_assigned = is_assigned

    def _without_namespaces(self, listener: QueuesListener) -> QueuesListener:
        """Wrap a listener so that it gets names without the namespace."""
        if not self._namespace:
            return listener

        def call(topic: str, queues: list[MessageQueue]) -> object:
            return listener(
                unwrap(self._namespace, topic), [self._without_namespace(q) for q in queues]
            )

        return call  # type: ignore[return-value]  # whatever the listener returns

    # --- messages -----------------------------------------------------------------------------

    async def poll(
        self, timeout_ms: int | None = None, *, max_messages: int | None = None
    ) -> list[ReceivedMessage]:
        """Return the next messages, waiting for the first; an empty list on timeout.

        Marks the messages of earlier polls as done. Messages of a queue come in order; queues take
        turns. By default it returns up to `pull_batch_size` messages, and waits for
        `poll_timeout_ms`.
        """
        member = self._running_member()
        if self._is_assigned is None:
            raise StateError("there is nothing to poll", hint="call subscribe() or assign() first")
        buffer = member.buffer
        buffer.finish()
        if not buffer.is_ready:
            left_ms = self._options.poll_timeout_ms if timeout_ms is None else timeout_ms
            await self._wait(member, left_ms)
            if self._state.stopping:
                return []
        messages = buffer.take(
            self._options.pull_batch_size if max_messages is None else max_messages
        )
        if messages:
            member.prefetching.notify_room()
            if self._poll_tracing is not None:
                self._poll_tracing.note(messages)
        return messages

    async def _wait(self, member: LitePullMember, timeout_ms: float) -> None:
        """Wait for a message, the timeout, or the stop of the consumer."""
        try:
            async with time_limit(self._clock, timeout_ms):
                while not member.buffer.is_ready and not self._state.stopping:
                    await member.prefetching.wait_for_arrival()
        except TimeoutError:
            pass

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Return the next message, without a timeout; ends when the consumer stops."""
        while not self._state.stopping:
            for message in await self.poll(max_messages=1):
                return message
        raise StopAsyncIteration

    # --- offsets ------------------------------------------------------------------------------

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Resume reading a queue at an offset; drops the messages read ahead."""
        member = self._running_member()
        inner = self._with_namespace(queue)
        # Refuse queues that this consumer does not read before asking a broker.
        member.buffer.position(inner)
        first, end = await self.min_offset(queue), await self.max_offset(queue)
        if not first <= offset <= end:
            raise OffsetRefusedError(
                f"offset {offset} is not in queue {queue.queue_id} of topic {queue.topic!r} "
                f"at {queue.broker_name}, which has {first} to {end}",
                hint="seek_to_begin() and seek_to_end() go to its first and last offset",
            )
        await member.seek(inner, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Resume reading a queue at its oldest message."""
        await self._running_member().seek(self._with_namespace(queue), await self.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Resume reading a queue after its newest message."""
        await self._running_member().seek(self._with_namespace(queue), await self.max_offset(queue))

    def position(self, queue: MessageQueue) -> int | None:
        """Return the offset of the next message that a poll returns; None if not known yet."""
        return self._running_member().buffer.position(self._with_namespace(queue))

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit everything that polls have returned, or these offsets, and wait for it.

        The offset to commit is that of the first message that is not done.
        """
        member = self._running_member()
        if offsets is None:
            member.buffer.finish()
            chosen = member.buffer.committable()
        else:
            chosen = {self._with_namespace(queue): offset for queue, offset in offsets.items()}
            for queue, offset in chosen.items():
                member.buffer.position(queue)
                if offset < 0:
                    raise OffsetRefusedError(
                        f"offset {offset} cannot be committed", hint="offsets start at 0"
                    )
        await member.offset_store.commit(chosen)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the offset that the group has committed in a queue; None if there is none."""
        return await self._running_member().offset_store.read(self._with_namespace(queue))

    # --- control ------------------------------------------------------------------------------

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop returning and pulling messages of these queues until `resume`."""
        self._running_member().buffer.pause([self._with_namespace(queue) for queue in queues])

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Resume queues that were paused."""
        member = self._running_member()
        member.buffer.resume([self._with_namespace(queue) for queue in queues])
        member.prefetching.wake()
