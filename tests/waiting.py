"""Waits for what gives no event: a state of other tasks, threads or processes, with a deadline."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from orbitmq.clock import SystemClock, settle

POLL_INTERVAL_S = 0.05
# What is not there by then is waited for with pauses: they leave the processor to others.
_BUSY_MS = 50
_PAUSE_MS = 2
WAIT_SECONDS = 60

Result = TypeVar("Result")


async def until(condition: Callable[[], object]) -> None:
    """Return once a condition holds; the loop turns meanwhile."""
    clock = SystemClock()
    busy_until_ms = clock.monotonic_ms() + _BUSY_MS
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            if clock.monotonic_ms() < busy_until_ms:
                await settle()
            else:
                await clock.sleep_ms(_PAUSE_MS)


def wait_until(reached: Callable[[], bool], *, timeout_s: float, what: str) -> None:
    """Return once `reached` says so, asking it again and again.

    The last look comes after the time: what was reached while this process stood still counts.
    """
    deadline_s = time.monotonic() + timeout_s
    pause = threading.Event()
    while True:
        is_last = time.monotonic() > deadline_s
        if reached():
            return
        if is_last:
            raise TimeoutError(f"not within {timeout_s:.0f} s: {what}")
        pause.wait(POLL_INTERVAL_S)


async def until_reached(reached: Callable[[], bool], *, timeout_s: float, what: str) -> None:
    """Return once `reached`, which may block, says so; the loop turns meanwhile."""
    await beside(wait_until, reached, timeout_s=timeout_s, what=what)


async def beside(work: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
    """Do blocking work in a thread; the loop turns meanwhile."""
    return await asyncio.to_thread(work, *arguments, **named)
