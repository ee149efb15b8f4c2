"""Moments that people name on the command line."""

from __future__ import annotations

import datetime
import re
from typing import Final

from orbitmq.errors import SettingsError

_AGO: Final = re.compile(r"(\d+)(s|m|h|d)")
_LAST_MS: Final = 2**63 - 1
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_moment(text: str, *, now_ms: int) -> int:
    """Read a time as milliseconds since the epoch: ISO, milliseconds, or "15m" for 15 minutes ago."""
    try:
        moment_ms = _parsed(text, now_ms)
    except (ValueError, OverflowError, OSError):
        raise SettingsError(
            f"{text!r} is no time",
            hint="write 2026-01-31T12:30, 15m, 2h or 3d for so long ago, now, or milliseconds",
        ) from None
    # Behind it the wire has no room; below 0, numbers mean something else to brokers.
    if not 0 <= moment_ms <= _LAST_MS:
        raise SettingsError(f"{text!r} is no time since 1970", hint="messages are younger")
    return moment_ms


def _parsed(text: str, now_ms: int) -> int:
    if text == "now":
        return now_ms
    if ago := _AGO.fullmatch(text):
        return now_ms - int(ago[1]) * _UNIT_MS[ago[2]]
    if text.isdecimal():
        return int(text)
    # Compat: mqadmin writes 2026-01-31#12:30:00:000.
    plain = re.sub(r":(\d{3})$", r".\1", text.replace("#", " "))
    return int(datetime.datetime.fromisoformat(plain).astimezone().timestamp() * 1000)
