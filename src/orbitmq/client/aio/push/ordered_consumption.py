"""Ordered consumption: the batches of a queue one at a time, under its lock.

A batch that fails is retried after a pause, before any later message. A batch without retries left
goes to the retry topic, from where brokers move it to the dead letters.

Invariant: a queue has at most one run in progress, whichever window it came from; and no batch
starts without the lock of the queue.
Threads: one event loop; the listener runs where its pool runs it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from orbitmq.client.aio.push.listeners import Finished, ListenerRun
from orbitmq.client.core.consuming.consume_results import (
    DEAD_LETTER,
    SUSPEND_MS_MAX,
    SUSPEND_MS_MIN,
    ConsumeResult,
    Reject,
    Suspend,
)
from orbitmq.clock import time_limit
from orbitmq.lifecycle import OwnedTasks

if TYPE_CHECKING:
    from orbitmq.client.aio.push.consumption import OffsetRecorder, RetrySender
    from orbitmq.client.aio.push.listeners import ListenerPool, OnFinished
    from orbitmq.client.core.consuming.consume_speeds import ConsumeSpeeds
    from orbitmq.client.core.consuming.inflight_window import InflightWindow
    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.clock import Clock, TimerHandle
    from orbitmq.model.queues import MessageQueue

    Window = InflightWindow[ReceivedMessage]

log = logging.getLogger(__name__)

# How many messages of a queue a worker gets before another queue has its turn.
RUN_MESSAGES_MAX: Final = 64
# Pauses before a missing lock is requested, and after it was denied.
_ASK_LOCK_MS: Final = 100
_LOCK_DENIED_MS: Final = 3_000


class OrderedConsumption:
    """Passes messages to the listener in order, and acts on its results."""

    def __init__(  # noqa: PLR0913 - by name
        self,
        make_pool: Callable[[OnFinished], ListenerPool],
        *,
        batch_size: int,
        suspend_ms: int,
        retries_max: int | None,
        offsets: OffsetRecorder,
        speeds: ConsumeSpeeds,
        send_backs: RetrySender,
        lock: Callable[[MessageQueue], Awaitable[bool]] | None,
        on_room: Callable[[MessageQueue], None],
        on_idle: Callable[[MessageQueue], None],
        clock: Clock,
    ) -> None:
        """Make the pool that calls the listener.

        Args:
            make_pool: makes the pool.
            batch_size: how many messages a call gets at most.
            suspend_ms: how long a queue pauses after a failure, unless the result says otherwise.
            retries_max: how often a message is retried; None for no limit.
            offsets: records the offsets that may be committed.
            speeds: counts calls and messages.
            send_backs: takes messages without retries left.
            lock: requests the lock of a queue from its broker; None if none is needed.
            on_room: called with a queue when some of its messages are finished.
            on_idle: called with a queue that `release` refused to give up, and that is idle now.
            clock: the source of time.
        """
        self.pool = make_pool(self.finished)
        self._batch_size = batch_size
        self._suspend_ms = suspend_ms
        self._retries_max = retries_max
        self._offsets = offsets
        self._speeds = speeds
        self._send_backs = send_backs
        self._lock = lock
        self._on_room = on_room
        self._on_idle = on_idle
        self._clock = clock
        # The window of each queue that has something to consume.
        self._windows: dict[MessageQueue, Window] = {}
        self._running: dict[MessageQueue, ListenerRun] = {}
        self._failed: dict[MessageQueue, Finished] = {}
        self._suspended: dict[MessageQueue, TimerHandle] = {}
        # Queues whose failed batch is being handled, or whose lock is being requested.
        self._settling: set[MessageQueue] = set()
        # Windows in which no batch may start, because their queues are given up.
        self._closing: dict[MessageQueue, Window] = {}
        self._tasks = OwnedTasks()
        self._stopping = False

    def start(self) -> None:
        """Do nothing: work starts with the first messages."""

    async def stop(self, grace_ms: float) -> None:
        """Wait for running listeners, up to `grace_ms`."""
        end_ms = self._clock.monotonic_ms() + grace_ms
        self._stopping = True
        for timer in self._suspended.values():
            timer.cancel()
        self._suspended.clear()
        left = await self.pool.stop(grace_ms)
        for worker in left:
            log.warning(
                "stopped while a listener was running; its messages will be redelivered message=%r",
                worker.messages[0],
            )
        # Runs that never started, or whose listener was cancelled, will not report their end.
        still_running = {worker.run for worker in left}
        self._running = {queue: run for queue, run in self._running.items() if run in still_running}
        try:
            async with time_limit(self._clock, max(0.0, end_ms - self._clock.monotonic_ms())):
                await self._tasks.all_done()
        except TimeoutError:
            log.warning("stopped before all failed messages were handled; they will be redelivered")
        await self._tasks.cancel()

    def take(
        self, queue: MessageQueue, window: Window, messages: Sequence[ReceivedMessage]
    ) -> None:
        """Consume pulled messages, which are in the window already."""
        if messages:
            self._windows[queue] = window
            self._resume(queue)

    def release(self, queue: MessageQueue, window: Window) -> bool:
        """Give a queue up; False while a listener is working on it, whose result still counts."""
        if queue in self._running or queue in self._settling:
            self._closing[queue] = window
            return False
        self._closing.pop(queue, None)
        if (timer := self._suspended.pop(queue, None)) is not None:
            timer.cancel()
        self._windows.pop(queue, None)
        window.drop()
        return True

    # --- one queue ------------------------------------------------------------------------------

    def _resume(self, queue: MessageQueue) -> None:
        """Pass the next messages of a queue to a worker, unless it has some or must wait."""
        window = self._windows.get(queue)
        if window is None or self._stopping or self._closing.get(queue) is window:
            return
        if window.dropped:
            del self._windows[queue]
            return
        if queue in self._suspended or queue in self._running or queue in self._settling:
            return
        if self._lock is not None and not window.locked:
            self._suspend(queue, _ASK_LOCK_MS, self._ask_lock)
            return
        messages = window.take(RUN_MESSAGES_MAX)
        if not messages:
            return
        size = self._batch_size
        batches = [messages[at : at + size] for at in range(0, len(messages), size)]
        run = ListenerRun(queue, window, batches, self._permission(queue, window), reports_end=True)
        self._running[queue] = run
        self.pool.submit([run])

    def _permission(self, queue: MessageQueue, window: Window) -> Callable[[], bool]:
        """Make the check that a worker calls before each batch, from its thread."""
        needs_lock, closing = self._lock is not None, self._closing

        def may_start() -> bool:
            return closing.get(queue) is not window and (window.locked or not needs_lock)

        return may_start

    def finished(self, finished: Sequence[Finished]) -> None:
        """Act on the results of some batches, and resume queues whose runs have ended."""
        for item in finished:
            run, messages, result, spent_ms = item
            queue, window = run.queue, run.window
            if not messages:
                self._end(run)
                continue
            failed = isinstance(result, Suspend | Reject)
            self._speeds.consumed(
                queue.topic,
                calls=1,
                done=0 if failed else len(messages),
                failed=len(messages) if failed else 0,
                spent_ms=spent_ms,
            )
            if failed:
                self._failed[queue] = item
            elif not window.dropped:
                window.commit(len(messages))
                self._offsets.record(queue, window)
                self._on_room(queue)

    def _end(self, run: ListenerRun) -> None:
        queue, window = run.queue, run.window
        self._running.pop(queue, None)
        failed = self._failed.pop(queue, None)
        if not window.dropped:
            window.roll_back()
            if failed is not None:
                self._settling.add(queue)
                self._tasks.start(self._settle(failed), name="failed batch")
                return
        self._notify_if_idle(queue)
        self._resume(queue)

    def _notify_if_idle(self, queue: MessageQueue) -> None:
        if queue in self._closing:
            self._on_idle(queue)

    # --- failures -------------------------------------------------------------------------------

    async def _settle(self, failed: Finished) -> None:
        """Send away messages without retries left, and retry the others after a pause."""
        queue, window = failed.run.queue, failed.run.window
        sent: list[ReceivedMessage] = []
        try:
            await self._send_away(failed, sent)
        finally:
            self._settling.discard(queue)
            if not window.dropped:
                if sent:
                    # Otherwise each further attempt of the batch would send them again.
                    window.finish(sent)
                    self._offsets.record(queue, window)
                    self._on_room(queue)
                if len(sent) < len(failed.messages):
                    self._suspend(queue, self._pause_ms(failed), self._resume)
            self._notify_if_idle(queue)
        self._resume(queue)

    async def _send_away(self, failed: Finished, sent: list[ReceivedMessage]) -> None:
        """Send messages without retries left, and add them to `sent`; count the others' retry."""
        for message in failed.messages:
            if await self._is_sent_away(message, failed.result):
                sent.append(message)
            else:
                message.count_retry()

    async def _is_sent_away(self, message: ReceivedMessage, result: ConsumeResult) -> bool:
        if isinstance(result, Reject):
            return await self._send_backs.send_back(message, DEAD_LETTER, result.reason)
        exhausted = self._retries_max is not None and message.reconsume_times >= self._retries_max
        reason = result.reason if isinstance(result, Suspend) else ""
        return exhausted and await self._send_backs.send_copy(message, reason)

    def _pause_ms(self, failed: Finished) -> int:
        asked = failed.result.pause_ms if isinstance(failed.result, Suspend) else None
        pause_ms = self._suspend_ms if asked is None else asked
        return min(max(pause_ms, SUSPEND_MS_MIN), SUSPEND_MS_MAX)

    def _suspend(
        self, queue: MessageQueue, pause_ms: float, then: Callable[[MessageQueue], None]
    ) -> None:
        if self._stopping:
            return
        if (before := self._suspended.pop(queue, None)) is not None:
            before.cancel()

        def wake() -> None:
            self._suspended.pop(queue, None)
            then(queue)

        self._suspended[queue] = self._clock.call_later(pause_ms, wake)

    # --- locks ----------------------------------------------------------------------------------

    def _ask_lock(self, queue: MessageQueue) -> None:
        window = self._windows.get(queue)
        if window is not None and not window.dropped and not self._stopping:
            self._settling.add(queue)
            self._tasks.start(self._lock_and_resume(queue, window), name="lock queue")

    async def _lock_and_resume(self, queue: MessageQueue, window: Window) -> None:
        assert self._lock is not None
        got = False
        try:
            got = window.locked or await self._lock(queue)
        finally:
            self._settling.discard(queue)
            self._notify_if_idle(queue)
        if got:
            self._resume(queue)
        else:
            self._suspend(queue, _LOCK_DENIED_MS, self._resume)
