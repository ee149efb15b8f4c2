"""Brokers that did not answer lately: reads go to others of their group meanwhile.

A name server takes up to two minutes to notice that a broker is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# Longer than the time between two heartbeats, which find out whether a broker answers again.
SILENT_MS: Final = 60_000


class SilentBrokers:
    """Addresses of brokers that did not answer."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._until_ms: dict[str, float] = {}

    def __contains__(self, address: str) -> bool:
        # Perf: asked with each pull, and nearly always empty.
        if not self._until_ms:
            return False
        until_ms = self._until_ms.get(address)
        if until_ms is None:
            return False
        if self._now_ms() < until_ms:
            return True
        del self._until_ms[address]
        return False

    def note(self, address: str) -> None:
        """Record that a broker did not answer."""
        self._until_ms[address] = self._now_ms() + SILENT_MS

    def heard(self, address: str | None) -> None:
        """Record that a broker answers, or is said to answer again."""
        if self._until_ms and address is not None:
            self._until_ms.pop(address, None)

    def keep(self, addresses: frozenset[str]) -> None:
        """Forget all other brokers."""
        for address in self._until_ms.keys() - addresses:
            del self._until_ms[address]
