"""Calls async listeners on the loop: in one task, or in more when they wait.

A task works on the backlog until it is empty. Another task starts only if work is left when the
first one yields, that is, when the listener waits for something.

Threads: one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from orbitmq.client.aio.push.listeners import (
    Finished,
    ListenerCall,
    ListenerPool,
    OnFinished,
    Worker,
)
from orbitmq.client.core.consuming.consume_results import SUCCESS, Success
from orbitmq.clock import settle

# A task that never waits yields to the others of the loop after this time.
_TURN_MS: Final = 5.0
# How long a listener may run after its cancellation.
_CANCEL_SECONDS: Final = 1.0


class ListenerTasks(ListenerPool):
    """Calls an async listener in up to `concurrency` tasks."""

    def __init__(
        self,
        call: ListenerCall,
        *,
        concurrency: int,
        on_finished: OnFinished,
        name: str,
    ) -> None:
        super().__init__(call, concurrency=concurrency, on_finished=on_finished)
        self._name = name
        self._finished: list[Finished] = []
        self._start_scheduled = False

    async def stop(self, grace_ms: float) -> Sequence[Worker]:
        """Start no more calls, wait for the running ones, then cancel them.

        Returns the workers that were still in a call and had to be cancelled.
        """
        self._stopping = True
        self._backlog.clear()
        running = {worker.task for worker in self._workers if worker.task is not None}
        if running:
            await asyncio.wait(running, timeout=grace_ms / 1000)
        left = tuple(worker for worker in self._workers if worker.run is not None)
        unfinished = {worker.task for worker in self._workers if worker.task is not None}
        for task in unfinished:
            task.cancel()
        if unfinished:
            await asyncio.wait(unfinished, timeout=_CANCEL_SECONDS)
        self._collect()
        return left

    def _wake(self) -> None:
        if self._backlog and not self._start_scheduled:
            self._start_scheduled = True
            self._loop.call_soon(self._start_worker)

    def _start_worker(self) -> None:
        """Start one task; the loop calls this again after its first step."""
        if not self._backlog or self._stopping or len(self._workers) >= self._concurrency:
            self._start_scheduled = False
            return
        worker = Worker()
        worker.task = self._loop.create_task(self._drain(worker), name=f"{self._name} listener")
        self._workers.append(worker)
        self._loop.call_soon(self._start_worker)

    async def _drain(self, worker: Worker) -> None:
        backlog = self._backlog
        worker.started_ms = turn_ms = self._call.now_ms()
        try:
            while backlog and len(self._workers) <= self._concurrency:
                if worker.started_ms - turn_ms > _TURN_MS:
                    await settle(1)
                    worker.started_ms = turn_ms = self._call.now_ms()
                    continue
                run = backlog.popleft()
                for messages in run.batches:
                    if self._stopping or run.window.dropped:
                        break
                    if run.may_start is not None and not run.may_start():
                        break
                    worker.run, worker.messages = run, messages
                    finished = await self._call.awaited(run, messages, worker)
                    worker.run = None
                    self._add_finished(finished)
                    if not isinstance(finished.result, Success):
                        break
                if run.reports_end:
                    self._add_finished(Finished(run, [], SUCCESS, 0.0))
        finally:
            worker.run = None
            self._workers.remove(worker)
            self._wake()

    def _add_finished(self, finished: Finished) -> None:
        self._finished.append(finished)
        if not self._collect_scheduled:
            self._collect_scheduled = True
            self._loop.call_soon(self._collect)

    def _collect(self) -> None:
        self._collect_scheduled = False
        finished, self._finished = self._finished, []
        self._report(finished)
