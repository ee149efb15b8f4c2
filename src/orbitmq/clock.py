"""Time: the real clock, and one that tests move by hand.

Everything that waits or reads the time takes a `Clock`, so that a test can let two minutes pass
in no time. This is the only module that may read the system's clocks or sleep.

Threads: a clock's timers belong to the event loop that runs when they are set.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class TimerHandle(Protocol):
    """A timer that has been set and can be taken back."""

    def cancel(self) -> None:
        """Take the timer back; it never fires afterwards."""


class Clock(Protocol):
    """What the rest of the code may know of time."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""

    def monotonic_ms(self) -> float:
        """Milliseconds since some fixed moment; never goes back."""

    def call_later(self, delay_ms: float, action: Callable[[], None]) -> TimerHandle:
        """Call `action` on the running loop once `delay_ms` have passed."""

    async def sleep_ms(self, delay_ms: float) -> None:
        """Return once `delay_ms` have passed."""


class SystemClock:
    """The machine's own time."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """Milliseconds since some fixed moment; never goes back."""
        return time.monotonic() * 1000

    def call_later(self, delay_ms: float, action: Callable[[], None]) -> TimerHandle:
        """Call `action` on the running loop once `delay_ms` have passed."""
        return asyncio.get_running_loop().call_later(delay_ms / 1000, action)

    async def sleep_ms(self, delay_ms: float) -> None:
        """Return once `delay_ms` have passed."""
        await asyncio.sleep(delay_ms / 1000)


class _ManualTimer:
    """A timer of a `ManualClock`."""

    __slots__ = ("action", "cancelled")

    def __init__(self, action: Callable[[], None]) -> None:
        self.action = action
        self.cancelled = False

    def cancel(self) -> None:
        """Take the timer back; it never fires afterwards."""
        self.cancelled = True


class ManualClock:
    """A clock that stands still until it is advanced."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = float(now_ms)
        self._set_ms = 0
        self._sequence = itertools.count()
        self._timers: list[tuple[float, int, _ManualTimer]] = []

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return int(self._now_ms) + self._set_ms

    def monotonic_ms(self) -> float:
        """Milliseconds since some fixed moment; never goes back."""
        return self._now_ms

    def call_later(self, delay_ms: float, action: Callable[[], None]) -> TimerHandle:
        """Call `action` once the clock has been advanced by `delay_ms`."""
        timer = _ManualTimer(action)
        heapq.heappush(self._timers, (self._now_ms + delay_ms, next(self._sequence), timer))
        return timer

    async def sleep_ms(self, delay_ms: float) -> None:
        """Return once the clock has been advanced by `delay_ms`; at once when that is nothing."""
        if delay_ms <= 0:
            await settle(1)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        timer = self.call_later(delay_ms, wake)
        try:
            await woken
        finally:
            timer.cancel()

    def set_by(self, change_ms: int) -> None:
        """Set the time of day forward, or back; no time passes."""
        self._set_ms += change_ms

    async def advance(self, delay_ms: float) -> None:
        """Let time pass: fire each timer at its moment, and let what it woke run before the next."""
        # What was started just now sets its timers before time passes.
        await settle()
        end_ms = self._now_ms + delay_ms
        while self._timers and self._timers[0][0] <= end_ms:
            due_ms, _, timer = heapq.heappop(self._timers)
            self._now_ms = max(self._now_ms, due_ms)
            if not timer.cancelled:
                timer.action()
                await settle()
        self._now_ms = end_ms
        await settle()


@asynccontextmanager
async def time_limit(clock: Clock, timeout_ms: float) -> AsyncIterator[None]:
    """Raise TimeoutError from the block once `timeout_ms` have passed on the clock.

    `asyncio.timeout` for a clock that may be moved by hand; nothing left means it ends at the
    first moment the block waits.
    """
    async with asyncio.timeout(0 if timeout_ms <= 0 else None) as limit:
        if timeout_ms <= 0:
            yield
            return
        loop = asyncio.get_running_loop()
        timer = clock.call_later(timeout_ms, lambda: limit.reschedule(loop.time()))
        try:
            yield
        finally:
            timer.cancel()


async def settle(turns: int = 20) -> None:
    """Give other tasks of the loop a few turns, without waiting for time to pass."""
    for _ in range(turns):
        await asyncio.sleep(0)
