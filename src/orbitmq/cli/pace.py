"""How fast a command sends many messages: at most so many a second."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from orbitmq.clock import SystemClock
from orbitmq.errors import SettingsError

Rate = Annotated[float, typer.Option(help="At most this many a second.")]
RATE: Final = 100.0
_RATE_MIN: Final = 0.1


def check_rate(rate: float) -> None:
    """Raise if a rate is too low, or no number."""
    # Also refuses nan, which compares with nothing.
    if not rate >= _RATE_MIN:
        raise SettingsError(f"--rate cannot be {rate}", hint=f"give {_RATE_MIN} or more")


class Pace:
    """Keeps sends apart."""

    def __init__(self, rate: float) -> None:
        self._clock = SystemClock()
        self._pause_ms = 1000 / rate
        self._due_ms = self._clock.monotonic_ms()

    async def keep(self) -> None:
        """Return once the next one may be sent."""
        await self._clock.sleep_ms(max(0.0, self._due_ms - self._clock.monotonic_ms()))
        # From now: a send that took long is not made up for by a burst.
        self._due_ms = self._clock.monotonic_ms() + self._pause_ms
