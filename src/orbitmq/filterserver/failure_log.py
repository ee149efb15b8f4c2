"""Logs failures of filter functions, each at most once a minute.

A function that fails on a message holds its queue up, and its consumers retry every second or
sooner, without end.

Threads: one event loop.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq.filterserver.worker import AT_MESSAGE

if TYPE_CHECKING:
    from orbitmq.clock import Clock
    from orbitmq.errors import FilterFunctionError

log = logging.getLogger(__name__)

# Causes may quote the message, so there can be any number of them.
FAILURES_MAX: Final = 1000
_REPEAT_MS: Final = 60_000


@dataclass(slots=True)
class _Logged:
    at_ms: float
    left_out: int = 0


class FailureLog:
    """Logs failures; the same one of a function, on whatever message, is counted for a minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By function and cause, the one logged longest ago first.
        self._logged: dict[str, _Logged] = {}

    def note(self, error: FilterFunctionError, group: str) -> None:
        """Log a failure in a pull of a group, or only count it."""
        cause, _, _ = str(error).partition(AT_MESSAGE)
        now_ms = self._clock.monotonic_ms()
        last = self._logged.get(cause)
        if last is not None and now_ms - last.at_ms < _REPEAT_MS:
            last.left_out += 1
            return
        self._logged.pop(cause, None)
        self._logged[cause] = _Logged(now_ms)
        if len(self._logged) > FAILURES_MAX:
            del self._logged[next(iter(self._logged))]
        left_out = 0 if last is None else last.left_out
        log.warning("filter function failed group=%s left_out=%d reason=%s", group, left_out, error)
