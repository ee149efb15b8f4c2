"""How figures of a query changed over a run, in a bounded number of steps.

A step is a second at first; once there are too many, two become one. So a run of weeks takes as much
memory as one of minutes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

STEPS_MAX: Final = 480
_FIRST_STEP_MS: Final = 1000


@dataclass(slots=True)
class Step:
    """What happened within one step."""

    at_ms: int
    batches: int = 0
    rows: int = 0
    rejected: int = 0
    # The longest batch.
    took_ms: int = 0
    # The last that was seen.
    lag: int | None = None
    behind_s: float | None = None

    def absorb(self, later: Step) -> None:
        """Add the step after this one."""
        self.batches += later.batches
        self.rows += later.rows
        self.rejected += later.rejected
        self.took_ms = max(self.took_ms, later.took_ms)
        self.lag = self.lag if later.lag is None else later.lag
        self.behind_s = self.behind_s if later.behind_s is None else later.behind_s


@dataclass(slots=True)
class Timeline:
    """The steps of a run in which something happened, oldest first."""

    began_ms: int
    step_ms: int = _FIRST_STEP_MS
    _steps: dict[int, Step] = field(default_factory=dict)

    @property
    def steps(self) -> list[Step]:
        """All steps, oldest first."""
        return [self._steps[number] for number in sorted(self._steps)]

    def step_at(self, at_ms: int) -> Step:
        """The step of a moment; one before the beginning, as clocks are set back, is the first."""
        while (at_ms - self.began_ms) // self.step_ms >= STEPS_MAX:
            self._widen()
        number = max(at_ms - self.began_ms, 0) // self.step_ms
        return self._steps.setdefault(number, Step(self.began_ms + number * self.step_ms))

    def _widen(self) -> None:
        narrow, self._steps = sorted(self._steps.items()), {}
        self.step_ms *= 2
        for number, step in narrow:
            wide = self._steps.setdefault(
                number // 2, Step(self.began_ms + number // 2 * self.step_ms)
            )
            wide.absorb(step)
