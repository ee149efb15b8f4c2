"""Brokers that were slow or failed are avoided for a while.

The slower the reply, the longer the broker is avoided; a failed send counts as very slow. If all
brokers are avoided, the one whose pause ends first is used.
"""

from __future__ import annotations

from typing import Final

# Compat: as in RocketMQ 5. Latency from this on, and how long the broker is avoided then.
_AVOIDED_MS: Final = (
    (15_000, 30_000.0),
    (5_000, 10_000.0),
    (3_000, 6_000.0),
    (1_800, 5_000.0),
    (550, 2_000.0),
)
# Compat: the latency that a failed send counts as, however quickly it failed.
FAILED_LATENCY_MS: Final = 10_000.0
# Faster replies have no consequence.
SLOW_FROM_MS: Final = 550.0


def avoided_ms(latency_ms: float) -> float:
    """Return how long to avoid a broker with this latency; 0 for not at all."""
    for low_ms, pause_ms in _AVOIDED_MS:
        if latency_ms >= low_ms:
            return pause_ms
    return 0.0


class BrokerFaults:
    """The brokers that one producer avoids; times are of a monotonic clock."""

    def __init__(self, *, on: bool = True) -> None:
        self._on = on
        self._until_ms: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._until_ms)

    def note(self, broker_name: str, latency_ms: float, now_ms: float) -> None:
        """Record the latency of a reply; a fast one does not end an earlier pause."""
        pause_ms = avoided_ms(latency_ms) if self._on else 0.0
        if pause_ms and now_ms + pause_ms > self._until_ms.get(broker_name, 0.0):
            self._until_ms[broker_name] = now_ms + pause_ms

    def note_failure(self, broker_name: str, now_ms: float) -> None:
        """Record a failed send."""
        self.note(broker_name, FAILED_LATENCY_MS, now_ms)

    def avoided_until_ms(self, broker_name: str, now_ms: float) -> float:
        """Return until when a broker is avoided; 0 if it is not."""
        until_ms = self._until_ms.get(broker_name)
        if until_ms is None:
            return 0.0
        if until_ms <= now_ms:
            del self._until_ms[broker_name]
            return 0.0
        return until_ms
