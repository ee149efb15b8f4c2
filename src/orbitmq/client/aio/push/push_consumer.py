"""The push consumer on asyncio: messages come to a listener.

    async def show(message: ReceivedMessage) -> None:
        print(message.body)

    consumer = PushConsumer("billing", on_message=show, namesrv="127.0.0.1:9876")
    consumer.subscribe("orders", "paid || shipped")
    async with consumer:
        ...

Threads: one event loop, the one it was started on; a plain listener runs in threads.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Unpack

from orbitmq.client.aio.instance import instances
from orbitmq.client.aio.instance.client_lifecycle import ClientLifecycle
from orbitmq.client.aio.push.listeners import OnMessage, OnMessages, listener_of
from orbitmq.client.aio.push.push_member import OnQueuesChanged, PushMember
from orbitmq.client.core import namespaces
from orbitmq.client.core.argument_checks import check_flag, check_function
from orbitmq.client.core.consuming.allocation import averagely
from orbitmq.client.core.subscriptions import Expression, Subscriptions
from orbitmq.client.keywords import PushKeywords, options_of
from orbitmq.client.options import PushOptions
from orbitmq.clock import SystemClock
from orbitmq.errors import SettingsError, StateError
from orbitmq.lifecycle import OwnedTasks, start_detached
from orbitmq.model.names import check_group, is_system_group, retry_topic
from orbitmq.model.subscriptions import EVERYTHING
from orbitmq.settings import describe

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from orbitmq.client.aio.push.consume_hooks import ConsumeHook
    from orbitmq.client.core.consuming.allocation import Allocation
    from orbitmq.clock import Clock
    from orbitmq.model.queues import MessageQueue
    from orbitmq.transport.hooks import RpcHook

log = logging.getLogger(__name__)


class PushConsumer(ClientLifecycle):
    """Consumes for a group; started once, stopped once, best in an `async with` block."""

    def __init__(  # noqa: PLR0913 - by name
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
        """Make a consumer.

        Args:
            group: the members of a group share the messages of its topics.
            on_message: called with each message. A plain function runs in a thread, an async one
                on the loop. Returning nothing means done, an exception: try again later.
            on_messages: the same with a list of up to `consume_batch_size` messages.
            ordered: whether the messages of a queue are consumed one after the other.
            allocation: how the members of the group share the queues; the same for all of them.
            hooks: hear of each call of the listener.
            rpc_hooks: see each request to a server, and its answer.
            on_queues_changed: called with a topic, all its queues, and those that are this
                member's from now on; on the loop.
            executor: threads for a plain listener, in the place of the consumer's own.
            clock: the time.
            options: see `PushOptions`.
        """
        check_group(group)
        super().__init__(f"the push consumer of group {group!r}")
        self._options = options_of(PushOptions, options)
        self._listener = listener_of(on_message, on_messages)
        if not self._listener.takes_lists and self._options.consume_batch_size != 1:
            raise SettingsError(
                f"consume_batch_size is {self._options.consume_batch_size}, but on_message takes "
                "one message",
                hint="give the listener as on_messages=",
            )
        if is_system_group(group):
            raise SettingsError(
                f"the group {group} belongs to RocketMQ itself", hint="choose another name"
            )
        check_flag("ordered", ordered)
        check_function("allocation", allocation)
        if on_queues_changed is not None:
            check_function("on_queues_changed", on_queues_changed)
        self._group = namespaces.wrap(self._options.namespace, group)
        self._ordered = ordered
        self._allocation = allocation
        self._hooks = tuple(hooks)
        self._rpc_hooks = tuple(rpc_hooks)
        self._on_queues_changed = on_queues_changed
        self._executor = executor
        self._clock = clock or SystemClock()
        self._concurrency = self._options.concurrency
        self._paused = False
        self._subscriptions = Subscriptions(self._clock)
        self._changes = OwnedTasks()
        self._member: PushMember | None = None

    # --- life -----------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Wait for listeners at work, up to a time; commit, and leave the group.

        A listener that awaits this is not waited for by its own call: the consumer stops once the
        listener has returned.
        """
        if self._member is not None and self._member.is_in_listener():
            start_detached(self._stop(), name=f"stop of {self._what}")
        else:
            await super().stop()

    async def _open(self) -> None:
        """Join the group and begin to consume."""
        options = self._options
        broadcasts = options.message_model == "BROADCASTING"
        if not broadcasts:
            self._subscriptions.add(retry_topic(self._group))
            # Compat: a broadcasting consumer keeps its name, which its offset file bears.
            options = instances.with_own_instance(options, self._clock)
        self._instance = await instances.acquire(
            options, rpc_hooks=self._rpc_hooks, clock=self._clock
        )
        member = PushMember(
            self._instance,
            self._group,
            options,
            listener=self._listener,
            ordered=self._ordered,
            concurrency=self._concurrency,
            subscriptions=self._subscriptions,
            allocation=self._allocation,
            hooks=self._hooks,
            executor=self._executor,
            on_queues_changed=self._on_queues_changed,
        )
        member.paused = self._paused
        self._member = member
        await member.start()
        log.info(
            "push consumer started group=%s client=%s topics=%s ordered=%s model=%s",
            self._group,
            self._instance.client_id,
            ",".join(self._subscriptions.topics()),
            self._ordered,
            options.message_model,
        )

    async def _close(self) -> None:
        try:
            await self._changes.cancel()
            if self._member is not None:
                await self._member.stop()
        finally:
            log.info("push consumer stopped group=%s", self._group)

    # --- topics ---------------------------------------------------------------------------------

    def subscribe(self, topic: str, expression: Expression = EVERYTHING) -> None:
        """Consume a topic: all of it, messages with some tags, or `by_sql(...)` of it.

        While the consumer runs, it takes a moment until the brokers know; what they refuse then
        is in the log.
        """
        self._state.check_not_stopped()
        wrapped = namespaces.wrap(self._options.namespace, topic)
        self._subscriptions.add(wrapped, expression)
        self._tell(wrapped)

    def unsubscribe(self, topic: str) -> None:
        """Consume a topic no more."""
        wrapped = namespaces.wrap(self._options.namespace, topic)
        self._subscriptions.remove(wrapped)
        self._tell(wrapped)

    def _tell(self, topic: str) -> None:
        if self._member is not None and not self._state.stopping:
            self._changes.start(
                self._member.subscriptions_changed(topic), name=f"subscription {topic}"
            )

    # --- while it runs --------------------------------------------------------------------------

    def pause(self) -> None:
        """Pull nothing for now; messages that are here already still come to the listener."""
        self._paused = True
        if self._member is not None:
            self._member.paused = True

    def resume(self) -> None:
        """Go on pulling."""
        self._paused = False
        if self._member is not None:
            self._member.paused = False

    @property
    def concurrency(self) -> int:
        """How many calls of the listener may be under way at a time; may be set at any time."""
        return self._concurrency

    @concurrency.setter
    def concurrency(self, concurrency: int) -> None:
        row = next(row for row in describe(PushOptions) if row.field == "concurrency")
        row.check(concurrency, where="PushConsumer")
        self._concurrency = concurrency
        if self._member is not None:
            self._member.concurrency = concurrency

    @property
    def queues(self) -> Collection[MessageQueue]:
        """The queues that this member of the group has now."""
        if self._member is None:
            raise StateError("the consumer is not started", hint="await consumer.start() first")
        return self._member.queues
