"""Calls plain listeners in threads: few if they are quick, many if they wait.

Work goes into one backlog. A worker takes from it until it is empty, so that a thousand quick
messages cost one thread switch, not a thousand. More workers start only when all of them have been
in one call for a while: then the listener waits for something, and more workers help.

    loop                                  threads
    submit -> backlog, start a worker ->  take, call, put into `finished`; take, call, ...
    collect <- call_soon_threadsafe   <-  ... when the backlog is empty, or after a while

Threads: both sides use the deques `_backlog` and `_finished` without a lock (each operation is
atomic); a `Worker` is written by its thread and read by the loop; all else belongs to the loop.
Threads are daemons: a listener that hangs does not keep the process alive.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from orbitmq.client.aio.daemon_threads import DaemonThreads
from orbitmq.client.aio.push.listeners import (
    Finished,
    ListenerCall,
    ListenerPool,
    ListenerRun,
    OnFinished,
    Worker,
)
from orbitmq.client.core.consuming.consume_results import SUCCESS, Success

if TYPE_CHECKING:
    from concurrent.futures import Executor

log = logging.getLogger(__name__)

# A worker that is in one call for longer counts as waiting.
QUICK_MS: Final = 1.0
# Interval at which the loop checks the workers; it doubles while nothing changes.
_CHECK_MS: Final = 1.0
_CHECK_MS_MAX: Final = 64.0
_JOIN_SECONDS: Final = 0.2


class ListenerThreads(ListenerPool):
    """Calls a plain listener in up to `concurrency` threads."""

    def __init__(
        self,
        call: ListenerCall,
        *,
        concurrency: int,
        on_finished: OnFinished,
        name: str,
        executor: Executor | None = None,
    ) -> None:
        super().__init__(call, concurrency=concurrency, on_finished=on_finished)
        self._own_threads = DaemonThreads(name)
        self._executor = executor
        self._finished: deque[Finished | Worker] = deque()
        self._check_timer: asyncio.TimerHandle | None = None
        self._check_ms = _CHECK_MS
        self._idle = asyncio.Event()
        self._idle.set()

    def submit(self, runs: Iterable[ListenerRun]) -> None:
        """Queue runs for the workers."""
        self._check_ms = _CHECK_MS
        super().submit(runs)

    async def stop(self, grace_ms: float) -> Sequence[Worker]:
        """Start no more calls, and wait for the running ones; returns workers still in a call."""
        self._stopping = True
        self._backlog.clear()
        try:
            async with asyncio.timeout(grace_ms / 1000):
                await self._idle.wait()
        except TimeoutError:
            pass
        self._collect()
        if self._check_timer is not None:
            self._check_timer.cancel()
            self._check_timer = None
        # Threads that are stuck in a listener end when it returns.
        self._own_threads.end()
        if not self._workers:
            # They are idle and end at once, so joining them hardly blocks the loop.
            self._own_threads.join(_JOIN_SECONDS)
        # A worker that still waits for a thread of its executor is in no call.
        return tuple(worker for worker in self._workers if worker.run is not None)

    # --- on the loop ----------------------------------------------------------------------------

    def _wake(self) -> None:
        """Start workers if all present ones are busy, and check again soon."""
        if self._backlog and not self._stopping:
            late_ms = self._call.now_ms() - QUICK_MS
            awake = len(self._workers)
            if all(
                worker.run is not None and worker.started_ms < late_ms for worker in self._workers
            ):
                # Double them each time: few if one is enough, all of them within a moment.
                more = min(max(awake, 1), self._concurrency - awake, len(self._backlog))
                for _ in range(more):
                    self._start_worker()
        if self._workers:
            self._schedule_check()

    def _start_worker(self) -> None:
        worker = Worker()
        self._workers.append(worker)
        self._idle.clear()
        if self._executor is not None:
            try:
                self._executor.submit(self._drain, worker)
            except RuntimeError as error:
                log.warning("executor refuses work, using own threads reason=%s", error)
                self._executor = None
            else:
                return
        if not self._own_threads.submit(
            partial(self._drain, worker), threads_needed=len(self._workers)
        ):
            # The interpreter shuts down: unconsumed messages are delivered again elsewhere.
            log.warning("cannot start a thread for the listener, its messages wait")
            self._workers.remove(worker)
            self._idle.set()

    def _schedule_check(self) -> None:
        if self._check_timer is not None:
            if self._check_ms > _CHECK_MS:
                return
            self._check_timer.cancel()
        self._check_timer = self._loop.call_later(self._check_ms / 1000, self._check_workers)

    def _check_workers(self) -> None:
        self._check_timer = None
        if self._finished:
            self._check_ms = _CHECK_MS
            self._collect()
        else:
            self._check_ms = min(self._check_ms * 2, _CHECK_MS_MAX)
            self._wake()

    def _collect(self) -> None:
        """Collect what the workers have finished, and report it."""
        self._collect_scheduled = False
        finished: list[Finished] = []
        for _ in range(len(self._finished)):
            item = self._finished.popleft()
            if isinstance(item, Worker):
                self._workers.remove(item)
            else:
                finished.append(item)
        self._report(finished)
        self._wake()
        if not self._workers:
            self._idle.set()

    # --- in a thread ----------------------------------------------------------------------------

    def _drain(self, worker: Worker) -> None:
        backlog = self._backlog
        worker.thread_id = threading.get_ident()
        worker.started_ms = collected_ms = self._call.now_ms()
        # If the concurrency was lowered, surplus workers end although work is left.
        while len(self._workers) <= self._concurrency:
            try:
                run = backlog.popleft()
            except IndexError:
                break
            self._execute(run, worker)
            if worker.started_ms - collected_ms > QUICK_MS:
                collected_ms = worker.started_ms
                self._schedule_collect()
        self._finished.append(worker)
        self._schedule_collect()

    def _execute(self, run: ListenerRun, worker: Worker) -> None:
        for messages in run.batches:
            if (
                self._stopping
                or run.window.dropped
                or not (run.may_start is None or run.may_start())
            ):
                break
            worker.messages = messages
            worker.run = run
            finished = self._call(run, messages, worker)
            worker.run = None
            self._finished.append(finished)
            if not isinstance(finished.result, Success):
                break
        if run.reports_end:
            self._finished.append(Finished(run, [], SUCCESS, 0.0))

    def _schedule_collect(self) -> None:
        if self._collect_scheduled:
            return
        self._collect_scheduled = True
        try:
            self._loop.call_soon_threadsafe(self._collect)
        except RuntimeError:
            log.warning("event loop was closed before its consumer was stopped")
