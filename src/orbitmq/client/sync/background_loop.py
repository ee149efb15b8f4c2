"""The event loop that all blocking clients of a process share, in its own thread.

It starts with the first client and ends with the last one; at exit, clients that still run are
stopped. Each embedded cluster has a loop of this kind of its own.

Threads: any may call except the loop's own, which would wait for itself.
Exit: the interpreter starts no threads while it shuts down, so ending needs none.
Fork: the thread does not exist in a child process. There, a client that was made before the fork
raises an error; a client made in the child gets a loop of the child's own.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, TypeVar

from orbitmq.errors import StateError
from orbitmq.transport.event_loop import native_loop

log = logging.getLogger(__name__)

T = TypeVar("T")
Stop = Callable[[], Coroutine[Any, Any, None]]

# An interrupt is noticed within this time.
_SIGNALS_SECONDS: Final = 0.5
# How long a new thread may take to run its loop.
_START_SECONDS: Final = 2
# How long clients that are still running may take to stop at exit.
EXIT_SECONDS: Final = 10


class _BlockingCall(Generic[T]):
    """Work on the loop that a thread waits for.

    Perf: takes half the processor time of `asyncio.run_coroutine_threadsafe` and its future: 40
    instead of 84 us a call (timeit).
    """

    __slots__ = ("_loop", "_task", "_waiting", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> None:
        self._work = work
        self._loop = loop
        self._task: asyncio.Task[T] | None = None
        self._waiting = threading.Lock()
        self._waiting.acquire()

    def start(self) -> None:
        """Start the work; on the loop."""
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self.wake)

    def wake(self, _: object = None) -> None:
        """Wake the waiting thread."""
        self._waiting.release()

    def cancel(self, on_loop: Callable[[Callable[[], object]], None]) -> None:
        """Cancel the work, whether it was started or never will be; in the calling thread."""
        try:
            on_loop(self._cancel_on_loop)
        except StateError:
            self._work.close()

    def _cancel_on_loop(self) -> None:
        # `start` was scheduled before this; if there is no task, it was never scheduled.
        if self._task is None:
            self._work.close()
        else:
            self._task.cancel()

    def abandon(self) -> None:
        """Wake the waiting thread if the loop ended before it started the work."""
        if self._task is None:
            self.wake()

    def wait(self) -> None:
        """Wait until the work is done; in the calling thread."""
        # A signal that arrives just before the thread sleeps does not wake it: Python would raise
        # the interrupt only after something else wakes it, which may be never.
        while not self._waiting.acquire(timeout=_SIGNALS_SECONDS):
            pass

    def result(self) -> T:
        """Return the result of the work or raise its error, after `wait`."""
        task, self._task = self._task, None
        if task is None or task.cancelled():
            self._work.close()
            raise StateError("the call was cancelled, since its client or cluster is being stopped")
        return task.result()


class _ExitSafeExecutor(ThreadPoolExecutor):
    """Threads for work of the loop; at exit, when no thread can start, the loop does it itself.

    Clients that are stopped only at exit still have offsets to write then.
    """

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="orbitmq-work")
        self._unfinished: set[Future[Any]] = set()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run work in a thread, or here if no thread can start."""
        done: Future[T] = Future()
        not_started = threading.Lock()

        def work() -> None:
            # Only once: a pool that cannot start another thread still queues the work.
            if not not_started.acquire(blocking=False) or not done.set_running_or_notify_cancel():
                return
            try:
                done.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001  # the caller gets it
                done.set_exception(error)

        self._unfinished.add(done)
        done.add_done_callback(self._unfinished.discard)
        try:
            super().submit(work)
        except RuntimeError:
            work()
        return done

    async def end(self) -> None:
        """Wait for running work, which may call the loop, and end the threads."""
        while self._unfinished:
            work = [asyncio.wrap_future(each) for each in [*self._unfinished]]
            await asyncio.gather(*work, return_exceptions=True)
        self.shutdown()


class BackgroundLoop:
    """One event loop, and the thread it runs in."""

    def __init__(self, name: str = "orbitmq-loop", *, owner: str = "client") -> None:
        """Prepare a loop in a thread of this name; errors call its user `owner`."""
        self.users = 0
        self._owner = owner
        # Set in a child process: the thread exists in the parent only.
        self.belongs_to_parent = False
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread_id: int | None = None
        self._loop: asyncio.AbstractEventLoop
        self._ending: asyncio.Event
        self._calls: set[_BlockingCall[Any]] = set()
        self._futures: set[Future[Any]] = set()
        # Stops the clients at exit; then, in the exiting thread, what to call afterwards.
        self._stops: dict[Stop, Callable[[], None] | None] = {}

    # --- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread, and return once its loop takes calls."""
        try:
            self._thread.start()
            self._ready.result()
            _process.running.add(self)
        except BaseException:
            # An interrupted start leaves no thread running.
            with suppress(TimeoutError):
                if self._ready.exception(_START_SECONDS) is None:
                    self.end()
            raise

    def end(self) -> None:
        """End the loop and everything that still runs on it, and wait until its thread is gone."""
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()
        _process.running.discard(self)

    def stop_at_exit(self, stop: Stop, *, afterwards: Callable[[], None] | None = None) -> None:
        """Register what to call at exit, unless `cancel_stop_at_exit` comes first."""
        self._stops[stop] = afterwards

    def cancel_stop_at_exit(self, stop: Stop) -> None:
        """Remove what `stop_at_exit` registered."""
        self._stops.pop(stop, None)

    def stop_all(self) -> None:
        """Stop everything that is still registered."""
        if self._stops:
            try:
                asyncio.run_coroutine_threadsafe(self._stop_all(), self._loop).result(EXIT_SECONDS)
            except TimeoutError:
                log.warning(
                    "not stopped in time at exit kind=%s count=%d", self._owner, len(self._stops)
                )
        for afterwards in [*self._stops.values()]:
            if afterwards is not None:
                afterwards()

    async def _stop_all(self) -> None:
        stops = [stop() for stop in self._stops]
        for failure in await asyncio.gather(*stops, return_exceptions=True):
            if isinstance(failure, Exception):
                log.error("not stopped at exit kind=%s", self._owner, exc_info=failure)

    def _run(self) -> None:
        self._thread_id = threading.get_ident()
        try:
            loop = native_loop()
            executor = _ExitSafeExecutor()
            loop.set_default_executor(executor)
            try:
                loop.run_until_complete(self._serve())
            finally:
                try:
                    loop.run_until_complete(_end_work(executor))
                finally:
                    loop.close()
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)
        finally:
            # Calls that came at the last moment must not wait forever.
            for call in [*self._calls]:
                call.abandon()
            for future in [*self._futures]:
                future.cancel()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ending = asyncio.Event()
        self._ready.set_result(None)
        await self._ending.wait()

    # --- calls ----------------------------------------------------------------------------------

    def check_usable(self) -> None:
        """Raise unless the loop runs in this process."""
        if self._thread_id is None:
            raise StateError(
                f"the {self._owner} is not started", hint="call start(), or use it in a with block"
            )
        if self.belongs_to_parent:
            raise made_before_fork(self._owner)

    def check_may_wait(self) -> None:
        """Raise unless this thread can wait for the loop."""
        self.check_usable()
        if threading.get_ident() == self._thread_id:
            raise StateError(
                f"a blocking call from the event loop of the {self._owner} would wait for itself",
                hint="use orbitmq.client.aio in coroutines and hooks, or a plain listener",
            )

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work on the loop and wait for its result; an interrupt cancels it."""
        try:
            self.check_may_wait()
        except StateError:
            work.close()
            raise
        call = _BlockingCall(work, self._loop)
        self._calls.add(call)
        try:
            self._on_loop(call.start)
            call.wait()
        except BaseException:
            # An interrupt may come at any moment, even before the work was scheduled.
            call.cancel(self._on_loop)
            raise
        finally:
            self._calls.discard(call)
        return call.result()

    def start_future(self, start: Callable[[], asyncio.Future[T]]) -> Future[T]:
        """Call `start` on the loop, and return a future for the one it returns."""
        self.check_usable()
        outer: Future[T] = Future()
        self._futures.add(outer)
        outer.add_done_callback(self._futures.discard)
        self._on_loop(partial(self._start_future, start, outer))
        return outer

    def _start_future(self, start: Callable[[], asyncio.Future[T]], outer: Future[T]) -> None:
        try:
            inner = start()
        except Exception as error:  # noqa: BLE001  # the future carries it
            if outer.set_running_or_notify_cancel():
                outer.set_exception(error)
            return

        def finish(_: object) -> None:
            if inner.cancelled():
                outer.cancel()
            elif outer.set_running_or_notify_cancel():
                error = inner.exception()
                if error is None:
                    outer.set_result(inner.result())
                else:
                    outer.set_exception(error)

        def cancel(_: object) -> None:
            if outer.cancelled() and not inner.done():
                self._on_loop(inner.cancel)

        inner.add_done_callback(finish)
        outer.add_done_callback(cancel)

    def _on_loop(self, action: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(action)
        except RuntimeError as error:
            raise StateError(f"the {self._owner} is stopped", hint="make a new one") from error


async def _end_work(executor: _ExitSafeExecutor) -> None:
    """End all tasks and work of a loop, as `asyncio.Runner` does, but without a new thread."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    for failure in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(failure, Exception):
            log.error("task failed when its loop ended", exc_info=failure)
    await asyncio.get_running_loop().shutdown_asyncgens()
    await executor.end()


def made_before_fork(owner: str = "client") -> StateError:
    """Make the error for a client that is used in a child of the process that made it."""
    return StateError(
        f"this {owner} was made before the process forked, and works in the parent only",
        hint=f"make the {owner} in the child process, after the fork",
    )


class _Process:
    """The state of this process."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        # The one that all clients share.
        self.loop: BackgroundLoop | None = None
        self.running: set[BackgroundLoop] = set()
        # Loops of the parent process. Invariant: they are never garbage collected, since that would
        # remove their descriptors from the kernel's poll set, which the parent shares.
        self.parent_loops: set[BackgroundLoop] = set()

    def after_fork_in_child(self) -> None:
        """Set the parent's loops aside: their threads and any holder of the lock are not here."""
        self.guard = threading.Lock()
        self.loop = None
        for loop in self.running:
            loop.belongs_to_parent = True
        self.parent_loops |= self.running
        self.running = set()

    def end(self) -> None:
        """End the loops that still run at exit: clients before the servers they talk to."""
        with self.guard:
            shared, self.loop = self.loop, None
        for loop in sorted(self.running, key=lambda running: running is not shared):
            loop.stop_all()
            loop.end()


_process: Final = _Process()
os.register_at_fork(after_in_child=_process.after_fork_in_child)
atexit.register(_process.end)


def acquire() -> BackgroundLoop:
    """Return the running loop of this process; each call needs a `release`."""
    with _process.guard:
        loop = _process.loop
        if loop is None:
            loop = BackgroundLoop()
            loop.start()
            _process.loop = loop
        loop.users += 1
        return loop


def release(loop: BackgroundLoop) -> None:
    """Release the loop; the last user ends it."""
    if loop.belongs_to_parent:
        return
    with _process.guard:
        loop.users -= 1
        if loop.users or _process.loop is not loop:
            return
        _process.loop = None
    loop.end()
