"""The push consumer on asyncio: calls a listener with each message.

    async def show(message: ReceivedMessage) -> None:
        print(message.body)

    consumer = PushConsumer("billing", on_message=show, namesrv="127.0.0.1:9876")
    consumer.subscribe("orders", "paid || shipped")
    async with consumer:
        ...

Threads: the event loop it was started on; a plain listener runs in threads.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Unpack

from orbitmq.client.aio.instance import instances
from orbitmq.client.aio.push.consume_tracing import ConsumeTracing
from orbitmq.client.aio.push.listeners import OnMessage, OnMessages, listener_of
from orbitmq.client.aio.push.push_member import OnQueuesChanged, PushMember
from orbitmq.client.aio.sending.traced_client import TracedClient
from orbitmq.client.core import namespaces
from orbitmq.client.core.argument_checks import check_flag, check_function
from orbitmq.client.core.consuming.allocation import averagely
from orbitmq.client.core.subscriptions import Expression, Subscriptions
from orbitmq.client.core.tracing.deliveries import DeliveryRecords
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


class PushConsumer(TracedClient):
    """A member of a consumer group; starts and stops once, best in an `async with` block."""

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
            on_queues_changed: called on the loop with a topic, all its queues, and the queues
                that this member now has.
            executor: runs a plain listener instead of the consumer's own threads.
            clock: the source of time.
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
                hint="pass the listener as on_messages=",
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

    async def start(self) -> None:
        """Join the group and start to consume; needs a subscription, and takes more at any time."""
        if not self._subscriptions.topics():
            raise StateError(
                f"{self._what} subscribes to no topic",
                hint='call subscribe("orders") before the start; more topics can be added later',
            )
        await super().start()

    async def stop(self) -> None:
        """Wait for running listeners, up to `await_termination_ms`; commit and leave the group.

        Awaited inside a listener, it returns at once, and the consumer stops after the listener
        has returned.
        """
        if self._member is not None and self._member.is_in_listener():
            start_detached(self._stop(), name=f"stop of {self._what}")
        else:
            await super().stop()

    async def _open(self) -> None:
        """Join the group and start to consume."""
        options = self._options
        broadcasts = options.message_model == "BROADCASTING"
        if not broadcasts:
            self._subscriptions.add(retry_topic(self._group))
            # Compat: a broadcasting consumer keeps its instance name: it names its offset file.
            options = instances.with_own_instance(options, self._clock)
        self._instance = await instances.acquire(
            options, rpc_hooks=self._rpc_hooks, clock=self._clock
        )
        hooks = [*self._hooks]
        group = namespaces.unwrap(options.namespace, self._group)
        writer = await self._start_tracing(
            self._group, options, rpc_hooks=self._rpc_hooks, clock=self._clock
        )
        if writer is not None:
            hooks.append(ConsumeTracing(writer, DeliveryRecords(group), self._clock))
        if options.opentelemetry:
            # Imported here, as the package is optional.
            from orbitmq.client.aio.push.consume_spans import ConsumeSpans

            client_id, namespace = self._instance.client_id, options.namespace
            hooks.append(ConsumeSpans(client_id, namespace, group=group, is_broadcast=broadcasts))
        member = PushMember(
            self._instance,
            self._group,
            options,
            listener=self._listener,
            ordered=self._ordered,
            concurrency=self._concurrency,
            subscriptions=self._subscriptions,
            allocation=self._allocation,
            hooks=hooks,
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
            await self._stop_tracing()
            log.info("push consumer stopped group=%s", self._group)

    # --- topics ---------------------------------------------------------------------------------

    def subscribe(
        self, topic: str, expression: Expression = EVERYTHING, *, filter_class: str | None = None
    ) -> None:
        """Subscribe to a topic: all its messages, those with some tags, or those `by_sql(...)`.

        With `filter_class`, the filter servers of its brokers choose the messages, by a function
        that is installed there under this name.

        On a running consumer it takes a moment until the brokers know. If they refuse, it is
        logged.
        """
        self._state.check_not_stopped()
        wrapped = namespaces.wrap(self._options.namespace, topic)
        self._subscriptions.add(wrapped, expression, filter_class=filter_class)
        self._tell(wrapped)

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic."""
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
        """Stop pulling for now; the listener still gets messages that were already pulled."""
        self._paused = True
        if self._member is not None:
            self._member.paused = True

    def resume(self) -> None:
        """Resume pulling."""
        self._paused = False
        if self._member is not None:
            self._member.paused = False

    @property
    def concurrency(self) -> int:
        """How many calls of the listener may run concurrently; can be set at any time."""
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
        """The queues that this member of the group has at present."""
        if self._member is None:
            raise StateError("the consumer is not started", hint="await consumer.start() first")
        return self._member.queues
