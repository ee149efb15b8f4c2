"""Starting and stopping: parts that run once, periodic work, owned tasks.

Threads: everything here belongs to the event loop it was started on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from orbitmq.clock import settle
from orbitmq.errors import OrbitError, StateError

if TYPE_CHECKING:
    from orbitmq.clock import Clock

log = logging.getLogger(__name__)


class RunOnce:
    """The state of a part that is started once and stopped once, and never restarted."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._started = False
        self._stop_requested = False
        self._stopped = asyncio.Event()

    @property
    def stopping(self) -> bool:
        """Whether the part is stopping or stopped."""
        return self._stop_requested

    def begin(self) -> None:
        """Go from new to running."""
        self.check_not_stopped()
        if self._started:
            raise StateError(
                f"{self._what} is already started", hint="start it once, and use it until it stops"
            )
        self._started = True

    def check_not_stopped(self) -> None:
        """Raise if the part is stopping or stopped."""
        if self._stop_requested:
            raise StateError(f"{self._what} is stopped", hint="make a new one")

    def check_running(self) -> None:
        """Raise unless the part is started and not yet stopping."""
        self.check_not_stopped()
        if not self._started:
            raise StateError(
                f"{self._what} is not started", hint="call start(), or use it in a with block"
            )

    async def begin_stop(self) -> bool:
        """Go from running to stopping; True for the caller that has to stop the part.

        Later callers get False once the first one has called `end_stop`. If the part was never
        started, every caller gets False.
        """
        if self._stop_requested:
            await self._stopped.wait()
            return False
        self._stop_requested = True
        if not self._started:
            self._stopped.set()
        return self._started

    def end_stop(self) -> None:
        """Go from stopping to stopped."""
        self._stopped.set()


class Periodic:
    """Repeats an action, with a fixed pause before each round, until it is stopped.

    A round that fails is logged; the next one runs as usual. If it fails with an error of ours, it
    is logged again only when the error changes.
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
        self._failure = ""

    def start(self) -> None:
        """Start; the first round runs after one pause."""
        if self._task is not None:
            raise StateError(f"{self._name} is already started")
        self._task = asyncio.get_running_loop().create_task(self._run(), name=self._name)

    async def stop(self) -> None:
        """Stop, and cancel a running round; a round that calls this runs to its end."""
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            await cancel_and_wait(task)

    async def _run(self) -> None:
        own = asyncio.current_task()
        await self._clock.sleep_ms(self._interval_ms)
        # A round that turns its cancellation into another error must not outlive `stop`.
        while self._task is own:
            try:
                outcome = self._action()
                if outcome is not None:
                    await outcome
                self._failure = ""
            except OrbitError as error:
                if str(error) != self._failure:
                    log.warning("round failed task=%s reason=%s", self._name, error)
                self._failure = str(error)
            except Exception:
                log.exception("round failed task=%s", self._name)
            if self._task is own:
                await self._clock.sleep_ms(self._interval_ms)


class OwnedTasks:
    """Tasks that their owner keeps referenced and awaits at the end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run `work`; an error that it raises is logged here, once."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    async def all_done(self) -> None:
        """Return once no task is left, including those started meanwhile."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def cancel(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        # A coroutine that never started could not clean up after itself.
        await settle(1)
        for task in set(self._tasks):
            task.cancel()
        await self.all_done()

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task failed task=%s", task.get_name(), exc_info=error)


# The event loop itself does not keep tasks from being garbage-collected.
_detached: Final[set[asyncio.Task[None]]] = set()


async def run_to_completion(work: Coroutine[Any, Any, None], *, name: str) -> None:
    """Await work that must not be left half done: it continues if the caller is cancelled."""
    await asyncio.shield(_start_detached(work, name))


def start_detached(work: Coroutine[Any, Any, None], *, name: str) -> None:
    """Start work that nobody awaits."""
    _ = _start_detached(work, name)


def _start_detached(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    task = asyncio.get_running_loop().create_task(work, name=name)
    _detached.add(task)
    task.add_done_callback(_detached.discard)
    return task


async def cancel_and_wait(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait until it has ended."""
    task.cancel()
    await asyncio.wait({task})
