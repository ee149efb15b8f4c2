"""Brokers that were slow or failed, which are avoided for a while.

How long depends on what was seen: the slower the answer, the longer the broker is left alone. A
failed send counts as a very slow one. Nothing here forbids a broker: when all of them are avoided,
the one whose time is over first is taken.
"""

from __future__ import annotations

from typing import Final

# Compat: as in RocketMQ 5. Answers from so many milliseconds on keep a broker away for so long.
_AVOIDED_MS: Final = (
    (15_000, 30_000.0),
    (5_000, 10_000.0),
    (3_000, 6_000.0),
    (1_800, 5_000.0),
    (550, 2_000.0),
)
# Compat: what a failed send counts as, however quickly it failed.
FAILED_LATENCY_MS: Final = 10_000.0
# What is faster has no consequence.
SLOW_FROM_MS: Final = 550.0


def avoided_ms(latency_ms: float) -> float:
    """Say how long a broker is avoided that took so long to answer."""
    for low_ms, pause_ms in _AVOIDED_MS:
        if latency_ms >= low_ms:
            return pause_ms
    return 0.0


class BrokerFaults:
    """What one producer saw of its brokers; times are those of a monotonic clock."""

    def __init__(self, *, on: bool = True) -> None:
        self._on = on
        self._until_ms: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._until_ms)

    def note(self, broker_name: str, latency_ms: float, now_ms: float) -> None:
        """Take note of how long an answer took; a good one does not end an earlier pause."""
        pause_ms = avoided_ms(latency_ms) if self._on else 0.0
        if pause_ms and now_ms + pause_ms > self._until_ms.get(broker_name, 0.0):
            self._until_ms[broker_name] = now_ms + pause_ms

    def note_failure(self, broker_name: str, now_ms: float) -> None:
        """Take note of a send that failed."""
        self.note(broker_name, FAILED_LATENCY_MS, now_ms)

    def avoided_until_ms(self, broker_name: str, now_ms: float) -> float:
        """Say until when a broker is avoided; 0 when it is not."""
        until_ms = self._until_ms.get(broker_name)
        if until_ms is None:
            return 0.0
        if until_ms <= now_ms:
            del self._until_ms[broker_name]
            return 0.0
        return until_ms
