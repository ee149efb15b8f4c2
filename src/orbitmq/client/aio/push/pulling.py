"""Pulls the queues of a push consumer, with one held request per queue.

A task per queue pulls from the next offset of its window until the window is dropped. It waits
while the consumer is paused, while too many messages are unfinished, and, with ordered consumption,
while the queue is not locked.

Threads: one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from orbitmq.client.aio.instance.broker_calls import PullStatus
from orbitmq.client.aio.instance.read_targets import ReadTarget, ReadTargets
from orbitmq.client.aio.push.filter_server_choice import FilterServerChoice
from orbitmq.client.core.consuming.received_message import ReceivedMessage, received_messages
from orbitmq.errors import OrbitError, RemoteError
from orbitmq.lifecycle import cancel_and_wait
from orbitmq.model.names import is_retry_topic
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.pulling import PullFlag, PullMessages

if TYPE_CHECKING:
    from orbitmq.client.aio.group.offset_stores import OffsetStore
    from orbitmq.client.aio.group.queue_lives import QueueLives
    from orbitmq.client.aio.instance.broker_calls import Pulled
    from orbitmq.client.aio.instance.client_instance import ClientInstance
    from orbitmq.client.core.consuming.consume_speeds import ConsumeSpeeds
    from orbitmq.client.core.consuming.flow_control import FlowControl
    from orbitmq.client.core.consuming.inflight_window import InflightWindow
    from orbitmq.client.core.subscriptions import Subscriptions
    from orbitmq.client.options import PushOptions
    from orbitmq.model.queues import MessageQueue

    Window = InflightWindow[ReceivedMessage]

log = logging.getLogger(__name__)

HOLD_MS: Final = 15_000
PULL_TIMEOUT_MS: Final = 30_000
# Longest waits before a queue is checked again; `recheck` ends them earlier.
FULL_MS: Final = 50
PAUSED_MS: Final = 1_000
BROKER_BUSY_MS: Final = 20
# A queue whose pulls keep failing is logged at most this often.
_REPEAT_MS: Final = 60_000

_COMMIT: Final = int(PullFlag.COMMIT_OFFSET | PullFlag.SUSPEND)
_HOLD: Final = int(PullFlag.SUSPEND)
_CLASS_FILTER: Final = int(PullFlag.CLASS_FILTER)
# The broker does not know the subscription, or only an older one: a heartbeat is sent at once.
_SUBSCRIPTION_UNKNOWN: Final = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    }
)


class QueuePuller:
    """Pulls the queues of one consumer."""

    def __init__(  # noqa: PLR0913 - by name
        self,
        instance: ClientInstance,
        group: str,
        options: PushOptions,
        *,
        subscriptions: Subscriptions,
        offsets: OffsetStore,
        lives: QueueLives,
        flow: FlowControl,
        speeds: ConsumeSpeeds,
        needs_locks: bool,
        commits: bool,
        on_messages: Callable[[MessageQueue, Window, list[ReceivedMessage]], None],
        on_moved: Callable[[MessageQueue, Window, int], Awaitable[None]],
    ) -> None:
        """Make a puller; `start` adds queues.

        Args:
            instance: the client instance whose connections to use.
            group: the group, as brokers know it.
            options: batch sizes and intervals.
            subscriptions: the filter of each topic.
            offsets: the offsets that pulls commit, if `commits`.
            lives: notices queues that were replaced.
            flow: decides when to pause.
            speeds: counts pulls.
            needs_locks: whether a queue is pulled only while it is locked.
            commits: whether pulls carry offsets to commit.
            on_messages: called with the messages of each pull.
            on_moved: called with the offset to resume at if the broker does not have the
                requested one.
        """
        self._instance = instance
        self._group = group
        self._options = options
        self._subscriptions = subscriptions
        self._offsets = offsets
        self._lives = lives
        self._flow = flow
        self._speeds = speeds
        self._needs_locks = needs_locks
        self._commits = commits
        self._on_messages = on_messages
        self._on_moved = on_moved
        self._tasks: dict[MessageQueue, asyncio.Task[None]] = {}
        self._windows: dict[MessageQueue, Window] = {}
        self._waits: dict[MessageQueue, asyncio.Event] = {}
        self._filter_servers = FilterServerChoice(instance.routes)
        self._targets = ReadTargets(instance.routes)
        self._warned_ms: dict[MessageQueue, float] = {}
        self.paused = False

    # --- queues -------------------------------------------------------------------------------

    def start(self, queue: MessageQueue, window: Window) -> None:
        """Start to pull a queue."""
        self.stop(queue)
        self._windows[queue] = window
        self._waits[queue] = asyncio.Event()
        self._tasks[queue] = asyncio.get_running_loop().create_task(
            self._pull_loop(queue, window), name=f"pull {queue.topic} {queue.queue_id}"
        )
        self._flow.set_queue_count(len(self._tasks))

    def stop(self, queue: MessageQueue) -> None:
        """Stop pulling a queue."""
        task = self._tasks.pop(queue, None)
        if task is None:
            return
        # The caller may be this very task, which then ends by itself.
        if task is not asyncio.current_task():
            task.cancel()
        self._windows.pop(queue, None)
        self._waits.pop(queue, None)
        self._targets.forget(queue)
        self._filter_servers.forget(queue)
        self._warned_ms.pop(queue, None)
        self._flow.set_queue_count(len(self._tasks))

    def restart_topic(self, topic: str) -> None:
        """Restart the pulls of a topic, which brokers hold with the old subscription."""
        for queue, window in list(self._windows.items()):
            if queue.topic == topic:
                self.start(queue, window)

    async def stop_all(self) -> None:
        """Stop pulling, and wait until no pull is in flight."""
        tasks = list(self._tasks.values())
        for queue in list(self._tasks):
            self.stop(queue)
        for task in tasks:
            await cancel_and_wait(task)

    def recheck(self, queue: MessageQueue) -> None:
        """Check a waiting queue again: messages were finished, or the lock was granted."""
        wait = self._waits.get(queue)
        if wait is not None:
            wait.set()

    def recheck_all(self) -> None:
        """Check all waiting queues again."""
        for wait in self._waits.values():
            wait.set()

    # --- one queue ----------------------------------------------------------------------------

    async def _pull_loop(self, queue: MessageQueue, window: Window) -> None:
        while not window.dropped:
            try:
                await self._pull_once(queue, window)
            except OrbitError as error:
                await self._failed(queue, error)
            except Exception:
                log.exception(
                    "pull failed topic=%s broker=%s queue=%d",
                    queue.topic,
                    queue.broker_name,
                    queue.queue_id,
                )
                await self._instance.clock.sleep_ms(self._options.pull_retry_ms)

    async def _pull_once(self, queue: MessageQueue, window: Window) -> None:
        """Pull, or wait a while if something prevents it."""
        window.note_pull()
        if self.paused:
            await self._wait(queue, PAUSED_MS)
        elif (pause := self._flow.pause(queue, window)) is not None:
            if pause.warn:
                log.warning("pulling is paused: %s group=%s", pause.reason, self._group)
            await self._wait(queue, FULL_MS)
        elif queue.topic not in self._subscriptions or (self._needs_locks and not window.locked):
            # If unsubscribed, the queue is about to be given up.
            await self._wait(queue, self._options.pull_retry_ms)
        elif (start := await self._lives.replaced_at(queue, window.next_offset)) is not None:
            await self._restart(queue, window, start)
        else:
            await self._pull_next(queue, window)

    async def _pull_next(self, queue: MessageQueue, window: Window) -> None:
        offset = window.next_offset
        target = await self._targets.choose(queue)
        started_ms = self._instance.clock.monotonic_ms()
        try:
            pulled = await self._pull(queue, target, offset)
        except OrbitError as error:
            await self._failed(queue, error, target)
            return
        spent_ms = self._instance.clock.monotonic_ms() - started_ms
        start = await self._lives.differs_at(queue, offset, pulled, target.address)
        if start is not None:
            if not window.dropped:
                await self._restart(queue, window, start)
            return
        pause_ms = await self._targets.note_reply(queue, target, offset, pulled)
        await self._handle(queue, window, pulled, spent_ms, target.address)
        if pause_ms and not window.dropped:
            await self._instance.clock.sleep_ms(pause_ms)

    async def _handle(
        self, queue: MessageQueue, window: Window, pulled: Pulled, spent_ms: float, address: str
    ) -> None:
        if self._warned_ms.pop(queue, None) is not None:
            log.info("pulls succeed again group=%s queue=%s", self._group, queue)
        if window.dropped:
            return
        if pulled.status is PullStatus.OFFSET_ILLEGAL:
            await self._move_offset(queue, window, pulled)
            return
        has_messages = self._take(queue, window, pulled, spent_ms, address)
        if has_messages and self._options.pull_interval_ms:
            await self._instance.clock.sleep_ms(self._options.pull_interval_ms)

    async def _pull(self, queue: MessageQueue, target: ReadTarget, offset: int) -> Pulled:
        address, is_slave = target
        subscription = self._subscriptions.of(queue.topic)
        committed = (self._offsets.cached(queue) or 0) if self._commits and not is_slave else 0
        flag = _COMMIT if committed > 0 else _HOLD
        if subscription.class_filter:
            address = await self._filter_servers.choose(queue, address, subscription.expression)
            flag |= _CLASS_FILTER
        header = PullMessages(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=Long(offset),
            messages_max=self._options.pull_batch_size,
            system_flag=flag,
            commit_offset=Long(committed),
            suspend_timeout_ms=Long(HOLD_MS),
            expression=subscription.expression if subscription.class_filter else None,
            subscription_version=Long(subscription.version),
            expression_type=subscription.expression_type,
            bytes_max=self._options.pull_batch_bytes,
            broker_name=queue.broker_name,
        )
        return await self._instance.brokers.pull(address, header, timeout_ms=PULL_TIMEOUT_MS)

    def _take(
        self, queue: MessageQueue, window: Window, pulled: Pulled, spent_ms: float, address: str
    ) -> bool:
        """Process the result of a pull; returns whether there are messages for the listener."""
        messages: list[ReceivedMessage] = []
        last: ReceivedMessage | None = None
        if pulled.body:
            messages = received_messages(
                pulled.body, queue.broker_name, namespace=self._instance.options.namespace
            )
            last = messages[-1]
            self._speeds.pulled(queue.topic, len(messages), spent_ms)
            # The broker filters by the hash of a tag, which two tags may share.
            if self._subscriptions.of(queue.topic).tags:
                wants, topic = self._subscriptions.wants, queue.topic
                messages = [message for message in messages if wants(topic, message.tags)]
        added = window.add(messages, next_offset=pulled.next_offset)
        self._lives.note_pull(queue, window.next_offset, last, address)
        if added:
            self._on_messages(queue, window, added)
            return True
        # The filter may have left everything out, which is progress too.
        self._offsets.record(queue, window)
        return False

    async def _move_offset(self, queue: MessageQueue, window: Window, pulled: Pulled) -> None:
        first = window.first_offset
        if first is not None and window.next_offset < pulled.min_offset:
            # The broker has deleted the messages in the window: no other member could get them.
            await self._instance.clock.sleep_ms(self._options.pull_retry_ms)
            return
        next_offset = await self._lives.resume_at(queue, window.next_offset, pulled)
        if window.dropped:
            return
        if first is not None and window.next_offset > pulled.max_offset:
            # The broker has lost the end of the queue: unfinished messages before it come again.
            next_offset = min(next_offset, max(first, pulled.min_offset))
        log.warning(
            "offset is outside the queue, resuming at another group=%s topic=%s broker=%s queue=%d "
            "offset=%d from=%d to=%d next=%d",
            self._group,
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            window.next_offset,
            pulled.min_offset,
            pulled.max_offset,
            next_offset,
        )
        await self._restart(queue, window, next_offset)

    async def _restart(self, queue: MessageQueue, window: Window, offset: int) -> None:
        window.drop()
        await self._on_moved(queue, window, offset)

    async def _failed(
        self, queue: MessageQueue, error: OrbitError, target: ReadTarget | None = None
    ) -> None:
        if isinstance(error, RemoteError) and error.code == ResponseCode.FLOW_CONTROL:
            await self._instance.clock.sleep_ms(BROKER_BUSY_MS)
            return
        self._warn(queue, error)
        self._filter_servers.failed(queue)
        if isinstance(error, RemoteError):
            # A slave learns of topics later than its master.
            is_slave = target is not None and target.is_slave
            if error.code == ResponseCode.TOPIC_NOT_EXIST and not is_slave:
                self._lives.note_missing(queue)
            if error.code in _SUBSCRIPTION_UNKNOWN:
                await self._announce_subscription()
        if (
            target is not None
            and not self._is_filtered_elsewhere(queue)
            and await self._targets.note_failure(queue, target, error)
        ):
            return
        await self._instance.clock.sleep_ms(self._options.pull_retry_ms)

    def _is_filtered_elsewhere(self, queue: MessageQueue) -> bool:
        """Whether filter servers are asked for the messages of a queue, instead of brokers."""
        return queue.topic in self._subscriptions and bool(
            self._subscriptions.of(queue.topic).class_filter
        )

    async def _announce_subscription(self) -> None:
        try:
            await self._instance.heartbeat_now()
        except OrbitError as error:
            log.debug("cannot announce subscription group=%s reason=%s", self._group, error)

    def _warn(self, queue: MessageQueue, error: OrbitError) -> None:
        now_ms = self._instance.clock.monotonic_ms()
        if is_retry_topic(queue.topic):
            # Compat: brokers create it after the first heartbeat of the group, which takes a while.
            log.debug("pull failed queue=%s reason=%s", queue, error)
            return
        warned_ms = self._warned_ms.get(queue)
        if warned_ms is None or now_ms - warned_ms >= _REPEAT_MS:
            self._warned_ms[queue] = now_ms
            log.warning(
                "pull failed, retried every %d ms group=%s topic=%s broker=%s queue=%d reason=%s",
                self._options.pull_retry_ms,
                self._group,
                queue.topic,
                queue.broker_name,
                queue.queue_id,
                error,
            )

    async def _wait(self, queue: MessageQueue, delay_ms: float) -> None:
        """Wait until `recheck` or the timeout."""
        wait = self._waits.get(queue)
        if wait is None:
            return
        wait.clear()
        timer = self._instance.clock.call_later(delay_ms, wait.set)
        try:
            await wait.wait()
        finally:
            timer.cancel()
