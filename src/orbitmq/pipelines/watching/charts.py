"""Line charts over time, as SVG that needs nothing else."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

COLORS: Final = 8
_WIDTH: Final = 480
_HEIGHT: Final = 220
_LEFT: Final = 56
_RIGHT: Final = 10
_TOP: Final = 10
_BOTTOM: Final = 26
_Y_TICKS: Final = 4
_X_TICKS_MAX: Final = 5
# Fewer points are marked one by one.
_MARKED_MAX: Final = 60
_SECOND_MS: Final = 1000
_DAY_MS: Final = 86_400_000
_MINUTE_MS: Final = 60_000
_TIME_STEPS_MS: Final = tuple(
    number * unit
    for unit, numbers in (
        (_SECOND_MS, (1, 2, 5, 10, 15, 30)),
        (_MINUTE_MS, (1, 2, 5, 10, 15, 30)),
        (3_600_000, (1, 2, 3, 6, 12)),
        (_DAY_MS, (1, 2, 7, 14, 28, 91, 364)),
    )
    for number in numbers
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a chart; points are moments in milliseconds, with their value."""

    name: str
    number: int
    points: Sequence[tuple[int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """What a chart shows, over which time."""

    title: str
    text_of: Callable[[float], str]
    lines: Sequence[Line]
    began_ms: int
    ended_ms: int

    def svg(self) -> str:
        """The chart as an SVG element."""
        top = self._top()
        parts = [
            f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(self.title)}">',
            *self._y_axis(top),
            *self._x_axis(),
        ]
        for line in self.lines:
            parts += self._drawn(line, top)
        if not any(line.points for line in self.lines):
            middle = f'x="{(_WIDTH + _LEFT) / 2}" y="{_HEIGHT / 2}"'
            parts.append(f'<text {middle} text-anchor="middle">nothing measured</text>')
        return "".join([*parts, "</svg>"])

    def _top(self) -> float:
        highest = max((value for line in self.lines for _, value in line.points), default=0)
        return _round_up(highest) if highest > 0 else 1.0

    def _x(self, at_ms: float) -> float:
        span_ms = max(self.ended_ms - self.began_ms, 1)
        share = min(max((at_ms - self.began_ms) / span_ms, 0), 1)
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

    def _y_axis(self, top: float) -> Iterator[str]:
        for number in range(_Y_TICKS + 1):
            value = top * number / _Y_TICKS
            y = _y(value, top)
            yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
            text = escape(self.text_of(value))
            yield f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{text}</text>'

    def _x_axis(self) -> Iterator[str]:
        for at_ms, text in time_ticks(self.began_ms, self.ended_ms):
            x, floor = self._x(at_ms), _HEIGHT - _BOTTOM
            yield f'<line class="tick" x1="{x}" x2="{x}" y1="{floor}" y2="{floor + 4}"/>'
            anchor = "end" if x > _WIDTH - 30 else "middle"
            yield f'<text x="{x}" y="{_HEIGHT - 8}" text-anchor="{anchor}">{text}</text>'

    def _drawn(self, line: Line, top: float) -> Iterator[str]:
        places = [(self._x(at_ms), _y(value, top)) for at_ms, value in line.points]
        color = f"c{line.number % COLORS}" + (" more" if line.number >= COLORS else "")
        path = " ".join(f"{x},{y}" for x, y in places)
        yield f'<polyline class="{color}" points="{path}"/>'
        is_marked = len(places) <= _MARKED_MAX
        for (x, y), (at_ms, value) in zip(places, line.points, strict=True):
            title = f"{line.name}: {self.text_of(value)}, {clock_text(at_ms)}"
            mark = f'<circle class="{color}" cx="{x}" cy="{y}" r="2.5"/>' if is_marked else ""
            target = f'<circle class="hover" cx="{x}" cy="{y}" r="7"/>'
            yield f"<g><title>{escape(title)}</title>{mark}{target}</g>"


def _y(value: float, top: float) -> float:
    floor = _HEIGHT - _BOTTOM
    return round(floor - value / top * (floor - _TOP), 1)


def _round_up(value: float) -> float:
    """The next number whose quarters are easy to read."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 4, 6, 8, 10) if value <= power * step * 1.0000001)


def time_ticks(began_ms: int, ended_ms: int) -> list[tuple[int, str]]:
    """Round moments between two, in the local time of this machine, with their labels."""
    span_ms = max(ended_ms - began_ms, 1)
    step_ms = next(
        (one for one in _TIME_STEPS_MS if span_ms / one <= _X_TICKS_MAX), _TIME_STEPS_MS[-1]
    )
    form = "%H:%M:%S" if step_ms < _MINUTE_MS else "%H:%M" if step_ms < _DAY_MS else "%d %b"
    offset = _local(began_ms).utcoffset()
    zone_ms = int(offset.total_seconds() * 1000) if offset is not None else 0
    first_ms = -(-(began_ms + zone_ms) // step_ms) * step_ms - zone_ms
    return [
        (at_ms, _local(at_ms).strftime(form)) for at_ms in range(first_ms, ended_ms + 1, step_ms)
    ]


def clock_text(at_ms: int) -> str:
    """A moment in the local time of this machine."""
    return _local(at_ms).strftime("%Y-%m-%d %H:%M:%S")


def _local(at_ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at_ms / 1000, tz=datetime.UTC).astimezone()
