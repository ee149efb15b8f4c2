"""Rounds: slices of the loop's time for pulls, one connection after the other.

A new message may wake thousands of held pulls, and filters may take milliseconds for each message.
Such work waits here. A slice takes one job of each connection in turn, until its time is over; then
the loop serves everything else before the next slice. So a connection with many jobs, or slow ones,
delays others by no more than one job of its own.

Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from orbitmq.clock import Clock

# How long a slice takes; a job that has begun is finished.
SLICE_MS: Final = 3.0

Job = Callable[[], None]


class Rounds:
    """Jobs of connections that wait for their turn."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._jobs: dict[object, deque[Job]] = {}
        self._slice_is_due = False
        # How much of this turn of the loop is spent on jobs, and on work that did not wait.
        self._spent_ms = 0.0
        self._reset_is_due = False

    @property
    def has_time(self) -> bool:
        """Whether work may begin now instead of waiting for its turn."""
        return not self._jobs and self._spent_ms < SLICE_MS

    def spend(self, took_ms: float) -> None:
        """Count work that did not wait."""
        self._spent_ms += took_ms
        if not self._reset_is_due:
            self._reset_is_due = True
            self._loop.call_soon(self._reset)

    def add(self, owner: object, job: Job) -> None:
        """Have a job of a connection done in its turn."""
        self._jobs.setdefault(owner, deque()).append(job)
        if not self._slice_is_due:
            self._slice_is_due = True
            self._loop.call_soon(self._run_slice)

    def _run_slice(self) -> None:
        self._slice_is_due = False
        ends_ms = self._clock.monotonic_ms() + SLICE_MS
        while self._jobs:
            owner, jobs = next(iter(self._jobs.items()))
            job = jobs.popleft()
            # To the end of the row, unless it was the last one.
            del self._jobs[owner]
            if jobs:
                self._jobs[owner] = jobs
            job()
            if self._clock.monotonic_ms() >= ends_ms:
                break
        if self._jobs and not self._slice_is_due:
            self._slice_is_due = True
            self._loop.call_soon(self._run_slice)

    def _reset(self) -> None:
        self._reset_is_due = False
        self._spent_ms = 0.0
