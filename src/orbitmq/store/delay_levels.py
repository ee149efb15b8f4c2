"""Delay levels as text: "1s 5s 10s 30s 1m … 2h"."""

from __future__ import annotations

from typing import Final

from orbitmq.errors import SettingsError

_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(levels: str) -> tuple[int, ...]:
    """Parse the delay of each level, in milliseconds."""
    delays: list[int] = []
    for text in levels.split():
        number, unit = text[:-1], text[-1:]
        if unit not in _UNIT_MS or not (number.isascii() and number.isdigit()):
            raise SettingsError(
                f"messageDelayLevel: {text!r} is not a delay",
                hint="write a whole number and s, m, h or d, for example 30s",
            )
        delays.append(int(number) * _UNIT_MS[unit])
    return tuple(delays)
