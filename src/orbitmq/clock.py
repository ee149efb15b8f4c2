"""Time: the real clock, one moved by hand, and one that runs and can be advanced.

Everything that waits or reads the time takes a `Clock`, so that a test can skip two minutes
instantly. This is the only module that may read the system's clocks or sleep.

Threads: a clock's timers belong to the event loop that runs when they are set. Any thread may move
a `ForwardClock`, and the loops of several may share one.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import threading
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class TimerHandle(Protocol):
    """A timer that has been set and can be cancelled."""

    def cancel(self) -> None:
        """Cancel the timer; it never fires afterwards."""


class Clock(Protocol):
    """How the rest of the code reads the time and waits."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""

    def monotonic_ms(self) -> float:
        """Milliseconds since some fixed moment; never goes back."""

    def call_later(self, delay_ms: float, action: Callable[[], None]) -> TimerHandle:
        """Call `action` on the running loop once `delay_ms` have passed."""

    async def sleep_ms(self, delay_ms: float) -> None:
        """Return once `delay_ms` have passed."""


def processor_ms() -> float:
    """Processor time of this thread in milliseconds; stands still while other processes run."""
    return time.thread_time() * 1000


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


@dataclass(slots=True, eq=False)
class _ManualTimer:
    """A timer of a `ManualClock`."""

    action: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        """Cancel the timer; it never fires afterwards."""
        self.cancelled = True


class ManualClock:
    """A clock that stands still until it is advanced."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = float(now_ms)
        self._adjusted_ms = 0
        self._sequence = itertools.count()
        self._timers: list[tuple[float, int, _ManualTimer]] = []

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return int(self._now_ms) + self._adjusted_ms

    def monotonic_ms(self) -> float:
        """Milliseconds since some fixed moment; never goes back."""
        return self._now_ms

    def call_later(self, delay_ms: float, action: Callable[[], None]) -> TimerHandle:
        """Call `action` once the clock has been advanced by `delay_ms`."""
        timer = _ManualTimer(action)
        heapq.heappush(self._timers, (self._now_ms + delay_ms, next(self._sequence), timer))
        return timer

    async def sleep_ms(self, delay_ms: float) -> None:
        """Return once the clock has been advanced by `delay_ms`; at once if that is 0 or less."""
        if delay_ms <= 0:
            await settle(1)
            return
        await _sleep_on(self, delay_ms)

    def adjust(self, change_ms: int) -> None:
        """Set the time of day forward or back; no time passes."""
        self._adjusted_ms += change_ms

    async def advance(self, delay_ms: float) -> None:
        """Let time pass: fire each timer when it is due, and run what it woke before the next."""
        # Tasks started just now set their timers before time passes.
        await settle()
        end_ms = self._now_ms + delay_ms
        while self._timers and self._timers[0][0] <= end_ms:
            due_ms, _, timer = heapq.heappop(self._timers)
            self._now_ms = max(self._now_ms, due_ms)
            if not timer.cancelled:
                timer.action()
                await settle()
        self._now_ms = max(self._now_ms, end_ms)
        await settle()


# A step of a `ForwardClock`, and the real time that peers get in it to answer each other. The step
# is below the shortest timeout of a call, so that moving the clock alone makes no call fail.
_STEP_MS: Final = 500.0
_STEP_PAUSE_SECONDS: Final = 0.002
# The longest that a step waits for a busy event loop.
_TURN_SECONDS_MAX: Final = 1.0


class _ForwardTimer:
    """A timer of a `ForwardClock`."""

    __slots__ = ("_action", "_clock", "_handle", "due_ms", "loop")

    def __init__(self, clock: ForwardClock, due_ms: float, action: Callable[[], None]) -> None:
        self._clock = clock
        self._action = action
        self.loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self.due_ms = due_ms

    def schedule(self) -> None:
        """Have the loop fire it when it is due by the clock's current time."""
        if self._handle is not None:
            self._handle.cancel()
        delay_ms = max(0.0, self.due_ms - self._clock.monotonic_ms())
        self._handle = self.loop.call_later(delay_ms / 1000, self.fire)

    def fire(self) -> None:
        """Run its action, once."""
        if self._clock.forget(self):
            self.cancel()
            self._action()

    def cancel(self) -> None:
        """Cancel the timer; it never fires afterwards."""
        self._clock.forget(self)
        if self._handle is not None:
            self._handle.cancel()

    def run_on_loop(self, action: Callable[[], None]) -> None:
        """Run `action` on the timer's loop, unless that is closed."""
        try:
            self.loop.call_soon_threadsafe(action)
        except RuntimeError:
            self._clock.forget(self)


class ForwardClock:
    """A clock that runs like the machine's, and can be moved forward."""

    def __init__(self) -> None:
        self._ahead_ms = 0.0
        self._timers: set[_ForwardTimer] = set()

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000 + int(self._ahead_ms)

    def monotonic_ms(self) -> float:
        """Milliseconds since some fixed moment; never goes back."""
        return time.monotonic() * 1000 + self._ahead_ms

    def call_later(self, delay_ms: float, action: Callable[[], None]) -> TimerHandle:
        """Call `action` on the running loop once `delay_ms` have passed."""
        timer = _ForwardTimer(self, self.monotonic_ms() + delay_ms, action)
        self._timers.add(timer)
        timer.schedule()
        return timer

    async def sleep_ms(self, delay_ms: float) -> None:
        """Return once `delay_ms` have passed."""
        await _sleep_on(self, delay_ms)

    def forget(self, timer: _ForwardTimer) -> bool:
        """Drop a timer; returns whether it was still set."""
        if timer not in self._timers:
            return False
        self._timers.discard(timer)
        return True

    def advance(self, delay_ms: float) -> None:
        """Let time pass quickly, in small steps; every loop gets a turn in each.

        An hour takes about 15 seconds. Blocks: called on an event loop, it stalls that loop.
        """
        left_ms = delay_ms
        while left_ms > 0:
            step_ms = min(left_ms, _STEP_MS)
            left_ms -= step_ms
            self._ahead_ms += step_ms
            for timer in tuple(self._timers):
                if timer.due_ms <= self.monotonic_ms():
                    timer.run_on_loop(timer.fire)
            time.sleep(_STEP_PAUSE_SECONDS)
            # On a busy machine, calls could time out if there were only the pause.
            _give_turns({timer.loop for timer in tuple(self._timers)})
        for timer in tuple(self._timers):
            timer.run_on_loop(timer.schedule)


def _give_turns(loops: set[asyncio.AbstractEventLoop]) -> None:
    """Return once each loop, except this thread's, has had a turn."""
    with contextlib.suppress(RuntimeError):
        loops.discard(asyncio.get_running_loop())
    turns = []
    for loop in loops:
        turn = threading.Event()
        with contextlib.suppress(RuntimeError):  # it is closed
            loop.call_soon_threadsafe(turn.set)
            turns.append(turn)
    for turn in turns:
        turn.wait(_TURN_SECONDS_MAX)


async def _sleep_on(clock: Clock, delay_ms: float) -> None:
    """Return once a timer of `clock` has fired."""
    woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    timer = clock.call_later(delay_ms, wake)
    try:
        await woken
    finally:
        timer.cancel()


@asynccontextmanager
async def time_limit(clock: Clock, timeout_ms: float) -> AsyncIterator[None]:
    """Raise TimeoutError from the block once `timeout_ms` have passed on the clock.

    Like `asyncio.timeout`, but for a clock that may be moved by hand. With 0 or less, the block
    ends as soon as it waits.
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
