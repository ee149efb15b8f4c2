"""Prefetching: fills the buffer of a pull consumer, with one pull per queue.

Threads: one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq.client.aio.instance.broker_calls import PullStatus
from orbitmq.errors import BusyError, OrbitError, TransportError
from orbitmq.lifecycle import cancel_and_wait

if TYPE_CHECKING:
    from orbitmq.client.aio.pull.queue_reads import PullResult, QueueReads
    from orbitmq.client.core.consuming.poll_buffer import NextPull, PollBuffer
    from orbitmq.clock import Clock
    from orbitmq.model.queues import MessageQueue
    from orbitmq.model.subscriptions import Subscription

log = logging.getLogger(__name__)

# Compat: Java's pause after a broker replied that it is busy.
_BUSY_PAUSE_MS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PullPace:
    """How a queue is pulled."""

    batch_max: int
    hold_ms: int
    timeout_ms: int
    retry_ms: int


class Prefetching:
    """The pulls of a consumer's queues."""

    def __init__(
        self,
        buffer: PollBuffer,
        reads: QueueReads,
        pace: PullPace,
        *,
        subscription_of: Callable[[str], Subscription],
        start_offset: Callable[[MessageQueue], Awaitable[int]],
        clock: Clock,
    ) -> None:
        self._buffer = buffer
        self._reads = reads
        self._pace = pace
        self._subscription_of = subscription_of
        self._start_offset = start_offset
        self._clock = clock
        self._tasks: dict[MessageQueue, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        # The last error of each queue, to log a repeated one only once.
        self._last_errors: dict[MessageQueue, str] = {}
        self._stopped = False
        self._room = asyncio.Event()
        self._arrival = asyncio.Event()

    async def wait_for_arrival(self) -> None:
        """Wait until messages were pulled or `wake` was called."""
        self._arrival.clear()
        await self._arrival.wait()

    def wake(self) -> None:
        """Wake all waiters: pollers, and queues that wait for room."""
        self._arrival.set()
        self._room.set()

    def notify_room(self) -> None:
        """Resume queues that wait for room."""
        self._room.set()

    def start(self, queue: MessageQueue, offset: int | None = None) -> None:
        """Start to pull a queue, from the group's offset, which is looked up if it is not given."""
        self._buffer.add(queue, offset)
        if offset is not None:
            self._reads.lives.note_start(queue, offset)
        if queue not in self._tasks:
            self._start_task(queue)

    def choose(self, queue: MessageQueue, offset: int) -> None:
        """Record that a user chose where to resume."""
        self._reads.lives.choose(queue, offset)

    async def restart(self, queue: MessageQueue) -> None:
        """Cancel the pull in flight, which the broker may hold for long, and pull again."""
        task = self._tasks.pop(queue, None)
        if task is not None:
            try:
                await cancel_and_wait(task)
            finally:
                # Even if the caller was cancelled: the queue must be read on.
                if queue in self._buffer and queue not in self._tasks and not self._stopped:
                    self._start_task(queue)

    def drop(self, queue: MessageQueue) -> None:
        """Stop pulling a queue, and drop what is buffered of it."""
        self._buffer.remove(queue)
        self._reads.forget(queue)
        self._reads.lives.forget(queue)
        self._last_errors.pop(queue, None)
        task = self._tasks.pop(queue, None)
        if task is not None:
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        self._room.set()

    async def stop_all(self) -> None:
        """Stop pulling; what is buffered stays."""
        self._stopped = True
        tasks, self._tasks = self._tasks, {}
        for task in (*tasks.values(), *self._ending):
            await cancel_and_wait(task)
        self.wake()

    def _start_task(self, queue: MessageQueue) -> None:
        self._tasks[queue] = asyncio.get_running_loop().create_task(
            self._run(queue), name=f"pull {queue.topic} {queue.broker_name} {queue.queue_id}"
        )

    async def _run(self, queue: MessageQueue) -> None:
        while queue in self._buffer:
            pull = self._buffer.next_pull(queue, self._pace.batch_max)
            if pull is None:
                self._room.clear()
                await self._room.wait()
                continue
            try:
                pause_ms = await self._step(queue, pull)
            except OrbitError as error:
                self._warn_once(queue, error)
                if isinstance(error, TransportError):
                    # The suggested broker may be gone; the master suggests another.
                    self._reads.forget(queue)
                pause_ms = _BUSY_PAUSE_MS if isinstance(error, BusyError) else self._pace.retry_ms
            except Exception:
                # A bug must not silently end the reading of a queue.
                log.exception("pull failed queue=%s", queue)
                pause_ms = self._pace.retry_ms
            else:
                self._last_errors.pop(queue, None)
            if pause_ms:
                await self._clock.sleep_ms(pause_ms)

    async def _step(self, queue: MessageQueue, pull: NextPull) -> float:
        """Find the start of a queue, or pull it once; returns the pause before the next step."""
        if pull.offset is None:
            offset = await self._start_offset(queue)
            self._buffer.start_at(queue, pull.generation, offset)
            self._reads.lives.note_start(queue, offset)
            return 0
        result = await self._reads.read(
            queue,
            self._subscription_of(queue.topic),
            pull.offset,
            messages_max=pull.messages_max,
            hold_ms=self._pace.hold_ms,
            timeout_ms=self._pace.timeout_ms,
        )
        is_current = self._buffer.add_pulled(
            queue, pull.generation, result.messages, result.next_offset
        )
        if is_current and result.messages:
            self._arrival.set()
        if is_current and result.status is PullStatus.OFFSET_ILLEGAL:
            return self._handle_move(queue, pull.offset, result)
        return 0

    def _handle_move(self, queue: MessageQueue, offset: int, result: PullResult) -> float:
        if result.min_offset <= offset <= result.max_offset:
            # An operator has reset the group: the buffered messages are obsolete.
            self._buffer.seek(queue, result.next_offset)
        log.warning(
            "broker moved the offset topic=%s broker=%s queue=%d offset=%d min=%d max=%d next=%d",
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            offset,
            result.min_offset,
            result.max_offset,
            result.next_offset,
        )
        # Do not loop without a pause if the broker returns the same offset.
        return self._pace.retry_ms if result.next_offset == offset else 0

    def _warn_once(self, queue: MessageQueue, error: OrbitError) -> None:
        reason = str(error)
        if self._last_errors.get(queue) != reason:
            self._last_errors[queue] = reason
            log.warning(
                "pull failed topic=%s broker=%s queue=%d reason=%s",
                queue.topic,
                queue.broker_name,
                queue.queue_id,
                reason,
            )
