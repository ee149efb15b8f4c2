"""Starting and stopping: parts that run once, work that repeats, owned tasks.

Threads: everything here belongs to the event loop it was started on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from orbitmq.clock import settle
from orbitmq.errors import StateError

if TYPE_CHECKING:
    from orbitmq.clock import Clock

log = logging.getLogger(__name__)


class RunOnce:
    """The state of a part that is started once and stopped once, and never again."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._started = False
        self._stop_begun = False
        self._stopped = asyncio.Event()

    @property
    def stopping(self) -> bool:
        """Whether the part is being stopped, or was."""
        return self._stop_begun

    def begin(self) -> None:
        """Go from new to running."""
        self.check_not_stopped()
        if self._started:
            raise StateError(
                f"{self._what} is already started", hint="start it once, and use it until stop"
            )
        self._started = True

    def check_not_stopped(self) -> None:
        """Raise when the part is stopped or about to be."""
        if self._stop_begun:
            raise StateError(f"{self._what} is stopped", hint="make a new one")

    def check_running(self) -> None:
        """Raise unless the part was started, and is not stopped or about to be."""
        self.check_not_stopped()
        if not self._started:
            raise StateError(
                f"{self._what} is not started", hint="call start(), or use it in a with block"
            )

    async def begin_stop(self) -> bool:
        """Go from running to stopping: True for the one who has to do it.

        Whoever comes later gets False once the first has called `end_stop`; so does everybody
        when there is nothing to stop.
        """
        if self._stop_begun:
            await self._stopped.wait()
            return False
        self._stop_begun = True
        if not self._started:
            self._stopped.set()
        return self._started

    def end_stop(self) -> None:
        """Go from stopping to stopped."""
        self._stopped.set()


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
        if self._task is not None:
            raise StateError(f"{self._name} is already started")
        self._task = asyncio.get_running_loop().create_task(self._run(), name=self._name)

    async def stop(self) -> None:
        """End, interrupting a round under way; a round that stops itself ends after it."""
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            await cancelled(task)

    async def _run(self) -> None:
        own = asyncio.current_task()
        await self._clock.sleep_ms(self._interval_ms)
        # A round that turns its cancellation into another error must not outlive `stop`.
        while self._task is own:
            try:
                outcome = self._action()
                if outcome is not None:
                    await outcome
            except Exception:
                log.exception("round failed task=%s", self._name)
            if self._task is own:
                await self._clock.sleep_ms(self._interval_ms)


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

    async def all_done(self) -> None:
        """Return once none is left, those included that are started meanwhile."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def cancel(self) -> None:
        """Cancel what runs, and wait until it has ended."""
        # A coroutine that never began could not clean up after itself.
        await settle(1)
        for task in set(self._tasks):
            task.cancel()
        await self.all_done()

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task failed task=%s", task.get_name(), exc_info=error)


# The loop itself does not keep tasks from being collected.
_lasting: Final[set[asyncio.Task[None]]] = set()


async def to_the_end(work: Coroutine[Any, Any, None], *, name: str) -> None:
    """Do work that must not stay half done: it goes on when whoever waits here is cancelled."""
    await asyncio.shield(_start_lasting(work, name))


def start_lasting(work: Coroutine[Any, Any, None], *, name: str) -> None:
    """Begin work that nobody waits for."""
    _ = _start_lasting(work, name)


def _start_lasting(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    task = asyncio.get_running_loop().create_task(work, name=name)
    _lasting.add(task)
    task.add_done_callback(_lasting.discard)
    return task


async def cancelled(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait until it has ended."""
    task.cancel()
    await asyncio.wait({task})
