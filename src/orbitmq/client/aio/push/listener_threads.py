"""Plain listeners, called in threads: few if quick, many when they wait.

Work goes into one backlog. A worker takes from it until nothing is left, so that a thousand quick
messages cost one hand-over, not a thousand. Another worker is woken only when all that are awake
have been in one call for a while: then the listener waits for something, and more of them help.

    loop                                  threads
    submit -> backlog, wake a worker  ->  take, call, put into `finished`; take, call, ...
    collect <- call_soon_threadsafe   <-  ... when the backlog is empty, or a while has passed

Threads: `_backlog` and `_finished` are deques that both sides use, without a lock (each operation
is atomic); a `Worker` is written by its thread and read by the loop; all else belongs to the loop.
Threads are daemons: a listener that hangs does not keep the process from ending.
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

# A worker that is in one call for longer takes nothing more for now.
QUICK_MS: Final = 1.0
# The loop looks after the workers so often, and less and less often while nothing changes.
_CHECK_MS: Final = 1.0
_CHECK_MS_MAX: Final = 64.0
_JOIN_SECONDS: Final = 0.2


class ListenerThreads(ListenerPool):
    """Calls a plain listener in up to `concurrency` threads at a time."""

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
        """Have runs done, as soon as a worker is free."""
        self._check_ms = _CHECK_MS
        super().submit(runs)

    async def stop(self, grace_ms: float) -> Sequence[Worker]:
        """Begin no more calls, and wait for those under way; returns the workers still in one."""
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
            # They are about to end, so that the loop waits for no more than that.
            self._own_threads.join(_JOIN_SECONDS)
        # A worker that its executor has found no thread for is in no call.
        return tuple(worker for worker in self._workers if worker.run is not None)

    # --- on the loop ----------------------------------------------------------------------------

    def _wake(self) -> None:
        """Start workers if those that are awake cannot take what waits, and look again soon."""
        if self._backlog and not self._stopping:
            late_ms = self._call.now_ms() - QUICK_MS
            awake = len(self._workers)
            if all(
                worker.run is not None and worker.started_ms < late_ms for worker in self._workers
            ):
                # Twice as many each time: few when one is enough, all of them within a moment.
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
                log.warning("the executor takes no more work, own threads do it reason=%s", error)
                self._executor = None
            else:
                return
        if not self._own_threads.submit(
            partial(self._drain, worker), threads_needed=len(self._workers)
        ):
            # The interpreter shuts down: messages stay unconsumed, and come again elsewhere.
            log.warning("no thread can be started for the listener, its messages wait")
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
        """Take what the workers have finished, and tell of it."""
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
        # With a lower concurrency than before, a worker ends although work is left.
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
                or not (run.may_begin is None or run.may_begin())
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
            log.warning("the loop was closed before its consumer was stopped")
