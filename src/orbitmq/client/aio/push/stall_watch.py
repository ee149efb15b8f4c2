"""Stall detection: logs which listener is stuck, on which message, and where.

The offset of a queue cannot pass a message whose listener does not return.

Threads: one event loop; it reads the stacks of other threads.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Final

from orbitmq.lifecycle import Periodic

if TYPE_CHECKING:
    from orbitmq.client.aio.push.listeners import Worker
    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.clock import Clock

log = logging.getLogger(__name__)

_CHECK_MS_MAX: Final = 10_000
# How many frames, from the innermost outwards, one line shows.
_FRAMES_MAX: Final = 3


class StallWatch:
    """Finds listeners that have worked on one batch for too long."""

    def __init__(
        self,
        group: str,
        workers: Callable[[], Sequence[Worker]],
        *,
        limit_ms: float,
        clock: Clock,
    ) -> None:
        self._group = group
        self._workers = workers
        self._limit_ms = limit_ms
        self._clock = clock
        # The batch that was last logged for each worker, and when to log it again.
        self._warned: dict[Worker, tuple[list[ReceivedMessage], float]] = {}
        self._periodic = Periodic("stalls", min(limit_ms / 2, _CHECK_MS_MAX), self.check, clock)

    def start(self) -> None:
        """Start to check."""
        self._periodic.start()

    async def stop(self) -> None:
        """Stop checking."""
        await self._periodic.stop()

    def check(self) -> None:
        """Log each stuck listener: once, then again whenever its time has doubled."""
        now_ms = self._clock.monotonic_ms()
        warned: dict[Worker, tuple[list[ReceivedMessage], float]] = {}
        for worker in list(self._workers()):
            run, messages, started_ms = worker.run, worker.messages, worker.started_ms
            if run is None or now_ms - started_ms < self._limit_ms:
                continue
            before = self._warned.get(worker)
            if before is None or before[0] is not messages or now_ms >= before[1]:
                self._warn(worker, messages, now_ms - started_ms)
                warned[worker] = messages, started_ms + 2 * (now_ms - started_ms)
            else:
                warned[worker] = before
        self._warned = warned

    def _warn(self, worker: Worker, messages: Sequence[ReceivedMessage], for_ms: float) -> None:
        first = messages[0]
        log.warning(
            "listener stalled group=%s topic=%s broker=%s queue=%d offset=%d message=%s "
            "messages=%d seconds=%d at=%s",
            self._group,
            first.topic,
            first.broker_name,
            first.queue_id,
            first.queue_offset,
            first.message_id,
            len(messages),
            for_ms // 1000,
            location_of(worker),
        )


def location_of(worker: Worker) -> str:
    """Describe where in the code a worker is, the innermost frame first."""
    if worker.task is not None:
        frames = _awaited_frames(worker.task)
    else:
        frame = sys._current_frames().get(worker.thread_id or 0)
        frames = []
        while frame is not None and len(frames) < _FRAMES_MAX:
            frames.append(frame)
            frame = frame.f_back
    return " < ".join(map(_describe, frames[:_FRAMES_MAX])) or "unknown"


def _awaited_frames(task: asyncio.Task[None]) -> list[FrameType]:
    """Return the frames of a task, from the innermost coroutine outwards."""
    frames: list[FrameType] = []
    awaited: object = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if isinstance(frame, FrameType):
            frames.append(frame)
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    frames.reverse()
    return frames


def _describe(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}"


def stacks() -> str:
    """Return the stacks of all threads of this process, for tools."""
    parts = [
        f"thread {thread_id}\n{''.join(traceback.format_stack(frame))}"
        for thread_id, frame in sys._current_frames().items()
    ]
    return "\n".join(parts)
