"""Times as users write them on the command line."""

from __future__ import annotations

import datetime
import re
from typing import Final

from orbitmq.errors import SettingsError

_LENGTH: Final = re.compile(r"(\d+)(s|m|h|d)")
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LAST_MS: Final = 2**63 - 1
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_moment(text: str, *, now_ms: int, is_ahead: bool = False) -> int:
    """A time in milliseconds since the epoch, from ISO, milliseconds, or "15m" (15 minutes ago).

    With `is_ahead`, that is in 15 minutes.
    """
    try:
        moment_ms = _parsed(text, now_ms, sign=1 if is_ahead else -1)
    except (ValueError, OverflowError, OSError):
        when = "in how long" if is_ahead else "how long ago"
        raise SettingsError(
            f"{text!r} is not a time",
            hint=f"write 2026-01-31T12:30, now, milliseconds, or {when}: 15m, 2h, 3d",
        ) from None
    # Larger numbers do not fit the wire; negative ones have other meanings to brokers.
    if not 0 <= moment_ms <= _LAST_MS:
        raise SettingsError(
            f"{text!r} is not a time that brokers accept",
            hint=f"it must be 0 to {_LAST_MS} milliseconds after 1970",
        )
    return moment_ms


def parse_duration(text: str) -> datetime.timedelta:
    """A length of time, as "90s", "15m", "2h" or "3d"."""
    found = _LENGTH.fullmatch(text)
    try:
        if found:
            return datetime.timedelta(milliseconds=int(found[1]) * _UNIT_MS[found[2]])
    except OverflowError:
        pass
    raise SettingsError(f"{text!r} is not a duration", hint="write 90s, 15m, 2h or 3d")


def as_datetime(moment_ms: int) -> datetime.datetime:
    """A time as Python has it, from milliseconds since the epoch."""
    try:
        return _EPOCH + datetime.timedelta(milliseconds=moment_ms)
    except OverflowError:
        raise SettingsError(
            f"{moment_ms} milliseconds after 1970 is no time that a calendar has",
            hint="give a time before the year 10000",
        ) from None


def _parsed(text: str, now_ms: int, *, sign: int) -> int:
    if text == "now":
        return now_ms
    if found := _LENGTH.fullmatch(text):
        return now_ms + sign * int(found[1]) * _UNIT_MS[found[2]]
    if text.isdecimal():
        return int(text)
    # Compat: mqadmin writes 2026-01-31#12:30:00:000.
    plain = re.sub(r":(\d{3})$", r".\1", text.replace("#", " "))
    return int(datetime.datetime.fromisoformat(plain).astimezone().timestamp() * 1000)
