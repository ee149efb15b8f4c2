"""Concurrent consumption: messages in any order; failed ones go to the broker.

A message leaves its window when the listener is done with it, or when the broker has accepted it
for redelivery. Until then the committed offset of the queue cannot pass it.

Threads: one event loop; the listener runs where its pool runs it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from orbitmq.client.aio.push.listeners import Finished, ListenerRun
from orbitmq.client.core.consuming.consume_results import RetryLater
from orbitmq.clock import time_limit
from orbitmq.lifecycle import OwnedTasks, Periodic

if TYPE_CHECKING:
    from orbitmq.client.aio.push.consumption import OffsetRecorder, RetrySender
    from orbitmq.client.aio.push.listeners import ListenerPool, OnFinished
    from orbitmq.client.core.consuming.consume_speeds import ConsumeSpeeds
    from orbitmq.client.core.consuming.inflight_window import InflightWindow
    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.clock import Clock
    from orbitmq.model.queues import MessageQueue

    Window = InflightWindow[ReceivedMessage]

log = logging.getLogger(__name__)

# Pause before a message that no broker accepted is consumed again.
RETRY_MS: Final = 5_000
# Compat: the delay of a message whose listener takes too long.
_OVERDUE: Final = RetryLater(delay_level=3, reason="the listener took too long")
_CHECK_MS_MAX: Final = 60_000
# How many batches are sent back concurrently; the others wait.
_SEND_BACKS_MAX: Final = 16


@dataclass(slots=True, eq=False)
class _WindowResults:
    """The finished calls of one window."""

    queue: MessageQueue
    window: Window
    messages: list[ReceivedMessage] = field(default_factory=list)
    calls: int = 0
    failed: int = 0
    spent_ms: float = 0.0


class ConcurrentConsumption:
    """Passes messages to the listener, and acts on its results."""

    def __init__(
        self,
        make_pool: Callable[[OnFinished], ListenerPool],
        *,
        batch_size: int,
        timeout_ms: float,
        offsets: OffsetRecorder,
        speeds: ConsumeSpeeds,
        send_backs: RetrySender | None,
        on_room: Callable[[MessageQueue], None],
        clock: Clock,
    ) -> None:
        """Make the pool that calls the listener.

        Args:
            make_pool: makes the pool.
            batch_size: how many messages a call gets at most.
            timeout_ms: how long a call may take.
            offsets: records the offsets that may be committed.
            speeds: counts calls and messages.
            send_backs: sends failed messages back; None drops them, as broadcasting does.
            on_room: called with a queue when some of its messages are finished.
            clock: the source of time.
        """
        self.pool = make_pool(self.finished)
        self._batch_size = batch_size
        self._timeout_ms = timeout_ms
        self._offsets = offsets
        self._speeds = speeds
        self._send_backs = send_backs
        self._on_room = on_room
        self._clock = clock
        self._sending_back = OwnedTasks()
        self._retries = OwnedTasks()
        self._send_back_limit = asyncio.Semaphore(_SEND_BACKS_MAX)
        self._overdue = Periodic(
            "overdue messages", min(timeout_ms, _CHECK_MS_MAX), self.send_back_overdue, clock
        )

    def start(self) -> None:
        """Start to check for listeners that take too long."""
        self._overdue.start()

    async def stop(self, grace_ms: float) -> None:
        """Wait, up to `grace_ms`, for running listeners and for failed messages to be sent back."""
        end_ms = self._clock.monotonic_ms() + grace_ms
        await self._overdue.stop()
        await self._retries.cancel()
        for worker in await self.pool.stop(grace_ms):
            log.warning(
                "stopped while a listener was running; its messages will be redelivered message=%r",
                worker.messages[0],
            )
        try:
            async with time_limit(self._clock, max(0.0, end_ms - self._clock.monotonic_ms())):
                await self._sending_back.all_done()
        except TimeoutError:
            log.warning(
                "stopped before all failed messages were sent back; they will be redelivered"
            )
        await self._sending_back.cancel()
        await self._retries.cancel()

    def take(
        self, queue: MessageQueue, window: Window, messages: Sequence[ReceivedMessage]
    ) -> None:
        """Consume pulled messages, which are in the window already."""
        size = self._batch_size
        if size == 1:
            self.pool.submit([ListenerRun(queue, window, ([one],)) for one in messages])
        else:
            self.pool.submit(
                ListenerRun(queue, window, (list(messages[at : at + size]),))
                for at in range(0, len(messages), size)
            )

    def release(self, queue: MessageQueue, window: Window) -> bool:  # noqa: ARG002 - of all queues
        """Give a queue up: messages in progress finish here, and come again elsewhere."""
        window.drop()
        return True

    # --- results of the listener ----------------------------------------------------------------

    def finished(self, finished: Sequence[Finished]) -> None:
        """Act on the results of some batches."""
        by_window: dict[Window, _WindowResults] = {}
        for run, messages, result, spent_ms in finished:
            done = by_window.get(run.window)
            if done is None:
                done = by_window[run.window] = _WindowResults(run.queue, run.window)
            done.calls += 1
            done.spent_ms += spent_ms
            if not isinstance(result, RetryLater):
                done.messages += messages
                continue
            done.messages += messages[: result.succeeded]
            failed = messages[result.succeeded :]
            done.failed += len(failed)
            if self._send_backs is None:
                self._drop(failed)
                done.messages += failed
            elif failed and not run.window.dropped:
                self._sending_back.start(
                    self._send_back(run, failed, result, self._send_backs),
                    name="send back",
                )
        for done in by_window.values():
            self._speeds.consumed(
                done.queue.topic,
                calls=done.calls,
                done=len(done.messages),
                failed=done.failed,
                spent_ms=done.spent_ms,
            )
            self._finish(done.queue, done.window, done.messages)

    def _finish(
        self, queue: MessageQueue, window: Window, messages: Sequence[ReceivedMessage]
    ) -> None:
        if messages and not window.dropped:
            window.finish(messages)
            self._offsets.record(queue, window)
            self._on_room(queue)

    def _drop(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            log.warning("broadcast message failed and is dropped message=%r", message)

    async def _send_back(
        self,
        run: ListenerRun,
        messages: Sequence[ReceivedMessage],
        result: RetryLater,
        send_backs: RetrySender,
    ) -> None:
        window = run.window
        taken: list[ReceivedMessage] = []
        kept: list[ReceivedMessage] = []
        async with self._send_back_limit:
            for message in messages:
                # It may have been sent back already because the listener took too long, or the
                # queue may belong to another member by now, which gets the message anyway.
                if window.dropped or message not in window:
                    continue
                if await self._try_send_back(message, result, send_backs):
                    taken.append(message)
                else:
                    message.count_retry()
                    kept.append(message)
        self._finish(run.queue, window, taken)
        if kept:
            self._retries.start(self._retry_later(run.queue, window, kept), name="consume again")

    async def _try_send_back(
        self, message: ReceivedMessage, result: RetryLater, send_backs: RetrySender
    ) -> bool:
        try:
            return await send_backs.send_back(message, result.delay_level, result.reason)
        except Exception:
            # Whatever the cause, the message is not lost: the consumer keeps it.
            log.exception("message could not be sent back message=%r", message)
            return False

    async def _retry_later(
        self, queue: MessageQueue, window: Window, messages: list[ReceivedMessage]
    ) -> None:
        await self._clock.sleep_ms(RETRY_MS)
        if not window.dropped:
            self.take(queue, window, messages)

    # --- listeners that take too long -----------------------------------------------------------

    async def send_back_overdue(self) -> None:
        """Send back messages whose listener takes too long; its result will be ignored."""
        if self._send_backs is None:
            return
        late_ms = self._clock.monotonic_ms() - self._timeout_ms
        for worker in list(self.pool.workers):
            run, messages = worker.run, worker.messages
            if run is None or worker.started_ms > late_ms or run.window.dropped:
                continue
            for message in messages:
                if message in run.window and await self._try_send_back(
                    message, _OVERDUE, self._send_backs
                ):
                    log.warning(
                        "listener takes too long, message sent back after_ms=%d message=%r",
                        self._timeout_ms,
                        message,
                    )
                    self._finish(run.queue, run.window, [message])
