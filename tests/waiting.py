"""Waits for what gives no event: a state of other tasks, threads or processes, with a deadline."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from orbitmq.clock import settle

POLL_INTERVAL_S = 0.05
WAIT_SECONDS = 60

Result = TypeVar("Result")


async def until(condition: Callable[[], object]) -> None:
    """Return once a condition holds; the loop turns meanwhile."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await settle()


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
