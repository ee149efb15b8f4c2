"""Numbers for people: counts, bytes, spans of time."""

from __future__ import annotations

from typing import Final

_KILO: Final = 1000
_PREFIXES: Final = ("", "k", "M", "G", "T", "P")
_WHOLE: Final = 10_000
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86_400


def count_text(count: float) -> str:
    """A number: 9,876 as it is, then 12.3 k; below 10 with two digits."""
    if abs(count) < _WHOLE:
        return f"{count:,.0f}" if count == int(count) or abs(count) >= 10 else f"{count:.2g}"
    for prefix in _PREFIXES:
        if abs(count) < _KILO or prefix == _PREFIXES[-1]:
            return f"{count:.3g} {prefix}" if abs(count) < _KILO else f"{count:,.0f} {prefix}"
        count /= _KILO
    raise AssertionError(count)


def bytes_text(count: float) -> str:
    """A number of bytes: 12.3 MB."""
    for prefix in _PREFIXES:
        if count < _KILO or prefix == _PREFIXES[-1]:
            return f"{count:.3g} {prefix}B"
        count /= _KILO
    raise AssertionError(count)


def span_text(seconds: float) -> str:
    """A span: 250 ms, 3.2 s, 4 min 5 s, 2 h 3 min, 5 d 6 h."""
    if seconds == 0:
        return "0 s"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _MINUTE_S:
        return f"{whole} s"
    for unit_s, unit, smaller_s, smaller in (
        (_DAY_S, "d", _HOUR_S, "h"),
        (_HOUR_S, "h", _MINUTE_S, "min"),
        (_MINUTE_S, "min", 1, "s"),
    ):
        if whole >= unit_s:
            rest = whole % unit_s // smaller_s
            return f"{whole // unit_s} {unit}" + (f" {rest} {smaller}" if rest else "")
    raise AssertionError(seconds)
