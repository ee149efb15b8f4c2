"""Waits of the interop suite: for a state of another process, with a deadline."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_INTERVAL_S = 0.05


def wait_until(reached: Callable[[], bool], *, timeout_s: float, what: str) -> None:
    """Return once `reached` says so; another process gives no event, so it is asked again and again."""
    deadline_s = time.monotonic() + timeout_s
    pause = threading.Event()
    while not reached():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not within {timeout_s:.0f} s: {what}")
        pause.wait(POLL_INTERVAL_S)
