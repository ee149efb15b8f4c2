"""Daemon threads that share one queue of jobs, started as needed.

Unlike the threads of an executor they outlive the main thread, so clients keep working for the
other threads of a process. While the interpreter shuts down it refuses to start threads (3.12.0
and 3.12.1 as soon as the main thread ends, later versions when `atexit` functions run): jobs then
wait for a thread that already runs.

Threads: callers must not call `submit` and `end` concurrently.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue


class DaemonThreads:
    """The threads of one owner: one more starts when all are busy; all end together."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def submit(self, job: Callable[[], object], *, threads_needed: int) -> bool:
        """Run a job in a thread; starts one more if fewer than `threads_needed` run.

        Returns False, and drops the job, if no thread runs and none can be started.
        """
        if threads_needed > len(self._threads):
            self._start_thread()
        if not self._threads:
            return False
        self._jobs.put(job)
        return True

    def end(self) -> None:
        """End the threads once the jobs submitted so far are done."""
        for _ in self._threads:
            self._jobs.put(None)

    def join(self, seconds: float | None = None) -> bool:
        """Wait for each thread, this long at most; returns whether all have ended."""
        for thread in self._threads:
            thread.join(seconds)
        return not any(thread.is_alive() for thread in self._threads)

    def _start_thread(self) -> None:
        thread = threading.Thread(
            target=self._serve, name=f"{self._name}-{len(self._threads) + 1}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            # The interpreter is shutting down, or the system cannot start another thread.
            return
        self._threads.append(thread)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
