"""The event loop that all blocking clients of a process share, in its own thread.

It starts when the first client starts and ends when the last one stops; at exit, clients that
still run are stopped. Clusters inside a process have loops of their own of this kind.

Threads: any may call; the loop's own may not, since it would wait for itself.
Exit: the interpreter starts no threads while it shuts down, so nothing here needs one to end.
Fork: the thread does not live on in a child. A client that was started before the fork says so
when it is used there; one that is made in the child gets a loop of the child's own.
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

# How long an interrupt may be overlooked, at most.
_SIGNALS_SECONDS: Final = 0.5
# How long the loop of a new thread may take to run.
_START_SECONDS: Final = 2
# How long clients that nobody stopped may take to stop at exit.
EXIT_SECONDS: Final = 10


class _BlockingCall(Generic[T]):
    """Work on the loop that a thread waits for.

    Perf: half the processor time of `asyncio.run_coroutine_threadsafe` and the future it gives, 40
    instead of 84 us a call (timeit).
    """

    __slots__ = ("_loop", "_task", "_waiting", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> None:
        self._work = work
        self._loop = loop
        self._task: asyncio.Task[T] | None = None
        self._waiting = threading.Lock()
        self._waiting.acquire()

    def begin(self) -> None:
        """Start the work; on the loop."""
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self.end)

    def end(self, _: object = None) -> None:
        """Wake the thread that waits."""
        self._waiting.release()

    def give_up(self, on_loop: Callable[[Callable[[], object]], None]) -> None:
        """Cancel the work, whether it has begun or never will; in the thread that called."""
        try:
            on_loop(self._cancel)
        except StateError:
            self._work.close()

    def _cancel(self) -> None:
        # What was handed over has begun: it came first.
        if self._task is None:
            self._work.close()
        else:
            self._task.cancel()

    def abandon(self) -> None:
        """Wake the thread that waits for work which the loop, ended now, never began."""
        if self._task is None:
            self.end()

    def wait(self) -> None:
        """Wait for the end; in the thread that called."""
        # A signal that comes just before a thread sleeps does not wake it: Python would raise the
        # interrupt when something else does, maybe never.
        while not self._waiting.acquire(timeout=_SIGNALS_SECONDS):
            pass

    def result(self) -> T:
        """Give what came of the work, after `wait`."""
        task, self._task = self._task, None
        if task is None or task.cancelled():
            self._work.close()
            raise StateError("the call was cancelled, since what it was made on is being stopped")
        return task.result()


class _LastingExecutor(ThreadPoolExecutor):
    """The threads of the loop, which does work itself once the interpreter gives it no threads.

    That is so at exit, when clients that nobody stopped still have offsets to write.
    """

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="orbitmq-work")
        self._unfinished: set[Future[Any]] = set()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Have work done in a thread, or do it here."""
        done: Future[T] = Future()
        untaken = threading.Lock()

        def work() -> None:
            # Once: a pool that cannot start another thread keeps the work for those it has.
            if not untaken.acquire(blocking=False) or not done.set_running_or_notify_cancel():
                return
            try:
                done.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001  # it belongs to whoever asked
                done.set_exception(error)

        self._unfinished.add(done)
        done.add_done_callback(self._unfinished.discard)
        try:
            super().submit(work)
        except RuntimeError:
            work()
        return done

    async def end(self) -> None:
        """Wait for the work in flight, which may call the loop, and end the threads."""
        while self._unfinished:
            work = [asyncio.wrap_future(each) for each in [*self._unfinished]]
            await asyncio.gather(*work, return_exceptions=True)
        self.shutdown()


class BackgroundLoop:
    """One event loop, and the thread it runs in."""

    def __init__(self, name: str = "orbitmq-loop", *, owner: str = "client") -> None:
        """Prepare a loop in a thread of that name; `owner` is what errors call who needs it."""
        self.users = 0
        self._owner = owner
        # Set in a child: the thread was left behind in the parent.
        self.left_behind = False
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread_id: int | None = None
        self._loop: asyncio.AbstractEventLoop
        self._ending: asyncio.Event
        self._calls: set[_BlockingCall[Any]] = set()
        self._begun: set[Future[Any]] = set()
        # What stops the clients at exit, and what comes after that, in the thread that exits.
        self._stops: dict[Stop, Callable[[], None] | None] = {}

    # --- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread, and return once its loop takes calls."""
        try:
            self._thread.start()
            self._ready.result()
            _process.running.add(self)
        except BaseException:
            # Whoever is interrupted leaves no thread behind, if it has come so far as to start.
            with suppress(TimeoutError):
                if self._ready.exception(_START_SECONDS) is None:
                    self.end()
            raise

    def end(self) -> None:
        """End the loop with all that still runs on it, and wait until its thread is gone."""
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()
        _process.running.discard(self)

    def stop_at_exit(self, stop: Stop, *, afterwards: Callable[[], None] | None = None) -> None:
        """Have what runs here stopped when the process ends before somebody stops it."""
        self._stops[stop] = afterwards

    def is_stopped(self, stop: Stop) -> None:
        """Take that back."""
        self._stops.pop(stop, None)

    def stop_all(self) -> None:
        """Stop what nobody stopped."""
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
            executor = _LastingExecutor()
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
            # Whoever called at the last moment shall not wait forever.
            for call in [*self._calls]:
                call.abandon()
            for future in [*self._begun]:
                future.cancel()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ending = asyncio.Event()
        self._ready.set_result(None)
        await self._ending.wait()

    # --- calls ----------------------------------------------------------------------------------

    def check_usable(self) -> None:
        """Raise where the loop does not run: before its start, and in another process."""
        if self._thread_id is None:
            raise StateError(
                f"the {self._owner} is not started", hint="call start(), or use it in a with block"
            )
        if self.left_behind:
            raise made_before_fork(self._owner)

    def check_may_wait(self) -> None:
        """Raise in a thread that cannot wait for the loop."""
        self.check_usable()
        if threading.get_ident() == self._thread_id:
            raise StateError(
                f"a blocking call from the event loop of the {self._owner} would wait for itself",
                hint="use orbitmq.client.aio in coroutines and hooks, or a plain listener",
            )

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do work on the loop and wait for its end; whoever is interrupted cancels it."""
        try:
            self.check_may_wait()
        except StateError:
            work.close()
            raise
        call = _BlockingCall(work, self._loop)
        self._calls.add(call)
        try:
            self._on_loop(call.begin)
            call.wait()
        except BaseException:
            # An interrupt may come at any moment, also before the work was handed over.
            call.give_up(self._on_loop)
            raise
        finally:
            self._calls.discard(call)
        return call.result()

    def begin(self, start: Callable[[], asyncio.Future[T]]) -> Future[T]:
        """Have `start` called on the loop, and give a future of what it begins."""
        self.check_usable()
        outer: Future[T] = Future()
        self._begun.add(outer)
        outer.add_done_callback(self._begun.discard)
        self._on_loop(partial(self._begin, start, outer))
        return outer

    def _begin(self, start: Callable[[], asyncio.Future[T]], outer: Future[T]) -> None:
        try:
            inner = start()
        except Exception as error:  # noqa: BLE001  # it belongs to whoever waits
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


async def _end_work(executor: _LastingExecutor) -> None:
    """End all that a loop still has, as `asyncio.Runner` does, but without another thread."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    for failure in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(failure, Exception):
            log.error("task failed when its loop ended", exc_info=failure)
    await asyncio.get_running_loop().shutdown_asyncgens()
    await executor.end()


def made_before_fork(owner: str = "client") -> StateError:
    """What a client says that is used in a child of the process it was made in."""
    return StateError(
        f"this {owner} was made before the process forked, and works in the parent only",
        hint=f"make the {owner} in the child process, after the fork",
    )


class _Process:
    """What there is once per process."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        # That of the clients, which share one.
        self.loop: BackgroundLoop | None = None
        self.running: set[BackgroundLoop] = set()
        # Loops of the parent. Invariant: they are never collected, which would take their
        # descriptors out of the kernel's poll set, and that is the parent's too.
        self.left_behind: set[BackgroundLoop] = set()

    def begin_child(self) -> None:
        """Leave the loops behind; their threads, and whoever held the lock, are not here."""
        self.guard = threading.Lock()
        self.loop = None
        for loop in self.running:
            loop.left_behind = True
        self.left_behind |= self.running
        self.running = set()

    def end(self) -> None:
        """End at exit what nobody ended, clients before the servers they talk to."""
        with self.guard:
            shared, self.loop = self.loop, None
        for loop in sorted(self.running, key=lambda running: running is not shared):
            loop.stop_all()
            loop.end()


_process: Final = _Process()
os.register_at_fork(after_in_child=_process.begin_child)
atexit.register(_process.end)


def acquire() -> BackgroundLoop:
    """Give the loop of this process, running; `release` it in the end."""
    with _process.guard:
        loop = _process.loop
        if loop is None:
            loop = BackgroundLoop()
            loop.start()
            _process.loop = loop
        loop.users += 1
        return loop


def release(loop: BackgroundLoop) -> None:
    """Say that one client needs the loop no more; the last one ends it."""
    if loop.left_behind:
        return
    with _process.guard:
        loop.users -= 1
        if loop.users or _process.loop is not loop:
            return
        _process.loop = None
    loop.end()
