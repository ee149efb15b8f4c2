"""A clock for work that keeps the loop busy."""

from __future__ import annotations

from orbitmq.clock import ManualClock


class BusyClock(ManualClock):
    """A clock that also moves while the loop is busy."""

    def pass_ms(self, ms: float) -> None:
        """Let time pass in the middle of a callback."""
        self._now_ms += ms
