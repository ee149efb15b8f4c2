"""Daemon threads that share one queue of work, started as they are needed.

Unlike the threads of an executor they outlive the main thread, so clients keep working for the
other threads of a process. While the interpreter shuts down it refuses to start threads (3.12.0
and 3.12.1 as soon as the main thread ends, later versions when `atexit` functions run): work then
waits for a thread that is there already.

Threads: `submit` and `end` belong to one thread at a time; the callers see to that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue


class DaemonThreads:
    """Threads of one owner: another is started when all are busy, and all are ended at once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def submit(self, job: Callable[[], object], *, busy: int) -> bool:
        """Run a job in a thread; `busy` threads are needed for all that is in flight.

        Returns False, and drops the job, if there is no thread and none can be started.
        """
        if busy > len(self._threads):
            self._start_thread()
        if not self._threads:
            return False
        self._jobs.put(job)
        return True

    def end(self) -> None:
        """Let each thread end once the jobs submitted so far are done."""
        for _ in self._threads:
            self._jobs.put(None)

    def join(self, seconds: float | None = None) -> bool:
        """Wait for each thread, that long at most; returns whether all have ended."""
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
            # The interpreter shuts down, or the system has no thread left.
            return
        self._threads.append(thread)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
