"""Growth of counters over the last minute, hour and day, from samples.

Only samples of counters are kept, not what happens between them, so counting costs one addition. All
counters are sampled at the same times, which are kept once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

_TEN_SECONDS_MS: Final = 10_000
_TEN_MINUTES_MS: Final = 600_000
_HOUR_MS: Final = 3_600_000
_NEARLY: Final = 0.99

# Values of a counter: messages and bytes.
Sample = tuple[int, int]
_ZERO: Final[Sample] = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How much a counter grew over a time span."""

    messages: int = 0
    bytes: int = 0
    span_ms: float = 0.0

    @property
    def messages_per_second(self) -> float:
        """Messages per second."""
        return self.messages * 1000 / self.span_ms if self.span_ms else 0.0

    @property
    def bytes_per_second(self) -> float:
        """Bytes per second."""
        return self.bytes * 1000 / self.span_ms if self.span_ms else 0.0


class Track:
    """The samples of one counter in one window; the last one was taken at the last time."""

    __slots__ = ("samples",)

    def __init__(self) -> None:
        self.samples: list[Sample] = []


class Window:
    """The sampling times of one window, and how many samples are kept."""

    def __init__(self, *, step_ms: float, samples_max: int) -> None:
        self.step_ms = step_ms
        self._samples_max = samples_max
        self._times_ms: deque[float] = deque(maxlen=samples_max)

    def is_due(self, now_ms: float) -> bool:
        """Whether it is time for the next sample."""
        # A timer may fire a little early; the sample must not wait for the next round then.
        return not self._times_ms or now_ms - self._times_ms[-1] >= self.step_ms * _NEARLY

    def begin_sample(self, now_ms: float) -> None:
        """Note the time of a sample; then call `take` for every track."""
        self._times_ms.append(now_ms)

    def take(self, track: Track, sample: Sample) -> None:
        """Add a counter's values to its track."""
        samples = track.samples
        # Samples of an idle counter share one object.
        samples.append(samples[-1] if samples and samples[-1] == sample else sample)
        if len(samples) > self._samples_max:
            del samples[0]

    def growth(self, track: Track) -> Growth:
        """How much a counter grew from the first kept sample to the last."""
        samples, times_ms = track.samples, self._times_ms
        if not samples:
            return Growth()
        if len(samples) < len(times_ms):
            # The counter was created after the sample before its first one, and started at zero.
            first, first_ms = _ZERO, times_ms[-len(samples) - 1]
        else:
            first, first_ms = samples[0], times_ms[0]
        return Growth(
            messages=samples[-1][0] - first[0],
            bytes=samples[-1][1] - first[1],
            span_ms=times_ms[-1] - first_ms,
        )


class Windows:
    """The three windows of RocketMQ's counters."""

    def __init__(self) -> None:
        self.minute = Window(step_ms=_TEN_SECONDS_MS, samples_max=7)
        self.hour = Window(step_ms=_TEN_MINUTES_MS, samples_max=7)
        self.day = Window(step_ms=_HOUR_MS, samples_max=25)

    @property
    def all(self) -> tuple[Window, Window, Window]:
        """Shortest first, in the order of a counter's tracks."""
        return self.minute, self.hour, self.day


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterGrowth:
    """How much a counter grew in the last minute, hour and day."""

    minute: Growth
    hour: Growth
    day: Growth


class Tracks:
    """The samples of one counter in all three windows."""

    __slots__ = ("by_window",)

    def __init__(self) -> None:
        self.by_window = (Track(), Track(), Track())

    def growth(self, windows: Windows) -> CounterGrowth:
        """Compare the first and the last sample of each window."""
        minute, hour, day = (
            window.growth(track) for window, track in zip(windows.all, self.by_window, strict=True)
        )
        return CounterGrowth(minute=minute, hour=hour, day=day)
