"""A running push consumer: wires up its parts, and answers its client instance.

    rebalancing  chooses the queues of this member  ->  add_queue, drop_queue
    pulling      pulls messages of each queue       ->  its window
    consumption  passes them to the listener        ->  offsets that may be committed

Threads: one event loop; a plain listener runs in threads, an async one on the loop.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING, Final

from orbitmq.client.aio.group.offset_stores import offset_store_of
from orbitmq.client.aio.group.queue_lives import QueueLives
from orbitmq.client.aio.group.rebalancing import Rebalancing
from orbitmq.client.aio.group.start_offsets import start_offsets_of
from orbitmq.client.aio.push.concurrent_consumption import ConcurrentConsumption
from orbitmq.client.aio.push.consumption import Consumption
from orbitmq.client.aio.push.listener_failures import ListenerFailures
from orbitmq.client.aio.push.listener_replies import ListenerReplies
from orbitmq.client.aio.push.listener_tasks import ListenerTasks
from orbitmq.client.aio.push.listener_threads import ListenerThreads
from orbitmq.client.aio.push.listeners import Listener, ListenerCall, ListenerPool, OnFinished
from orbitmq.client.aio.push.operator_requests import consume_directly, running_consumer
from orbitmq.client.aio.push.ordered_consumption import OrderedConsumption
from orbitmq.client.aio.push.pulling import QueuePuller
from orbitmq.client.aio.push.send_backs import SendBacks
from orbitmq.client.aio.push.stall_watch import StallWatch
from orbitmq.client.aio.sending.producer import inner_producer
from orbitmq.client.core.consuming.assignment import Membership
from orbitmq.client.core.consuming.consume_speeds import ConsumeSpeeds
from orbitmq.client.core.consuming.flow_control import MIB, FlowControl, FlowLimits
from orbitmq.client.core.consuming.inflight_window import InflightWindow
from orbitmq.client.core.consuming.received_message import ReceivedMessage, received_messages
from orbitmq.client.core.consuming.start_offsets import CONSUME_FROM
from orbitmq.lifecycle import Periodic
from orbitmq.model.messages import Message
from orbitmq.model.queues import MessageQueue
from orbitmq.model.subscriptions import BROADCASTING, PUSH, MessageModel
from orbitmq.protocol.requests.clients import ConsumerGroup

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from orbitmq.client.aio.instance.client_instance import ClientInstance
    from orbitmq.client.aio.push.consume_hooks import ConsumeHook
    from orbitmq.client.core.consuming.allocation import Allocation
    from orbitmq.client.core.subscriptions import Subscriptions
    from orbitmq.client.options import PushOptions
    from orbitmq.protocol.requests.relays import DirectResult, RunningConsumer

log = logging.getLogger(__name__)

Window = InflightWindow[ReceivedMessage]
OnQueuesChanged = Callable[[str, Sequence[MessageQueue], AbstractSet[MessageQueue]], object]

_RETRIES_MAX: Final = 16
_UNLIMITED: Final = 2**31 - 1
_MINUTE_MS: Final = 60_000
# Interval of the check for queues whose pull task has died.
_EXPIRY_MS: Final = 20_000


class PushMember:
    """A push consumer from its start to its stop."""

    def __init__(  # noqa: PLR0913 - by name
        self,
        instance: ClientInstance,
        group: str,
        options: PushOptions,
        *,
        listener: Listener,
        ordered: bool,
        concurrency: int,
        subscriptions: Subscriptions,
        allocation: Allocation,
        hooks: Sequence[ConsumeHook],
        executor: Executor | None,
        on_queues_changed: OnQueuesChanged | None,
    ) -> None:
        clock = instance.clock
        self._instance = instance
        self._group = group
        self._options = options
        self._listener = listener
        self._ordered = ordered
        self._subscriptions = subscriptions
        self._on_queues_changed = on_queues_changed
        self._clock = clock
        self._started_ms = clock.now_ms()
        self._model = MessageModel(options.message_model)
        self._stopping = False
        self._windows: dict[MessageQueue, Window] = {}
        self._speeds = ConsumeSpeeds(clock)
        self._replies = ListenerReplies(instance)
        self._offsets = offset_store_of(instance, group, options)
        self._lives = QueueLives(group, instance.brokers)
        membership = Membership(
            group=group,
            client_id=instance.client_id,
            allocation=allocation,
            model=self._model,
            ordered=ordered,
            lock_trust_ms=options.lock_trust_ms,
        )
        self._needs_locks = membership.needs_locks
        self._rebalancing = Rebalancing(
            membership,
            self,
            instance,
            topics=subscriptions.topics,
            offsets=self._offsets,
            starts=start_offsets_of(instance, self._offsets, options),
            interval_ms=options.rebalance_interval_ms,
            on_lock=self._lock_renewed,
        )
        self._puller = QueuePuller(
            instance,
            group,
            options,
            subscriptions=subscriptions,
            offsets=self._offsets,
            lives=self._lives,
            flow=FlowControl(_flow_limits(options, ordered=ordered)),
            speeds=self._speeds,
            needs_locks=self._needs_locks,
            # Compat: official brokers process pulls and commits in different threads. The offset of
            # a pull can overwrite the last commit of a queue that another member takes now.
            commits=self._model != BROADCASTING and not self._needs_locks,
            on_messages=self._consume,
            on_moved=self._restart_at,
        )
        self._consumption = self._make_consumption(concurrency, hooks, executor)
        self._stall_watch = StallWatch(
            group,
            lambda: self._consumption.pool.workers,
            limit_ms=options.stall_warning_ms,
            clock=clock,
        )
        self._expiry = Periodic("expired pulls", _EXPIRY_MS, self.retake_expired, clock)

    def _make_consumption(
        self, concurrency: int, hooks: Sequence[ConsumeHook], executor: Executor | None
    ) -> Consumption:
        options = self._options
        timeout_ms = options.consume_timeout_minutes * _MINUTE_MS
        make_pool = partial(
            listener_pool,
            ListenerCall(
                self._listener,
                group=self._group,
                ordered=self._ordered,
                slow_ms=timeout_ms,
                failures=ListenerFailures(self._group, self._clock),
                hooks=hooks,
                replies=self._replies,
                clock=self._clock,
            ),
            concurrency=concurrency,
            name=self._group,
            executor=executor,
        )
        retries_max = options.max_reconsume_times
        if self._ordered:
            return OrderedConsumption(
                make_pool,
                batch_size=options.consume_batch_size,
                suspend_ms=options.suspend_current_queue_ms,
                retries_max=None if retries_max == -1 else retries_max,
                offsets=self._offsets,
                speeds=self._speeds,
                send_backs=self._send_backs(_UNLIMITED if retries_max == -1 else retries_max),
                lock=self._lock if self._needs_locks else None,
                on_room=self._puller.recheck,
                on_idle=self._queue_idle,
                clock=self._clock,
            )
        broadcasts = self._model == BROADCASTING
        return ConcurrentConsumption(
            make_pool,
            batch_size=options.consume_batch_size,
            timeout_ms=timeout_ms,
            offsets=self._offsets,
            speeds=self._speeds,
            send_backs=None
            if broadcasts
            else self._send_backs(_RETRIES_MAX if retries_max == -1 else retries_max),
            on_room=self._puller.recheck,
            clock=self._clock,
        )

    def _send_backs(self, retries_max: int) -> SendBacks:
        return SendBacks(
            self._instance.brokers, self._group, retries_max=retries_max, send=self._send
        )

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the group, and start to take queues."""
        await self._offsets.load()
        await self._instance.add_consumer(self)
        for subscription in self._subscriptions.all():
            if not subscription.is_by_tag:
                await self._instance.brokers.check_subscription(self._group, subscription)
        self._consumption.start()
        self._stall_watch.start()
        self._expiry.start()
        self._rebalancing.start()

    async def stop(self) -> None:
        """Wait for listeners, commit, give up the queues and leave the group."""
        self._stopping = True
        await self._expiry.stop()
        await self._puller.stop_all()
        await self._consumption.stop(self._options.await_termination_ms)
        await self._stall_watch.stop()
        # Queues whose listeners still run keep their locks until these expire.
        await self._rebalancing.stop(timeout_ms=0)
        await self._offsets.persist(set(self._windows))
        await self._instance.remove_consumer(self, keeps_locks=self._rebalancing.has_locks)

    def is_in_listener(self) -> bool:
        """Whether the caller is an async listener of this consumer."""
        task = asyncio.current_task()
        return any(worker.task is task for worker in self._consumption.pool.workers)

    @property
    def paused(self) -> bool:
        """Whether pulling is paused."""
        return self._puller.paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self._puller.paused = paused
        if not paused:
            self._puller.recheck_all()

    @property
    def concurrency(self) -> int:
        """How many calls of the listener may run concurrently."""
        return self._consumption.pool.concurrency

    @concurrency.setter
    def concurrency(self, concurrency: int) -> None:
        self._consumption.pool.concurrency = concurrency

    @property
    def queues(self) -> Collection[MessageQueue]:
        """The queues that this member has at present."""
        return self._rebalancing.queues

    async def subscriptions_changed(self, topic: str) -> None:
        """Announce a changed subscription to the brokers, and rebalance."""
        if topic in self._subscriptions:
            await self._instance.routes.refresh(topic)
            subscription = self._subscriptions.of(topic)
            if not subscription.is_by_tag:
                await self._instance.brokers.check_subscription(self._group, subscription)
        else:
            self._speeds.forget(topic)
        await self._instance.heartbeat_now()
        self._puller.restart_topic(topic)
        self._rebalancing.run_soon()

    # --- calls of the instance (ConsumerMember) -------------------------------------------------

    @property
    def group(self) -> str:
        """Its group, as brokers know it."""
        return self._group

    def heartbeat(self) -> ConsumerGroup:
        """Describe what it consumes, and how."""
        return ConsumerGroup(
            group=self._group,
            consume_from=CONSUME_FROM[self._options.consume_from],
            consume_type=PUSH,
            message_model=self._model,
            subscriptions=self._subscriptions.all(),
        )

    def topics(self) -> Iterable[str]:
        """Return the topics it reads, whose routes are kept fresh."""
        return self._subscriptions.topics()

    def rebalance_soon(self) -> None:
        """Rebalance now: members joined or left."""
        self._rebalancing.run_soon()

    def route_changed(self, topic: str) -> None:
        """Rebalance, since the queues or brokers of a topic changed."""
        if topic in self._subscriptions:
            self._rebalancing.run_soon()

    async def persist_offsets(self) -> None:
        """Commit its offsets."""
        await self._offsets.persist_all()

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Resume at offsets that an operator has set."""
        for queue, offset in offsets.items():
            window = self._windows.get(queue)
            if queue.topic == topic and window is not None:
                self._lives.choose(queue, offset)
                await self._restart_at(queue, window, offset)

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Return the recorded offsets of the queues of a topic."""
        return self._offsets.offsets(topic)

    def running(self, *, with_stacks: bool) -> RunningConsumer:
        """Describe its state, for tools."""
        return running_consumer(
            self._options,
            ordered=self._ordered,
            concurrency=self.concurrency,
            started_ms=self._started_ms,
            subscriptions=self._subscriptions,
            windows=self._windows,
            offsets=self._offsets,
            speeds=self._speeds,
            with_stacks=with_stacks,
        )

    async def consume_directly(self, record: bytes, broker_name: str) -> DirectResult:
        """Pass a message to the listener at once, as an operator requested."""
        namespace = self._options.namespace
        message = received_messages(record, broker_name, namespace=namespace)[0]
        return await consume_directly(
            self._listener,
            message,
            ordered=self._ordered,
            replies=self._replies,
            clock=self._clock,
        )

    # --- calls of rebalancing (QueueOwner) ------------------------------------------------------

    async def add_queue(self, queue: MessageQueue, start_offset: int) -> None:
        """Start to consume a queue."""
        window: Window = InflightWindow(
            start_offset, self._clock, lock_trust_ms=self._options.lock_trust_ms
        )
        if self._needs_locks:
            window.note_lock()
        self._windows[queue] = window
        self._lives.note_start(queue, start_offset)
        if not self._stopping:
            self._puller.start(queue, window)

    async def drop_queue(self, queue: MessageQueue) -> bool:
        """Stop consuming a queue; False while an ordered listener is working on it."""
        self._puller.stop(queue)
        window = self._windows.get(queue)
        if window is None:
            return True
        if not self._consumption.release(queue, window):
            return False
        del self._windows[queue]
        self._lives.forget(queue)
        return True

    async def queues_changed(
        self, topic: str, queues: Sequence[MessageQueue], own: AbstractSet[MessageQueue]
    ) -> None:
        """Tell the user that this consumer now has `own` of all `queues` of a topic."""
        if self._on_queues_changed is None:
            return
        try:
            outcome = self._on_queues_changed(topic, queues, own)
            if inspect.isawaitable(outcome):
                await outcome
        except Exception:
            log.exception("on_queues_changed failed group=%s topic=%s", self._group, topic)

    # --- between the parts ----------------------------------------------------------------------

    def _consume(
        self, queue: MessageQueue, window: Window, messages: list[ReceivedMessage]
    ) -> None:
        self._consumption.take(queue, window, messages)

    async def _restart_at(self, queue: MessageQueue, window: Window, offset: int) -> None:
        """Give a queue up and take it again, at another offset."""
        window.drop()
        self._offsets.reset(queue, offset)
        try:
            await self._offsets.persist({queue})
        finally:
            # Even if a changed subscription cancels this pull: nothing else would retake it.
            self._rebalancing.retake(queue)

    def retake_expired(self) -> None:
        """Retake queues whose pull task has died."""
        for queue, window in self._windows.items():
            if window.pull_expired and not window.dropped:
                log.error(
                    "pulls had stopped, restarting them group=%s queue=%s", self._group, queue
                )
                self._rebalancing.retake(queue)

    def _lock_renewed(self, queue: MessageQueue) -> None:
        window = self._windows.get(queue)
        if window is not None:
            window.note_lock()
            self._puller.recheck(queue)

    async def _lock(self, queue: MessageQueue) -> bool:
        await self._rebalancing.renew_locks()
        window = self._windows.get(queue)
        return window is not None and window.locked

    def _queue_idle(self, _queue: MessageQueue) -> None:
        self._rebalancing.run_soon()

    async def _send(self, message: Message) -> None:
        producer = await self._instance.inner_producer(inner_producer)
        await producer.send(message)


def listener_pool(
    call: ListenerCall,
    on_finished: OnFinished,
    *,
    concurrency: int,
    name: str,
    executor: Executor | None = None,
) -> ListenerPool:
    """Make the pool that calls the listener: plain ones in threads, async ones on the loop."""
    if call.is_async:
        return ListenerTasks(call, concurrency=concurrency, on_finished=on_finished, name=name)
    return ListenerThreads(
        call, concurrency=concurrency, on_finished=on_finished, name=name, executor=executor
    )


def _flow_limits(options: PushOptions, *, ordered: bool) -> FlowLimits:
    total, total_mib = options.pull_threshold_for_topic, options.pull_threshold_size_for_topic
    return FlowLimits(
        count=options.pull_threshold_for_queue,
        bytes=options.pull_threshold_size_for_queue * MIB,
        span=None if ordered else options.consume_concurrently_max_span,
        total_count=None if total == -1 else total,
        total_bytes=None if total_mib == -1 else total_mib * MIB,
    )
