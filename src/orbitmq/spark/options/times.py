"""Times as users of the Spark formats write them."""

from __future__ import annotations

import datetime
from typing import Final

from orbitmq.errors import SettingsError

TIME_HINT: Final = (
    "write milliseconds since 1970, or ISO 8601 as in 2026-01-31T12:30:00+01:00; without a zone it "
    "is UTC"
)
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_LAST_MS: Final = 2**63 - 1


def time_ms(text: str, *, name: str) -> int:
    """Parse a time, in milliseconds since the epoch or ISO 8601; `name` is the option."""
    try:
        moment_ms = _parsed(text.strip())
    except (ValueError, OverflowError):
        moment_ms = -1
    if not 0 <= moment_ms <= _LAST_MS:
        raise SettingsError(f"{name} cannot be {text!r:.200}", hint=TIME_HINT)
    return moment_ms


def _parsed(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text[:20])
    moment = datetime.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return (moment - _EPOCH) // _MILLISECOND
