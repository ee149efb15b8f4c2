"""Waits of the interop suite: for a state of another process, with a deadline."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_INTERVAL_S = 0.05
# Longer than a server takes from its start to its first answer, on a machine that is busy with others.
START_TIMEOUT_S = 180
REGISTER_TIMEOUT_S = 120
# Longer than official clients take to notice anything, and to act on it, on a loaded machine: their
# heartbeats and their looks for routes come every 30 s, and their rebalances every 20 s; a call
# whose connection was lost they give up after 30 s, and pull again 3 s later.
CLIENT_TIMEOUT_S = 120


def wait_until(reached: Callable[[], bool], *, timeout_s: float, what: str) -> None:
    """Return once `reached` says so; another process gives no event, so it is asked again and again.

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
