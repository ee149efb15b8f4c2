"""Starting and stopping: work that repeats, and tasks that somebody owns.

Threads: everything here belongs to the event loop it was started on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbitmq.clock import Clock

log = logging.getLogger(__name__)


class Periodic:
    """Does one thing again and again, a fixed pause apart, until it is stopped.

    A round that fails is logged and does not end the repetition.
    """

    def __init__(
        self,
        name: str,
        interval_ms: float,
        action: Callable[[], Awaitable[None] | None],
        clock: Clock,
    ) -> None:
        self._name = name
        self._interval_ms = interval_ms
        self._action = action
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; the first round comes after one pause."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=self._name)

    async def stop(self) -> None:
        """End, interrupting a round under way."""
        if self._task is not None:
            await cancelled(self._task)
            self._task = None

    async def _run(self) -> None:
        while True:
            await self._clock.sleep_ms(self._interval_ms)
            try:
                outcome = self._action()
                if outcome is not None:
                    await outcome
            except Exception:
                log.exception("round failed task=%s", self._name)


class OwnedTasks:
    """Tasks started on the way, kept from being lost and awaited at the end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run `work`; an error that leaves it is logged here, once."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    async def finish(self, timeout_ms: float) -> None:
        """Wait for what runs, then cancel what is left."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout_ms / 1000)
        for task in set(self._tasks):
            await cancelled(task)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task failed task=%s", task.get_name(), exc_info=error)


async def cancelled(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait until it has ended."""
    task.cancel()
    await asyncio.wait({task})
