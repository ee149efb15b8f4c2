"""A limit on warnings that peers can cause: a few a second, then a count.

Threads: one event loop.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from orbitmq.clock import Clock, TimerHandle

log = logging.getLogger(__name__)

WARNINGS_PER_SECOND_MAX: Final = 10
_SECOND_MS: Final = 1000.0


class WarningLimit:
    """Logs the first warnings of a second, and at its end how many were left out."""

    def __init__(self, clock: Clock, what: str) -> None:
        self._clock = clock
        # Describes the warnings that were left out.
        self._what = what
        self._count = 0
        self._second: TimerHandle | None = None

    def warn(self, message: str, *values: object) -> None:
        """Log a warning, or only count it; the first one starts the second."""
        if self._second is None:
            self._second = self._clock.call_later(_SECOND_MS, self.end_second)
        self._count += 1
        if self._count <= WARNINGS_PER_SECOND_MAX:
            log.warning(message, *values)

    def end_second(self) -> None:
        """Log how many warnings were left out; the next warning starts a new second."""
        if self._second is not None:
            self._second.cancel()
            self._second = None
        left_out = self._count - WARNINGS_PER_SECOND_MAX
        self._count = 0
        if left_out > 0:
            log.warning("further %s count=%d", self._what, left_out)
